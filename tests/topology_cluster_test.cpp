// Descriptions of clusters, ready-made hosts, and how hosts reach each other.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <set>

#include "support/corpus.h"
#include "topology/cluster_file.h"
#include "topology/host_description.h"
#include "topology/host_paths.h"
#include "topology/json.h"
#include "topology/nearest_ports.h"
#include "topology/read.h"

namespace muster::topology {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string no_files(const std::string& path) { fail(Result::invalid_argument, "no file {} here", path); }

Cluster cluster(const std::string& text, const Loader& load = no_files) {
  return read_cluster_file(text, "c.json", load);
}
Machine host(const std::string& json) {
  return *cluster("{\"muster_cluster\": 1, \"hosts\": [{\"host\": " + json + "}]}").shapes[0];
}

std::string refusal(const std::string& text, const Loader& load = no_files) {
  try {
    cluster(text, load);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::invalid_argument);
    return e.what();
  }
  return "accepted";
}

PathClass between(const Machine& m, std::string_view a, std::string_view b) {
  return paths_from(m, m.find(a))[static_cast<size_t>(m.find(b))].path_class;
}

TEST(ClusterFile, HostsAndFabric) {
  const Cluster c = cluster(R"(// two kinds of hosts
{"muster_cluster": 1, "name": "mine",
 "hosts": [{"count": 3, "name": "big", "ready": "dgx-h100"},
           {"name": "odd", "host": {"gpus": 2, "gpu": "L40S", "nics": 1, "network": "roce", "gbit_per_s": 100}},
           {"count": 2, "name": "more", "ready": "dgx-h100"}],
 "fabric": {"network": "roce", "rails": true, "hosts_per_leaf": 4, "oversubscription": 2, "gbit_per_s": 200, /* per port */
            "switch_latency_us": 0.5}})");
  EXPECT_EQ(c.name, "mine");
  EXPECT_EQ(c.host_count(), 6);
  EXPECT_EQ(c.gpu_count(), 5 * 8 + 2);
  EXPECT_EQ(c.shapes.size(), 2u) << "the same ready host is one shape";
  EXPECT_EQ(c.host_name(2), "big2");
  EXPECT_EQ(c.host_name(3), "odd");
  EXPECT_EQ(c.host_name(5), "more1");
  EXPECT_EQ(c.fabric.network, Network::roce);
  EXPECT_TRUE(c.fabric.rails);
  EXPECT_EQ(c.fabric.hosts_per_leaf, 4);
  EXPECT_EQ(c.fabric.oversubscription, 2);
  EXPECT_EQ(c.fabric.gbit_per_s, 200);
  EXPECT_EQ(c.fabric.latency_us, 0.5);
  EXPECT_EQ(c.fabric.source, Source::read);
}

TEST(ClusterFile, WithoutFabricThePortsSayWhatItIs) {
  const Cluster c = cluster(R"({"muster_cluster": 1, "hosts": [{"count": 2, "ready": "dgx-a100"}]})");
  EXPECT_EQ(c.fabric.network, Network::infiniband);
  EXPECT_EQ(c.fabric.source, Source::assumed);
}

TEST(ClusterFile, FilesAreLookedForBesideIt) {
  std::vector<std::string> asked;
  const auto load = [&](const std::string& path) {
    asked.push_back(path);
    return std::string(
        R"({"muster_topology": 1, "shapes": [{"nodes": [{"name": "NUMA0", "kind": "numa"}], "links": []}], "hosts": [{"shape": 0}]})");
  };
  const std::string text =
      R"({"muster_cluster": 1, "hosts": [{"count": 4, "file": "host.json"}, {"file": "/etc/other.json"}, {"file": "host.json"}]})";
  const Cluster c = read_cluster_file(text, "plans/c.json", load);
  EXPECT_THAT(asked, testing::ElementsAre("plans/host.json", "/etc/other.json"));
  EXPECT_EQ(c.shapes.size(), 2u);
  EXPECT_EQ(c.host_count(), 6);
}

