// Rings on real machines, and beside those that NCCL found there.
#include <sstream>

#include "plan/host_rings.h"
#include "rings_support.h"
#include "support/corpus.h"
#include "topology/nccl_graph.h"
#include "topology/read.h"

namespace muster {
namespace {

using test::corpus;

Cluster read_file(const std::string& name) {
  const auto file = corpus() / name;
  return topology::read_topology(test::text_of(file), file.string());
}

Cluster times(Cluster c, int hosts) {
  c.hosts.resize(1);
  c.hosts[0].count = hosts;
  return c;
}

TEST(RingsCorpus, SoundOnEveryTopology) {
  MUSTER_NEEDS_CORPUS();
  int machines = 0;
  std::vector<std::string> imperfect;  // alone, with less than the roof
  for (const char* folder : {"nccl-topo", "smi-topo", "hwloc"})
    for (const auto& file : test::files_in(corpus() / folder)) {
      Cluster c;
      try {
        c = topology::read_topology(test::text_of(file), file.string());
      } catch (const Error&) {
        continue;  // not a whole topology; topology_read_test looks at these
      }
      if (places(c).empty()) continue;
      ++machines;
      const std::string name = file.filename().string();
      const Rings alone = find_rings(c, places(c));
      expect_sound(c, places(c), alone, name);
      EXPECT_EQ(find_rings(c, places(c)).channels, alone.channels) << name;
      if (c.host_count() == 1) {
        const Machine& m = c.machine_of(0);
        const double roof = HostRings(m, m.all(Kind::gpu), {}, {}).roof();
        EXPECT_LE(alone.gbytes_per_s(), roof * (1 + 1e-6)) << name;
        if (alone.gbytes_per_s() < roof * (1 - 1e-6)) imperfect.push_back(name);
      }
      const Cluster three = times(c, 3);
      for (const int cross_nic : {0, 2}) {
        const Rings together = find_rings(three, places(three), {.cross_nic = cross_nic});
        expect_sound(three, places(three), together,
                     fmt::format("3 hosts of {}, cross_nic {}", name, cross_nic));
        if (cross_nic != 0) continue;
        for (const RingChannel& channel : together.channels)
          for (const Crossing& x : channel.crossings) EXPECT_EQ(x.from_port, x.to_port) << name;
      }
    }
  EXPECT_GE(machines, 80);
  // One of them is Tuolumne's: 27 rings through 12 partitions would take every place there is.
  EXPECT_LE(imperfect.size(), 5u) << fmt::format("{}", fmt::join(imperfect, " "));
}

// What the ring graph of a debug log says: "Pattern 4, crossNic 0, nChannels 2, bw 12.000000/12.000000, ..."
struct Found {
  int channels = 0;
  double gbytes_per_s = 0;  // of each
};
Found found_in(const std::string& log) {
  const auto begin = log.find("Pattern 4,");
  Found f;
  if (begin == std::string::npos) return f;
  const auto channels = log.find("nChannels ", begin), bandwidth = log.find("bw ", begin);
  f.channels = std::stoi(log.substr(channels + 10));
  f.gbytes_per_s = std::stod(log.substr(bandwidth + 3));
  return f;
}

// The distinct orders of "Channel 00/24 :    0   1   3   2", as many ranks as the job has.
std::vector<std::vector<int>> orders_in(const std::string& log, size_t ranks) {
  std::set<std::vector<int>> orders;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const auto channel = line.find("Channel ");
    if (channel == std::string::npos) continue;
    const auto colon = line.find(" : ", channel);
    if (colon == std::string::npos || line.find("->") != std::string::npos) continue;
    std::istringstream numbers(line.substr(colon + 3));
    std::vector<int> order;
    for (int r; numbers >> r;) order.push_back(r);
    if (order.size() == ranks) orders.insert(order);
  }
  return {orders.begin(), orders.end()};
}

// The machine as NCCL saw it, of the lines that one rank wrote below "=== System":
//
//   CPU/1 (1/2/-1)
//   + PCI[24.0] - GPU/81000 (0)
//   + SYS[6.0] - CPU/0-1
//
// A line hangs under the last one whose text begins where its "+" is.
Machine system_in(const std::string& log, const std::string& rank) {
  Machine m;
  std::istringstream lines(log);
  std::vector<std::pair<size_t, int>> open;  // column, node
  std::map<std::string, int> cpus;
  std::vector<std::tuple<int, std::string, double>> between;
  bool inside = false;
  size_t start = 0;
  const auto rate = [](double gb) { return topology::Rate{gb, topology::Source::read}; };
  for (std::string line; std::getline(lines, line);) {
    if (line.find(rank) == std::string::npos) continue;
    if (const auto head = line.find("=== System"); head != std::string::npos) {
      if (inside) break;  // it is told twice
      inside = true;
      start = head;
      continue;
    }
    if (!inside) continue;
    start = line.find("NCCL INFO ") + 10;
    if (line.find("====", start) != std::string::npos) break;
    const std::string text = line.substr(start);
    if (text.rfind("CPU/", 0) == 0) {
      const std::string name = text.substr(0, text.find(' '));
      if (!cpus.count(name))
        cpus[name] = m.add({.kind = Kind::numa, .name = name, .detail = topology::Numa{}});
      open = {{0, cpus[name]}};
      continue;
    }
    const auto plus = text.find("+ "), bracket = text.find('['), dash = text.find(" - ", bracket);
    if (plus == std::string::npos || dash == std::string::npos || text.find_first_not_of(' ') != plus)
      continue;
    const double gb = std::stod(text.substr(bracket + 1));
    const std::string name = text.substr(dash + 3, text.find(' ', dash + 3) - dash - 3);
    while (open.size() > 1 && open.back().first > plus) open.pop_back();
    const int parent = open.back().second;
    topology::Node node{.name = name, .parent = parent};
    if (name.rfind("CPU/", 0) == 0) {
      between.push_back({parent, name, gb});
      continue;
    }
    if (name.rfind("GPU/", 0) == 0) {
      node.kind = Kind::gpu;
      node.detail = topology::Gpu{.index = static_cast<int>(m.all(Kind::gpu).size())};
    } else if (name.rfind("NIC/", 0) == 0) {
      node.kind = Kind::nic;
      node.detail = topology::Nic{};
    } else if (name.rfind("NET/", 0) == 0) {
      node.kind = Kind::port;
      node.detail = topology::Port{.device = name, .gbit_per_s = 8 * gb};
    } else {
      node.kind = Kind::pci_switch;
    }
    const LinkKind kind = node.kind == Kind::port ? LinkKind::network : LinkKind::pcie;
    const int added = m.add(std::move(node));
    m.link({added, parent, kind, 1, rate(gb)});
    open.push_back({dash + 3, added});
  }
  for (const auto& [from, name, gb] : between)
    if (cpus.count(name) && from < cpus[name]) m.link({from, cpus[name], LinkKind::cpu, 1, rate(gb)});
  return m;
}

double ours(const Cluster& c, const std::vector<int>& gpus = {}, int cross_nic = 2) {
  const auto where = places(c, gpus);
  const Rings r = find_rings(c, where, {.cross_nic = cross_nic});
  expect_sound(c, where, r);
  return r.gbytes_per_s();
}

constexpr double kTolerance = 1e-6;

// Logs that show NCCL's search and the graph it worked on: the same graph for ours.
TEST(RingsCorpus, AtLeastWhatNcclFoundOnTheSameGraph) {
  MUSTER_NEEDS_CORPUS();
  struct Row {
    const char *log, *rank;
    int gpus, hosts, channels;
    double gbytes_per_s;  // NCCL's, of a channel
  };
  for (const Row& row : {Row{"2xA100PCIe-external-switch.log", "[0]", 2, 1, 2, 12},
                         Row{"2xA100PCIe-internal.log", "[1]", 2, 1, 2, 12},
                         Row{"softroce-3n-1gpu-vm-numa-1-graph.log", "[0]", 1, 3, 1, 0.24},
                         Row{"ssbandjl-2nx2gpu-trace.log", "[0] ncclTopoPrint", 2, 2, 2, 3}}) {
    SCOPED_TRACE(row.log);
    const std::string log = test::text_of(corpus() / "nccl-logs" / row.log);
    const Found theirs = found_in(log);
    EXPECT_EQ(theirs.channels, row.channels);
    EXPECT_DOUBLE_EQ(theirs.gbytes_per_s, row.gbytes_per_s);
    Machine m = system_in(log, row.rank);
    EXPECT_EQ(m.all(Kind::gpu).size(), static_cast<size_t>(row.gpus));
    topology::validate(m);
    const Cluster c = times(topology::cluster_of(std::move(m)), row.hosts);
    EXPECT_GE(ours(c, {}, 0) * (1 + kTolerance), theirs.channels * theirs.gbytes_per_s);
  }
}

// Logs and graphs of NCCL beside a file of the same machine, or one of its kind.
TEST(RingsCorpus, AtLeastWhatNcclFoundOnSuchAMachine) {
  MUSTER_NEEDS_CORPUS();
  const Cluster h100 = ready("dgx-h100", 2);
  struct Row {
    const char* name;
    Cluster cluster;
    std::vector<int> gpus;
    int channels;
    double gbytes_per_s;  // NCCL's, of a channel
  };
  const std::vector<Row> rows = {
      {"sugarlxn-4x4090-trace.log", read_file("nccl-topo/sugarlxn-nccl_topo.xml"), {}, 1, 15},
      {"simllm-perlmutter-4xA100-torn-lines.log",
       read_file("smi-topo/perlmutter-4xA100-nv4.txt"),
       {},
       12,
       20},
      // Two hosts, a 400 Gbit/s card beside each GPU.
      {"nccl_issue-1189-2of8xH20-graph.log", h100, {0, 1}, 4, 24},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const Found theirs = found_in(test::text_of(corpus() / "nccl-logs" / row.name));
    EXPECT_EQ(theirs.channels, row.channels);
    EXPECT_DOUBLE_EQ(theirs.gbytes_per_s, row.gbytes_per_s);
    EXPECT_GE(ours(row.cluster, row.gpus) * (1 + kTolerance), theirs.channels * theirs.gbytes_per_s);
  }
}

TEST(RingsCorpus, AtLeastWhatNcclsGraphsSay) {
  MUSTER_NEEDS_CORPUS();
  struct Row {
    const char *graph, *machine;
    std::vector<int> gpus;
    int channels;
    double gbytes_per_s;
    double nvlink;  // of one link, as that version counted it; 0: as ours
  };
  for (const Row& row : {Row{"blinkplus-graph.xml", "blinkplus-8xV100.xml", {}, 6, 22, 22},
                         Row{"blinkplus-graph0123.xml", "blinkplus-8xV100.xml", {0, 1, 2, 3}, 4, 21, 21},
                         Row{"yccl-4xA6000-graph.xml", "yccl-4xA6000-2socket.xml", {}, 1, 10, 0},
                         Row{"simllm-8xH200-vastai.xml", "simllm-8xH200-vastai.xml", {}, 12, 30, 0}}) {
    SCOPED_TRACE(row.graph);
    const auto file = corpus() / "nccl-graph" / row.graph;
    const topology::ChannelGraphs graphs = topology::read_nccl_graph(test::text_of(file), file.string());
    ASSERT_FALSE(graphs.graphs.empty());
    const topology::ChannelGraph& ring = graphs.graphs.front();
    EXPECT_EQ(ring.channels.size(), static_cast<size_t>(row.channels));
    EXPECT_DOUBLE_EQ(ring.gb_per_s_intra, row.gbytes_per_s);
    Cluster c = read_file(std::string("nccl-topo/") + row.machine);
    if (row.nvlink > 0) {
      Machine m = c.machine_of(0);
      for (topology::Link& l : m.links)
        if (l.kind == LinkKind::nvlink) l.rate.gb_per_s = l.count * row.nvlink;
      c = topology::cluster_of(std::move(m));
    }
    EXPECT_GE(ours(c, row.gpus) * (1 + kTolerance), row.channels * row.gbytes_per_s);
  }
}

// Logs that show orders and no bandwidth: what these orders can move at once on such a machine, by the same
// paths.
TEST(RingsCorpus, AtLeastWhatNcclsOrdersCanMove) {
  MUSTER_NEEDS_CORPUS();
  const Cluster h100 = read_file("nccl-topo/oci-oke-BM.GPU.H100.8.xml");
  const auto pairs_of_4 = [](const char* gpu, int links) {
    return cluster(
        fmt::format(R"({{"host": {{"gpus": 4, "gpu": "{}", "nvlinks_per_gpu": {}}}}})", gpu, 3 * links));
  };
  struct Row {
    const char* log;
    Cluster cluster;
    std::vector<int> gpus;
    size_t orders;  // distinct
  };
  const std::vector<Row> rows = {
      {"jeanzay-1nx4V100-32GB.log", pairs_of_4("V100", 2), {}, 6},
      {"odissei-1nx4H100.log", pairs_of_4("H100", 6), {}, 6},
      {"wayne-2of8xH100-Ring.log", h100, {0, 1}, 1},
      {"wayne-4of8xH100-Ring.log", h100, {0, 1, 2, 3}, 1},
      {"wayne-6of8xH100-Ring.log", h100, {0, 1, 2, 3, 4, 5}, 1},
      {"yccl-4xA6000.log", read_file("nccl-topo/yccl-4xA6000-2socket.xml"), {}, 1},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.log);
    const auto where = places(row.cluster, row.gpus);
    const auto orders = orders_in(test::text_of(corpus() / "nccl-logs" / row.log), where.size());
    EXPECT_EQ(orders.size(), row.orders);
    Loads loads(row.cluster, where);
    for (const auto& order : orders) loads.add({order, 0, {}}, 1);
    const double theirs = static_cast<double>(orders.size()) / loads.worst().share;
    EXPECT_GE(ours(row.cluster, row.gpus) * (1 + kTolerance), theirs);
  }
}

