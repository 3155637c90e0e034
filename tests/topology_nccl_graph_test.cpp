// Reading NCCL's graph files, and saying what is in them.
#include "topology/nccl_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "muster/types.h"
#include "support/corpus.h"

namespace muster::topology {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    read_nccl_graph(text, "g.xml");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::invalid_argument);
    return e.what();
  }
  return "read";
}
std::string graph(const std::string& attributes, const std::string& inside) { return "<graphs version=\"1\">\n<graph " + attributes + ">" + inside + "</graph></graphs>"; }
const std::string kRing = "id=\"0\" pattern=\"4\" crossnic=\"1\" nchannels=\"1\" speedintra=\"30\" speedinter=\"22.5\" latencyinter=\"1.5\" typeintra=\"NVL\" typeinter=\"PXN\" samechannels=\"1\"";

TEST(NcclGraph, Ring) {
  const ChannelGraphs g = read_nccl_graph(graph(kRing, "<channel><net dev=\"0x3\"/><gpu dev=\"0\"/><gpu dev=\"0xa\"/><net dev=\"3\"/></channel>"), "g.xml");
  ASSERT_EQ(g.graphs.size(), 1u);
  EXPECT_THAT(g.findings, testing::IsEmpty());
  const ChannelGraph& r = g.graphs[0];
  EXPECT_EQ(r.id, 0);
  EXPECT_EQ(r.pattern, GraphPattern::ring);
  EXPECT_EQ(r.cross_nic, 1);
  EXPECT_TRUE(r.same_channels);
  EXPECT_EQ(r.gb_per_s_intra, 30);
  EXPECT_EQ(r.gb_per_s_inter, 22.5);
  EXPECT_EQ(r.latency_inter_us, 1.5);
  EXPECT_EQ(r.type_intra, PathClass::nvl);
  EXPECT_EQ(r.type_inter, PathClass::pxn);
  ASSERT_EQ(r.channels.size(), 1u);
  EXPECT_EQ(r.channels[0], (GraphChannel{{true, 3}, {false, 0}, {false, 10}, {true, 3}}));
  EXPECT_EQ(describe(g), "ring (graph 0): 1 channel of 30 GB/s by NVL, between hosts 22.5 GB/s by PXN\n  0: net 3 > GPU 0 > 10 > net 3\n");
}

TEST(NcclGraph, ChannelsThatAreTheSameAreToldTogether) {
  const std::string forth = "<channel><gpu dev=\"0\"/><gpu dev=\"1\"/><gpu dev=\"2\"/></channel>", back = "<channel><gpu dev=\"0\"/><gpu dev=\"2\"/><gpu dev=\"1\"/></channel>";
  const ChannelGraphs g = read_nccl_graph(graph("id=\"0\" pattern=\"4\" nchannels=\"6\" speedintra=\"20\" typeintra=\"SYS\"", forth + forth + forth + back + forth + back), "g.xml");
  EXPECT_EQ(describe(g), "ring (graph 0): 6 channels of 20 GB/s by SYS\n  0-2, 4: GPU 0 > 1 > 2 > 0\n  3, 5: GPU 0 > 2 > 1 > 0\n");
}

TEST(NcclGraph, WhatContradictsItself) {
  const ChannelGraphs g = read_nccl_graph(graph("id=\"7\" pattern=\"9\" nchannels=\"2\" speedintra=\"20\" typeintra=\"SOC\"", "<channel><gpu dev=\"a\"/><gpu dev=\"10\"/><other/></channel>"), "g.xml");
  std::set<std::string> ids;
  for (const Finding& f : g.findings) ids.insert(f.id);
  EXPECT_EQ(ids, (std::set<std::string>{"unknown-pattern", "channel-count", "bare-hexadecimal", "gpu-twice-in-channel", "unknown-element"}));
  EXPECT_EQ(g.graphs[0].pattern_number, 9);
  EXPECT_EQ(g.graphs[0].type_intra, PathClass::sys);
}