TEST(ClusterFile, SaysWhereItIsWrong) {
  const auto with_host = [](const std::string& members) {
    return "{\"muster_cluster\": 1,\n \"hosts\": [{\"host\": {" + members + "}}]}";
  };
  EXPECT_THAT(refusal(""), StartsWith("c.json:1:1: no well-formed JSON: "));
  EXPECT_THAT(refusal("{\"muster_cluster\": 1,\n  \"hosts\" [}"),
              StartsWith("c.json:2:11: no well-formed JSON: "));
  EXPECT_THAT(refusal("[]"), HasSubstr("c.json:1:1: an object is wanted, not a list"));
  EXPECT_THAT(refusal("{\"hosts\": []}"), HasSubstr("'muster_cluster' is missing"));
  EXPECT_THAT(refusal("{\"muster_cluster\": 2, \"hosts\": []}"),
              HasSubstr("c.json:1:2: 'muster_cluster': 2 is not in 1..1"));
  EXPECT_THAT(refusal("{\"muster_cluster\": 1, \"hosts\": []}"), HasSubstr("at least one group of hosts"));
  EXPECT_EQ(refusal("{\"muster_cluster\": 1,\n \"hosts\": [{\"ready\": \"dgx-a100\"}],\n    \"fabrik\": {}}"),
            "c.json:3:5: 'fabrik': is not known here. Is 'fabric' meant?");
  EXPECT_EQ(refusal(with_host("\"gpus\": 8, \"nvlink_per_gpu\": 12")),
            "c.json:2:33: 'nvlink_per_gpu': is not known here. Is 'nvlinks_per_gpu' meant?");
  EXPECT_EQ(refusal(with_host("\"gpus\": 8, \"gpus\": 8")), "c.json:2:33: 'gpus': is there twice");
  EXPECT_THAT(refusal(with_host("\"gpus\": 257")), HasSubstr("c.json:2:22: 'gpus': 257 is not in 0..256"));
  EXPECT_THAT(refusal(with_host("\"gpus\": -1")), HasSubstr("-1 is not in"));
  EXPECT_THAT(refusal(with_host("\"gpus\": 2.5")), HasSubstr("a whole number is wanted, not 2.5"));
  EXPECT_THAT(refusal(with_host("\"gpus\": \"8\"")), HasSubstr("a whole number is wanted, not a text"));
  EXPECT_THAT(refusal(with_host("\"gbit_per_s\": 1e999")), HasSubstr("c.json:2:"));
  EXPECT_THAT(refusal(with_host("\"gbit_per_s\": 0")), HasSubstr("is not in"));
  EXPECT_THAT(refusal(with_host("\"gpus\": 18446744073709551615")), HasSubstr("is not in 0..256"));
  EXPECT_THAT(refusal(with_host("\"network\": \"infiniband \"")), HasSubstr("Is \"infiniband\" meant?"));
  EXPECT_THAT(refusal(with_host("\"network\": \"myrinet\"")),
              HasSubstr("known are infiniband, roce, ethernet, efa"));
  EXPECT_THAT(refusal(with_host("\"cpu\": \"z80\"")), HasSubstr("known are broadwell"));
  EXPECT_THAT(refusal(with_host("\"gpus\": 8, \"nvswitches\": 6")),
              HasSubstr("'nvlinks_per_gpu' is missing"));
  EXPECT_THAT(refusal(with_host("\"gpus\": 8, \"nvlinks_per_gpu\": 12")),
              HasSubstr("12 links don't go to 7 other GPUs alike"));
  EXPECT_THAT(refusal(with_host("\"gpus\": 2, \"nvlink_pairs\": [[0,1,2],[1,0,2]]")),
              HasSubstr("GPUs 1 and 0 are joined twice"));
  EXPECT_THAT(refusal(with_host("\"gpus\": 2, \"nvlink_pairs\": [[0,2,2]]")), HasSubstr("2 is not in 0..1"));
  EXPECT_THAT(refusal(with_host("\"gpus\": 2, \"nvlink_pairs\": [[0,0,2]]")),
              HasSubstr("no links to itself"));
  EXPECT_THAT(refusal(with_host("\"gpus\": 2, \"nvlink_pairs\": [0,1]")),
              HasSubstr("[GPU, GPU, LINKS] is wanted"));
  EXPECT_THAT(refusal(with_host("\"packages\": 2, \"numa_nodes\": 3")),
              HasSubstr("2 packages don't hold 3 NUMA nodes alike"));
  EXPECT_THAT(refusal(R"({"muster_cluster": 1, "hosts": [{"count": 0, "ready": "dgx-a100"}]})"),
              HasSubstr("'count': 0 is not in"));
  EXPECT_THAT(
      refusal(
          R"({"muster_cluster": 1, "hosts": [{"count": 1000000, "ready": "dgx-a100"}, {"ready": "dgx-a100"}]})"),
      HasSubstr("more than 1000000 hosts"));
  EXPECT_THAT(refusal(R"({"muster_cluster": 1, "hosts": [{}]})"),
              HasSubstr("one of 'ready', 'file' and 'host' is wanted"));
  EXPECT_THAT(refusal(R"({"muster_cluster": 1, "hosts": [{"ready": "dgx-h100", "file": "x"}]})"),
              HasSubstr("one of 'ready', 'file' and 'host'"));
  EXPECT_THAT(refusal(R"({"muster_cluster": 1, "hosts": [{"ready": "dgx"}]})"),
              HasSubstr("known are dgx-1v, dgx-a100, dgx-h100"));
  EXPECT_THAT(refusal(R"({"muster_cluster": 1, "hosts": [{"file": "x.xml"}]})"),
              HasSubstr("c.json:1:34: 'file': x.xml: no file x.xml here"));
  const auto itself = [](const std::string&) {
    return std::string(R"({"muster_cluster": 1, "hosts": [{"file": "c.json"}]})");
  };
  EXPECT_THAT(refusal(itself(""), itself), HasSubstr("it describes a cluster, and a host is wanted"));
  std::string deep = "{\"muster_cluster\": ";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  EXPECT_THAT(refusal(deep), HasSubstr("values within values more than 64 deep"));
}