// Several hosts, orders only: NCCL's distinct rings can't move more than each a NIC's rate.
TEST(RingsCorpus, AtLeastANicForEachOfNcclsRings) {
  MUSTER_NEEDS_CORPUS();
  const auto four_a100 = [](int nics) {
    return cluster(
        fmt::format(R"({{"count": 2, "host": {{"gpus": 4, "gpu": "A100", "nvlinks_per_gpu": 12, "nics": {},
        "network": "ethernet", "gbit_per_s": 200, "numa_nodes": 4, "packages": 1, "cpu": "epyc", "pci_generation": 4}}}})",
                    nics));
  };
  struct Row {
    const char* log;
    Cluster cluster;
    size_t rings;
    double nic;
  };
  const std::vector<Row> rows = {
      {"nebius-2nx8H100-mlperf-sd.log", ready("dgx-h100", 2), 8, 48},
      {"perlmutter-2nx4A100.log", four_a100(4), 4, 24},
      {"polaris-pytorch-ofi.log", four_a100(2), 2, 24},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.log);
    const auto orders =
        orders_in(test::text_of(corpus() / "nccl-logs" / row.log), places(row.cluster).size());
    EXPECT_EQ(orders.size(), row.rings);
    EXPECT_GE(ours(row.cluster) * (1 + kTolerance), static_cast<double>(row.rings) * row.nic);
  }
}

}  // namespace
}  // namespace muster