TEST(NcclGraph, WhatIsNoGraph) {
  EXPECT_EQ(refusal(""), "g.xml is empty");
  EXPECT_THAT(refusal("<system version=\"1\"/>"), HasSubstr("no NCCL graph, which begins with <graphs>"));
  EXPECT_THAT(refusal("<graphs/>"), HasSubstr("attribute 'version' is missing"));
  EXPECT_THAT(refusal("<graphs version=\"2\"/>"), HasSubstr("version=\"2\" isn't known"));
  EXPECT_EQ(refusal("<graphs version=\"1\">\n<graph pattern=\"4\"/></graphs>"), "g.xml:2:2: <graph>: attribute 'id' is missing");
  EXPECT_EQ(refusal("<graphs version=\"1\">\n<graph id=\"0\"/></graphs>"), "g.xml:2:2: <graph>: attribute 'pattern' is missing");
  EXPECT_THAT(refusal(graph("id=\"0\" pattern=\"4\"", "<channel><gpu/></channel>")), HasSubstr("<gpu>: attribute 'dev' is missing"));
  EXPECT_THAT(refusal(graph("id=\"0\" pattern=\"4\" typeintra=\"FAST\"", "")), HasSubstr("typeintra=\"FAST\" is no class of paths"));
  EXPECT_THAT(refusal(graph("id=\"0\" pattern=\"4\" speedintra=\"1,5\"", "")), HasSubstr("speedintra=\"1,5\" is no number"));
  EXPECT_THAT(refusal(graph("id=\"0\" pattern=\"4\"", "<channel><gpu dev=\"-1\"/></channel>")), HasSubstr("dev=\"-1\" is not in"));
}

struct Expected {
  const char* file;
  size_t graphs;
  size_t rings;  // channels of the ring graph
  size_t gpus;   // in each of them
  bool between_hosts;
  double gb_per_s;
  std::set<std::string> findings;
};

// What the files' own comments and names say.
const std::vector<Expected> kFiles = {
    {"azure-nc48v4-graph.xml", 3, 2, 2, false, 12, {}},
    {"blinkplus-graph.xml", 3, 6, 8, false, 22, {}},
    {"blinkplus-graph0123.xml", 3, 4, 4, false, 21, {}},
    {"modal-b200-8rail-v1.xml", 2, 8, 8, true, 160, {"bare-hexadecimal"}},
    {"modal-b200-8rail-v2.xml", 2, 8, 8, true, 160, {}},
    {"modal-b200-8rail-v3.xml", 2, 8, 8, true, 160, {}},
    {"modal-b200-8rail-v4.xml", 2, 8, 8, true, 160, {"bare-hexadecimal"}},
    {"msccl-graph.xml", 3, 2, 4, false, 12, {}},
    {"nccl_issue-524-1gpu-1nic-oldformat.xml", 3, 1, 1, true, 12, {}},
    {"panlichen-graph.xml", 4, 1, 8, true, 4, {}},
    {"simllm-8xH200-vastai.xml", 5, 12, 8, false, 30, {}},
    {"uccl-rdma_cuda-graph-dump-v1.xml", 5, 2, 1, true, 24, {}},
    {"uccl-rdma_cuda-graph-dump-v3.xml", 5, 8, 8, true, 24, {}},
    {"uccl-rdma_cuda-graph-dump-v4.xml", 5, 1, 8, true, 24, {}},
    {"yccl-4xA6000-graph.xml", 5, 1, 4, false, 10, {}},
};

TEST(NcclGraphCorpus, Files) {
  MUSTER_NEEDS_CORPUS();
  EXPECT_EQ(test::files_in(test::corpus() / "nccl-graph").size(), kFiles.size());
  for (const Expected& e : kFiles) {
    SCOPED_TRACE(e.file);
    const ChannelGraphs g = read_nccl_graph(test::text_of(test::corpus() / "nccl-graph" / e.file), e.file);
    EXPECT_EQ(g.graphs.size(), e.graphs);
    std::set<std::string> findings;
    for (const Finding& f : g.findings) findings.insert(f.id);
    EXPECT_EQ(findings, e.findings);
    ASSERT_FALSE(g.graphs.empty());
    const ChannelGraph& ring = g.graphs[0];
    EXPECT_EQ(ring.pattern, GraphPattern::ring);
    EXPECT_EQ(ring.gb_per_s_intra, e.gb_per_s);
    EXPECT_EQ(ring.channels.size(), e.rings);
    for (const GraphChannel& c : ring.channels) {
      EXPECT_EQ(c.size(), e.gpus + (e.between_hosts ? 2 : 0));
      EXPECT_EQ(c.front().net, e.between_hosts);
      EXPECT_TRUE(!e.between_hosts || c.front() == c.back()) << "it leaves by the port by which it came";
    }
  }
}

}  // namespace
}  // namespace muster::topology