TEST(ClusterFile, ThePagesExampleIsRead) {
  const std::string page = test::text_of(std::filesystem::path(MUSTER_SOURCE_FOLDER) / "docs/topology.md");
  const size_t begin = page.find("```json\n") + 8;
  const Cluster c = cluster(page.substr(begin, page.find("```", begin) - begin), [](const std::string& path) {
    EXPECT_EQ(path, "their-host.xml");
    return write_json(cluster_of(*ready_host("dgx-a100")));
  });
  EXPECT_EQ(c.gpu_count(), 2048 * 8 + 16 * 8 + 2 * 4);
  for (const ReadyHost& r : ready_hosts()) EXPECT_THAT(page, HasSubstr(fmt::format("`{}`", r.name)));
}

// What the vendor says of each: GPUs, NVLinks of a GPU, ports and their Gbit/s.
TEST(ReadyHosts, AreWhatTheirVendorsSay) {
  struct Known {
    std::string_view name;
    int gpus, sm, nvlinks, ports;
    double gbit_per_s;
  };
  const std::vector<Known> known = {
      {"dgx-1v", 8, 70, 6, 4, 100},        {"dgx-a100", 8, 80, 12, 8, 200},
      {"dgx-h100", 8, 90, 18, 8, 400},     {"hgx-h200", 8, 90, 18, 8, 400},
      {"dgx-b200", 8, 100, 18, 8, 400},    {"gb200-nvl72", 4, 100, 18, 4, 400},
      {"aws-p4d", 8, 80, 12, 4, 100},      {"aws-p5", 8, 90, 18, 32, 100},
      {"rtx4090-8", 8, 89, 0, 1, 100},
  };
  ASSERT_EQ(known.size(), ready_hosts().size());
  for (const Known& k : known) {
    SCOPED_TRACE(k.name);
    const auto m = ready_host(k.name);
    ASSERT_TRUE(m);
    const std::vector<int> gpus = m->all(Kind::gpu), ports = m->all(Kind::port);
    EXPECT_EQ(static_cast<int>(gpus.size()), k.gpus);
    EXPECT_EQ(static_cast<int>(ports.size()), k.ports);
    for (const int p : ports) EXPECT_EQ(m->port(p).gbit_per_s, k.gbit_per_s);
    for (const int g : gpus) {
      EXPECT_EQ(m->gpu(g).sm, k.sm);
      EXPECT_EQ(nvlinks_of(*m, g).links, k.nvlinks);
    }
  }
  EXPECT_FALSE(ready_host("dgx-0"));
}

