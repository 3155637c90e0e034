// docs/topology.md names every finding there is, and its example of a file is a good one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "support/corpus.h"
#include "topology/examine.h"
#include "topology/finding.h"
#include "topology/nccl_xml.h"
#include "topology/nearest_ports.h"

namespace muster::topology {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = MUSTER_SOURCE_FOLDER;

std::string page() { return test::text_of(kSource / "docs/topology.md"); }

std::vector<std::string> all_of(const std::string& text, const std::string& pattern) {
  const std::regex re(pattern);
  std::vector<std::string> r;
  for (std::sregex_iterator i(text.begin(), text.end(), re), end; i != end; ++i) r.push_back((*i)[1]);
  return r;
}

// Words of findings are those that follow a severity, and those that the code chooses from there.
std::set<std::string> finding_ids() {
  const std::string word = "\"([a-z]+(?:-[a-z0-9]+)+)\"";
  std::set<std::string> ids;
  for (const fs::path& file : test::files_in(kSource / "topology")) {
    const std::string text = test::text_of(file);
    for (const std::string before :
         {"Severity::[a-z]+,\\s*", "Severity::[a-z]+,[^,;\"]*\\?\\s*",
          "Severity::[a-z]+,[^,;\"]*\\?\\s*\"[a-z-]+\"\\s*:\\s*", "(?:note|warn)\\(\\s*"})
      for (const std::string& id : all_of(text, before + word)) ids.insert(id);
  }
  return ids;
}

TEST(TopologyPage, NamesEveryFinding) {
  const std::set<std::string> ids = finding_ids();
  EXPECT_GT(ids.size(), 4u);
  for (const char* known : {"smi-contradiction", "smi-unreadable", "smi-incomplete"})
    EXPECT_TRUE(ids.contains(known)) << known;
  const std::string text = page();
  const std::string table = text.substr(text.find("## Findings"));
  for (const std::string& id : ids) EXPECT_NE(table.find("`" + id + "`"), table.npos) << "the page doesn't have " << id;
}

TEST(TopologyPage, ExplainsEveryClass) {
  const std::string text = page();
  for (int c = 0; c <= static_cast<int>(PathClass::dis); ++c)
    EXPECT_THAT(text, testing::HasSubstr(fmt::format("**{}** ", name_of(static_cast<PathClass>(c)))));
}

// The first block of XML in the page: 8 GPUs, each with a card at its switch, 4 on each of two sockets.
TEST(TopologyPage, ItsFileForAVirtualMachineIsGood) {
  const std::string text = page(), fence = "```xml\n";
  const size_t begin = text.find(fence) + fence.size();
  const Cluster c = read_nccl_xml(text.substr(begin, text.find("```", begin) - begin), "the example");
  ASSERT_EQ(c.host_count(), 1);
  const Machine& m = c.machine_of(0);
  EXPECT_EQ(m.all(Kind::gpu).size(), 8u);
  EXPECT_EQ(m.all(Kind::port).size(), 8u);
  EXPECT_EQ(m.all(Kind::numa).size(), 2u);
  std::set<int> nearest;
  for (const std::vector<PortChoice>& choices : nearest_ports(m)) {
    EXPECT_EQ(choices[0].path.path_class, PathClass::pix);
    EXPECT_EQ(choices[1].path.path_class, PathClass::phb);
    EXPECT_EQ(choices[7].path.path_class, PathClass::sys);
    nearest.insert(choices[0].port);
  }
  EXPECT_EQ(nearest.size(), 8u);
  std::vector<Finding> findings = m.findings;
  for (const Finding& f : examine(m)) findings.push_back(f);
  for (const Finding& f : findings) EXPECT_EQ(f.severity, Severity::note) << f.id << ": " << f.text;
}

}  // namespace
}  // namespace muster::topology