// `nvidia-smi topo -m` of a DGX-1V, as NVIDIA prints it in the DGX-1 user guide.
TEST(ReadyHosts, Dgx1IsAHybridCubeMesh) {
  const Machine m = *ready_host("dgx-1v");
  constexpr int kLinks[8][8] = {{0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0}, {1, 2, 0, 2, 0, 0, 1, 0},
                                {2, 1, 2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
                                {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}};
  const std::vector<int> gpus = m.all(Kind::gpu);
  for (size_t a = 0; a < 8; ++a)
    for (size_t b = 0; b < 8; ++b) {
      int links = 0;
      for (const Link& l : m.links)
        if (l.kind == LinkKind::nvlink && std::minmax(l.a, l.b) == std::minmax(gpus[a], gpus[b]))
          links += l.count;
      EXPECT_EQ(links, kLinks[a][b]) << a << " " << b;
      if (a == b) continue;
      EXPECT_EQ(between(m, m[gpus[a]].name, m[gpus[b]].name), links ? PathClass::nvl : PathClass::nvb)
          << a << " " << b;
    }
  EXPECT_EQ(between(m, "GPU0", "mlx5_0"), PathClass::pix);
  EXPECT_EQ(between(m, "GPU1", "mlx5_0"), PathClass::pix);
  EXPECT_EQ(between(m, "GPU2", "mlx5_0"), PathClass::phb);
  EXPECT_EQ(between(m, "GPU4", "mlx5_0"), PathClass::sys);
}

TEST(ReadyHosts, Hopper) {
  const Machine m = *ready_host("dgx-h100");
  EXPECT_EQ(between(m, "GPU0", "GPU7"), PathClass::nvl);
  EXPECT_EQ(between(m, "GPU3", "mlx5_3"), PathClass::pix);
  EXPECT_EQ(between(m, "GPU3", "mlx5_0"), PathClass::node);
  EXPECT_EQ(between(m, "GPU3", "mlx5_4"), PathClass::sys);
  EXPECT_NEAR(nvlinks_of(m, m.find("GPU0")).rate.gb_per_s, 370.8, 1e-9);  // 18 x 20.6
  const auto choices = nearest_ports(m);
  for (size_t g = 0; g < 8; ++g) {
    EXPECT_EQ(m[choices[g][0].port].name, fmt::format("mlx5_{}", g));
    EXPECT_EQ(choices[g][0].gpudirect, Answer3::yes);
  }
}

TEST(ReadyHosts, GraceReachesCardsByItsCpu) {
  const Machine m = *ready_host("gb200-nvl72");
  EXPECT_EQ(between(m, "GPU0", "GPU3"), PathClass::nvl);
  EXPECT_EQ(between(m, "GPU0", "NUMA0"), PathClass::c2c);
  EXPECT_EQ(between(m, "GPU3", "NUMA0"), PathClass::sys);
  EXPECT_EQ(m.numa_of(m.find("GPU1")), m.find("NUMA0"));
  EXPECT_EQ(m.numa_of(m.find("GPU2")), m.find("NUMA1"));
}

TEST(HostDescription, GpusAndCardsAreSpreadEvenly) {
  const Machine m = host(
      R"({"gpus": 4, "nics": 2, "ports_per_nic": 2, "numa_nodes": 4, "packages": 2, "pci_generation": 4, "gpus_per_pci_switch": 2, "cpu": "epyc"})");
  EXPECT_EQ(m.all(Kind::pci_switch).size(), 2u);
  EXPECT_EQ(m.all(Kind::nic).size(), 2u);
  EXPECT_EQ(m.all(Kind::port).size(), 4u);
  EXPECT_EQ(m[m.find("GPU1")].parent, m[m.find("GPU0")].parent);
  EXPECT_EQ(m[m.nic_of(m.find("eth1"))].parent, m[m.find("GPU0")].parent);
  EXPECT_EQ(m[m.nic_of(m.find("eth2"))].parent, m[m.find("GPU2")].parent);
  EXPECT_EQ(m.numa_of(m.find("GPU0")), m.find("NUMA0"));
  EXPECT_EQ(m.numa_of(m.find("GPU3")), m.find("NUMA2"));
  EXPECT_EQ(m.numa(m.find("NUMA1")).package, 0);
  EXPECT_EQ(m.numa(m.find("NUMA2")).package, 1);
  EXPECT_DOUBLE_EQ(m.links[static_cast<size_t>(m.up_link(m.find("GPU0")))].rate.gb_per_s,
                   24);  // x16 of the fourth generation
  std::set<std::string> addresses;
  size_t functions = 0;
  for (const Node& n : m.nodes) {
    if (!n.pci) continue;
    ++functions;
    addresses.insert(n.pci->address.text());
  }
  EXPECT_EQ(functions, 8u);  // 2 switches, 4 GPUs, 2 cards
  EXPECT_EQ(addresses.size(), functions);
}

TEST(HostDescription, TheEmptyHostIsOneNumaNode) {
  const Machine m = host("{}");
  EXPECT_EQ(m.all(Kind::numa).size(), 1u);
  EXPECT_TRUE(m.all(Kind::gpu).empty());
}

// Hosts of 8 H100 with a 400 Gbit/s port each, 50 GB/s; PCIe 5.0 x16 carries 48.
TEST(HostPaths, OneSwitchOnARail) {
  const Cluster c = cluster(R"({"muster_cluster": 1, "hosts": [{"count": 8, "ready": "dgx-h100"}],
                                "fabric": {"rails": true, "hosts_per_leaf": 4, "oversubscription": 2, "switch_latency_us": 0.25}})");
  const HostPaths paths(c);
  const Machine& m = *c.shapes[0];
  const HostPath same = paths.between(0, 3, 1, 3);
  EXPECT_EQ(same.path_class, PathClass::net);
  EXPECT_EQ(same.network, Network::infiniband);
  EXPECT_EQ(m[same.from_port].name, "mlx5_3");
  EXPECT_EQ(m[same.to_port].name, "mlx5_3");
  EXPECT_TRUE(same.same_rail);
  EXPECT_EQ(same.switches, 1);
  EXPECT_DOUBLE_EQ(same.rate.gb_per_s, 48);
  EXPECT_DOUBLE_EQ(same.rate_when_all.gb_per_s, 48);
  // GPU 0 sends on the rail of GPU 5, by way of its own GPU 5.
  const HostPath other = paths.between(0, 0, 1, 5);
  EXPECT_EQ(m[other.from_port].name, "mlx5_5");
  EXPECT_TRUE(other.same_rail);
  EXPECT_EQ(other.switches, 1);
  EXPECT_GT(other.latency_us, same.latency_us);
  const HostPath far = paths.between(0, 3, 4, 3);
  EXPECT_EQ(far.switches, 3);
  EXPECT_DOUBLE_EQ(far.rate.gb_per_s, 48);
  EXPECT_DOUBLE_EQ(far.rate_when_all.gb_per_s, 25);  // 50, oversubscribed by 2
  EXPECT_DOUBLE_EQ(far.latency_us - same.latency_us, 0.5);
  EXPECT_EQ(paths.between(2, 0, 2, 7).path_class, PathClass::nvl);
  EXPECT_EQ(paths.between(2, 7, 2, 7).path_class, PathClass::loc);
  EXPECT_EQ(path_between(c, 0, 3, 4, 3), far);
  EXPECT_THROW(paths.between(0, 0, 8, 0), Error);
  EXPECT_THROW(paths.between(-1, 0, 0, 0), Error);
  EXPECT_THROW(paths.between(0, 8, 1, 0), Error);
}

TEST(HostPaths, PortsAreShared) {
  // 8 GPUs on one 100 Gbit/s port: 12.5 GB/s alone, an eighth when all send.
  const HostPath p = path_between(
      cluster(R"({"muster_cluster": 1, "hosts": [{"count": 2, "ready": "rtx4090-8"}]})"), 0, 1, 1, 1);
  EXPECT_EQ(p.network, Network::roce);
  EXPECT_DOUBLE_EQ(p.rate.gb_per_s, 12.5);
  EXPECT_DOUBLE_EQ(p.rate_when_all.gb_per_s, 12.5 / 8);
  EXPECT_EQ(p.switches, 1);
}

TEST(HostPaths, FabricCanBeSlowerThanPorts) {
  const HostPath p = path_between(
      cluster(
          R"({"muster_cluster": 1, "hosts": [{"count": 2, "ready": "dgx-h100"}], "fabric": {"gbit_per_s": 100}})"),
      0, 1, 1, 1);
  EXPECT_DOUBLE_EQ(p.rate.gb_per_s, 12.5);
}

TEST(HostPaths, NvlinkDomains) {
  const Cluster c = cluster(
      R"({"muster_cluster": 1, "hosts": [{"count": 36, "ready": "gb200-nvl72"}], "fabric": {"hosts_per_nvlink_domain": 18}})");
  const HostPaths paths(c);
  const HostPath in = paths.between(0, 0, 17, 3), out = paths.between(17, 0, 18, 0);
  EXPECT_EQ(in.path_class, PathClass::nvl);
  EXPECT_NEAR(in.rate.gb_per_s, 18 * 40.1, 1e-9);
  EXPECT_EQ(in.from_port, kNone);
  EXPECT_EQ(out.path_class, PathClass::net);
  EXPECT_EQ(paths.neighbourhood(0, 17), Neighbourhood::nvlink_domain);
  EXPECT_EQ(paths.neighbourhood(17, 18), Neighbourhood::leaf);
}

TEST(HostPaths, WithoutPortsThereIsNone) {
  const HostPath p = path_between(
      cluster(R"({"muster_cluster": 1, "hosts": [{"count": 2, "host": {"gpus": 1}}]})"), 0, 0, 1, 0);
  EXPECT_EQ(p.path_class, PathClass::dis);
  EXPECT_EQ(p.rate.gb_per_s, 0);
}

TEST(HostPaths, PeersAreThePathsOfAllPairs) {
  const Cluster c = cluster(
      R"({"muster_cluster": 1, "hosts": [{"count": 5, "ready": "dgx-a100"}, {"count": 4, "ready": "aws-p4d"}, {"count": 2, "ready": "dgx-a100"}],
                                "fabric": {"network": "infiniband", "rails": true, "hosts_per_leaf": 3}})");
  const HostPaths paths(c);
  uint64_t counted = 0;
  for (const HostPathKind& k : paths.peers()) {
    uint64_t found = 0;
    for (int a = 0; a < 11; ++a)
      for (int b = 0; b < 11; ++b) {
        const auto shape = [](int h) { return h >= 5 && h < 9 ? 1 : 0; };
        if (a == b || shape(a) != k.from_shape || shape(b) != k.to_shape ||
            paths.neighbourhood(a, b) != k.hosts)
          continue;
        ++found;
        EXPECT_EQ(paths.between(a, k.gpu, b, k.gpu), k.path);
      }
    EXPECT_EQ(found, k.paths);
    counted += k.paths;
  }
  EXPECT_EQ(counted, 11u * 10 * 8);
}

// 2,048 hosts of 8 GPUs with 8 ports: described, built, and the paths of all ordered pairs of hosts found.
void find_all_of_16384(const std::string& hosts) {
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  struct Answer {
    uint64_t gpus = 0, counted = 0, asked = 0;
    double seconds = 0, seconds_one_by_one = 0, megabytes = 0;
  } answer;
  const pid_t child = fork();
  if (child == 0) {
    using Clock = std::chrono::steady_clock;
    const auto seconds_since = [](Clock::time_point t) {
      return std::chrono::duration<double>(Clock::now() - t).count();
    };
    const auto megabytes = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return static_cast<double>(usage.ru_maxrss) / 1024;
    };
    const double before = megabytes();  // of the tests before this one
    const auto start = Clock::now();
    const Cluster c = cluster("{\"muster_cluster\": 1, \"hosts\": " + hosts +
                              ", \"fabric\": {\"rails\": true, \"hosts_per_leaf\": 32, \"oversubscription\": "
                              "2, \"switch_latency_us\": 0.3}}");
    const HostPaths paths(c);
    answer.gpus = static_cast<uint64_t>(c.gpu_count());
    for (const HostPathKind& k : paths.peers())
      answer.counted += k.path.path_class == PathClass::net ? k.paths : 0;
    answer.seconds = seconds_since(start);
    for (int from = 0; from < 2048; ++from)
      for (int to = 0; to < 2048; ++to)
        for (int gpu = 0; gpu < 8 && from != to; ++gpu)
          answer.asked += paths.between(from, gpu, to, gpu).same_rail;
    answer.seconds_one_by_one = seconds_since(start);
    answer.megabytes = megabytes() - before;
    const bool told = write(report[1], &answer, sizeof answer) == sizeof answer;
    _exit(told ? 0 : 1);
  }
  close(report[1]);
  EXPECT_EQ(read(report[0], &answer, sizeof answer), static_cast<ssize_t>(sizeof answer));
  close(report[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(answer.gpus, 16384u);
  EXPECT_EQ(answer.counted, uint64_t{2048} * 2047 * 8);
  EXPECT_EQ(answer.asked, answer.counted);
  EXPECT_LT(answer.megabytes, 200);
  fmt::print("{} paths counted by kind in {:.3f} s, each asked for in {:.2f} s; {:.1f} MB\n", answer.counted,
             answer.seconds, answer.seconds_one_by_one, answer.megabytes);
}

TEST(HostPaths, DomainsThatCrossLeaves) {
  const Cluster c = cluster(
      R"({"muster_cluster": 1, "hosts": [{"count": 13, "ready": "gb200-nvl72"}], "fabric": {"hosts_per_nvlink_domain": 4, "hosts_per_leaf": 6}})");
  const HostPaths paths(c);
  std::array<uint64_t, 4> expected{}, found{};
  for (int a = 0; a < 13; ++a)
    for (int b = 0; b < 13; ++b) ++expected[static_cast<size_t>(paths.neighbourhood(a, b))];
  expected[static_cast<size_t>(Neighbourhood::host)] = 0;
  for (const HostPathKind& k : paths.peers())
    if (k.gpu == 0) found[static_cast<size_t>(k.hosts)] += k.paths;
  EXPECT_EQ(found, expected);
}

TEST(HostPaths, OfAMillionHosts) {
  const Cluster c = cluster(
      R"({"muster_cluster": 1, "hosts": [{"count": 500000, "ready": "dgx-h100"}, {"count": 500000, "ready": "dgx-a100"}], "fabric": {"hosts_per_leaf": 32}})");
  uint64_t counted = 0;
  for (const HostPathKind& k : HostPaths(c).peers()) counted += k.paths;
  EXPECT_EQ(counted, uint64_t{1'000'000} * 999'999 * 8);
}

TEST(HostPaths, Of16384Gpus) { find_all_of_16384(R"([{"count": 2048, "ready": "dgx-h100"}])"); }
TEST(HostPaths, Of16384GpusOfTwoShapes) {
  find_all_of_16384(R"([{"count": 1024, "ready": "dgx-h100"}, {"count": 1024, "ready": "dgx-a100"}])");
}

}  // namespace
}  // namespace muster::topology
