// Rings on machines whose best rings are known from theory. Rates are those of topology/rates.h: 20 GB/s per
// NVLink of A100 (22.2 of V100), 20.6 of H100; PCIe x16 12 (generation 3), 24, 48; 10 between Skylake sockets.
#include "rings_support.h"

#include "muster/types.h"

namespace muster {
namespace {

constexpr double kTolerance = 1e-6;

Rings sound_rings(const Cluster& c, const std::vector<RankPlace>& where, const RingSearch& search = {}) {
  Rings r = find_rings(c, where, search);
  expect_sound(c, where, r);
  return r;
}

std::set<std::vector<int>> orders(const Rings& r) {
  std::set<std::vector<int>> all;
  for (const RingChannel& c : r.channels) all.insert(c.ranks);
  return all;
}

bool neighbours(const RingChannel& c, int a, int b) {
  for (size_t i = 0; i < c.ranks.size(); ++i) {
    const int x = c.ranks[i], y = c.ranks[(i + 1) % c.ranks.size()];
    if ((x == a && y == b) || (x == b && y == a)) return true;
  }
  return false;
}

// Each GPU has 6 NVLinks, so no rings move more than 6 * 22.2 GB/s, and 6 rings that use every link both ways
// do.
TEST(Rings, Dgx1IsPackedPerfectly) {
  const Cluster c = ready("dgx-1v");
  const auto where = places(c);
  const Rings r = sound_rings(c, where);
  EXPECT_NEAR(r.gbytes_per_s(), 6 * 22.2, kTolerance);
  EXPECT_EQ(r.channels.size(), 6u);
  EXPECT_EQ(r.inside, PathClass::nvl);
  Loads loads(c, where);
  for (const RingChannel& channel : r.channels) loads.add(channel, channel.gbytes_per_s);
  EXPECT_EQ(loads.all().size(), 2u * 16) << "16 pairs of GPUs have NVLinks";
  for (const auto& [key, load] : loads.all())
    EXPECT_NEAR(load, loads.capacity(std::get<0>(key), std::get<1>(key)), kTolerance);
}

// With two rings those of the double links are best: there and back, 44.4 GB/s each.
TEST(Rings, FewChannelsTakeTheWideLinks) {
  const Cluster c = ready("dgx-1v");
  const Rings r = sound_rings(c, places(c), {.most_channels = 2});
  EXPECT_EQ(r.channels.size(), 2u);
  EXPECT_NEAR(r.gbytes_per_s(), 2 * 44.4, kTolerance);
}

// GPUs 0 to 3 of a DGX-1: GPU 0 and 1 have 4 links to the others, so 4 rings of one link each.
TEST(Rings, HalfOfADgx1) {
  const Cluster c = ready("dgx-1v");
  const Rings r = sound_rings(c, places(c, {0, 1, 2, 3}));
  EXPECT_NEAR(r.gbytes_per_s(), 4 * 22.2, kTolerance);
  EXPECT_EQ(r.inside, PathClass::nvl);
}

TEST(Rings, NvswitchGivesEachGpuAllItsLinks) {
  EXPECT_NEAR(sound_rings(ready("dgx-a100"), places(ready("dgx-a100"))).gbytes_per_s(), 12 * 20, kTolerance);
  const Cluster c = ready("dgx-h100");
  EXPECT_NEAR(sound_rings(c, places(c)).gbytes_per_s(), 18 * 20.6, kTolerance);
  EXPECT_NEAR(sound_rings(c, places(c, {1, 3, 4, 6})).gbytes_per_s(), 18 * 20.6, kTolerance);
  EXPECT_NEAR(sound_rings(c, places(c, {5, 2})).gbytes_per_s(), 18 * 20.6, kTolerance);
}

TEST(Rings, AtLeastSoManyChannels) {
  const Cluster c = ready("dgx-h100");
  const Rings r = sound_rings(c, places(c), {.least_channels = 16});
  EXPECT_EQ(r.channels.size(), 16u);
  EXPECT_NEAR(r.gbytes_per_s(), 18 * 20.6, kTolerance);
  const Cluster dgx1 = ready("dgx-1v");
  EXPECT_EQ(sound_rings(dgx1, places(dgx1), {.least_channels = 8}).channels.size(), 12u)
      << "each of 6 rings equally often";
  EXPECT_EQ(sound_rings(dgx1, places(dgx1), {.most_channels = 8, .least_channels = 8}).channels.size(), 6u);
}

TEST(Rings, TwoGpusUseTheirLinksBothWays) {
  for (const int links : {1, 2, 3, 4, 12}) {
    const Cluster c = cluster(
        fmt::format(R"({{"host": {{"gpus": 2, "gpu": "A100", "nvlink_pairs": [[0, 1, {}]]}}}})", links));
    EXPECT_NEAR(sound_rings(c, places(c)).gbytes_per_s(), 20 * links, kTolerance) << links;
  }
}

// Four GPUs, four NVLinks between each two. Each has 12, and the 6 rings there are, with half a pair's links
// each, use them all; two rings at full pairs would move 160.
TEST(Rings, FourGpusJoinedByPairs) {
  const Cluster c = cluster(R"({"host": {"gpus": 4, "gpu": "A100", "nvlinks_per_gpu": 12}})");
  const Rings r = sound_rings(c, places(c));
  EXPECT_NEAR(r.gbytes_per_s(), 12 * 20, kTolerance);
  EXPECT_EQ(orders(r).size(), 6u);
}

// All to all among 8: the 56 directed pairs fall into 7 rings (Tillson, 1980: for every n but 4 and 6).
TEST(Rings, EightGpusJoinedByPairs) {
  std::string pairs;
  for (int a = 0; a < 8; ++a)
    for (int b = a + 1; b < 8; ++b) pairs += fmt::format("{}[{}, {}, 1]", pairs.empty() ? "" : ", ", a, b);
  const Cluster c =
      cluster(fmt::format(R"({{"host": {{"gpus": 8, "gpu": "A100", "nvlink_pairs": [{}]}}}})", pairs));
  EXPECT_NEAR(sound_rings(c, places(c)).gbytes_per_s(), 7 * 20, kTolerance);
}

// A ring comes from one GPU and goes to another, so each passes at least one of the single links between GPU
// 0 and GPUs 2 and 3, of which there are 4, counted by direction. The other 4 links of GPU 0 would carry
// more.
TEST(Rings, NeighboursOnARingDiffer) {
  const Cluster c = cluster(
      R"({"host": {"gpus": 4, "gpu": "A100", "nvlink_pairs": [[0,1,4], [0,2,1], [0,3,1], [1,2,4], [1,3,4], [2,3,4]]}})");
  EXPECT_NEAR(sound_rings(c, places(c)).gbytes_per_s(), 4 * 20, kTolerance);
}

// Two sockets, two PCI switches under each, two GPUs under each: generation 3 gives 12, the sockets 10.
TEST(Rings, PcieBoxCrossesTheSocketsTwice) {
  const Cluster c = cluster(
      R"({"host": {"gpus": 8, "gpu": "A100", "numa_nodes": 2, "cpu": "skylake", "pci_generation": 3, "gpus_per_pci_switch": 2}})");
  // Ranks in an order that says nothing about the switches.
  const std::vector<int> gpus = {0, 4, 2, 6, 1, 5, 3, 7};
  const auto where = places(c, gpus);
  const Rings r = sound_rings(c, where);
  EXPECT_EQ(r.inside, PathClass::sys);
  EXPECT_NEAR(r.gbytes_per_s(), 10, kTolerance);
  for (const RingChannel& channel : r.channels) {
    Loads one(c, where);
    one.add(channel, 1);
    EXPECT_EQ(one.sum(LinkKind::cpu), 2) << "once there, once back";
    for (const auto& [a, b] : {std::pair{0, 4}, {1, 5}, {2, 6}, {3, 7}})
      EXPECT_TRUE(neighbours(channel, a, b)) << a << " " << b;
  }
}

// Two pairs of 4 NVLinks each, joined by PCIe of generation 4. A ring leaves each pair by one GPU and enters
// it by the other; the same ring backwards uses the other directions: 2 * 24.
TEST(Rings, IslandsOfNvlink) {
  const Cluster c = cluster(
      R"({"host": {"gpus": 4, "gpu": "A6000", "nvlink_pairs": [[0,2,4], [1,3,4]], "numa_nodes": 1, "cpu": "epyc", "pci_generation": 4}})");
  const Rings r = sound_rings(c, places(c));
  EXPECT_NEAR(r.gbytes_per_s(), 2 * 24, kTolerance);
  for (const RingChannel& channel : r.channels) {
    EXPECT_TRUE(neighbours(channel, 0, 2));
    EXPECT_TRUE(neighbours(channel, 1, 3));
  }
}

std::set<int> ports_left(const Rings& r, const std::vector<RankPlace>& where, int host) {
  std::set<int> ports;
  for (const RingChannel& c : r.channels)
    for (const Crossing& x : c.crossings)
      if (where[static_cast<size_t>(x.from)].host == host) ports.insert(x.from_port);
  return ports;
}

// 8 hosts of 8 GPUs and 8 NICs: a ring per rail. A ring whose NIC's PCIe gives 24 of its 25 GB/s; the GPUs'
// 12 NVLinks carry 240.
TEST(Rings, OneRingPerRail) {
  const Cluster c = ready("dgx-a100", 8, R"({"network": "infiniband", "rails": true})");
  const auto where = places(c);
  for (const int cross_nic : {0, 2}) {
    const Rings r = sound_rings(c, where, {.cross_nic = cross_nic});
    EXPECT_EQ(r.channels.size(), 8u);
    EXPECT_NEAR(r.gbytes_per_s(), 8 * 24, kTolerance);
    EXPECT_FALSE(r.cross_nic);
    EXPECT_EQ(r.outside, PathClass::pix) << "both ends of a ring are beside its NIC";
    for (int h = 0; h < 8; ++h) EXPECT_EQ(ports_left(r, where, h).size(), 8u);
    for (const RingChannel& channel : r.channels)
      for (const Crossing& x : channel.crossings) EXPECT_EQ(x.from_port, x.to_port);
  }
}

// H100: 8 NICs of 48 would be 384. A ring that leaves by the port of the GPU where it came in passes that
// GPU's NVLinks again, and so all 18 * 20.6 of each GPU are needed; one that leaves by another GPU's port
// doesn't need them at its ends.
TEST(Rings, ChangingTheRailSparesNvlinks) {
  const Cluster c = ready("dgx-h100", 4, R"({"network": "infiniband", "rails": true})");
  const auto where = places(c);
  EXPECT_NEAR(sound_rings(c, where, {.cross_nic = 0}).gbytes_per_s(), 18 * 20.6, kTolerance);
  for (const int cross_nic : {1, 2}) {
    const Rings r = sound_rings(c, where, {.cross_nic = cross_nic});
    EXPECT_NEAR(r.gbytes_per_s(), 8 * 48, kTolerance);
    EXPECT_TRUE(r.cross_nic);
    for (const RingChannel& channel : r.channels)
      for (const Crossing& x : channel.crossings)
        EXPECT_EQ(x.from_port, x.to_port) << "what leaves on a rail comes in on it";
  }
}

TEST(Rings, EachNicIsEnteredAtTheNearestGpu) {
  const Cluster c = ready("dgx-1v", 2);
  const auto where = places(c);
  const Rings r = sound_rings(c, where);
  EXPECT_NEAR(r.gbytes_per_s(), 4 * 12, kTolerance) << "4 NICs behind PCIe of generation 3";
  const Machine& m = c.machine_of(0);
  for (const RingChannel& channel : r.channels)
    for (const Crossing& x : channel.crossings) {
      const int gpu = m.all(Kind::gpu)[static_cast<size_t>(where[static_cast<size_t>(x.to)].gpu)];
      EXPECT_EQ(topology::paths_from(m, gpu)[static_cast<size_t>(x.to_port)].path_class, PathClass::pix);
    }
}

TEST(Rings, TwoNicsOrOne) {
  const auto host = [](int gpus, int nics) {
    return cluster(fmt::format(
        R"({{"count": 4, "host": {{"gpus": {}, "gpu": "A100", "nvswitches": 6, "nvlinks_per_gpu": 12, "nics": {},
        "network": "infiniband", "gbit_per_s": 100, "numa_nodes": 2, "cpu": "skylake", "pci_generation": 4, "gpus_per_pci_switch": 2}}}})",
        gpus, nics));
  };
  const Cluster two = host(8, 2), one = host(4, 1);
  const Rings of_two = sound_rings(two, places(two)), of_one = sound_rings(one, places(one));
  EXPECT_NEAR(of_two.gbytes_per_s(), 2 * 12.5, kTolerance);
  EXPECT_EQ(ports_left(of_two, places(two), 1).size(), 2u);
  EXPECT_NEAR(of_one.gbytes_per_s(), 12.5, kTolerance);
  EXPECT_EQ(of_one.channels.size(), 1u);
}

// Without NVLink and with a NIC per socket: a ring that comes back to the NIC it came in by crosses the
// sockets twice, one that leaves by the other NIC once, so two of these fit in opposite directions.
TEST(Rings, ChangingTheNicSparesTheSockets) {
  const Cluster c = cluster(
      R"({"count": 2, "host": {"gpus": 4, "gpu": "L40S", "nics": 2, "network": "roce", "gbit_per_s": 100, "numa_nodes": 2,
          "cpu": "skylake", "pci_generation": 4}})");
  EXPECT_NEAR(sound_rings(c, places(c), {.cross_nic = 0}).gbytes_per_s(), 10, kTolerance);
  EXPECT_NEAR(sound_rings(c, places(c), {.cross_nic = 2}).gbytes_per_s(), 20, kTolerance);
}

TEST(Rings, OneGpuPerHost) {
  const Cluster c = ready("dgx-h100", 5);
  const auto where = places(c, {3});
  const Rings r = sound_rings(c, where);
  EXPECT_NEAR(r.gbytes_per_s(), 48, kTolerance) << "its PCIe";
  EXPECT_EQ(r.channels.front().ranks, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(Rings, HostsOfDifferentShapesAndSizes) {
  const Cluster c =
      cluster(R"({"count": 2, "ready": "dgx-h100"}, {"ready": "dgx-a100"}, {"ready": "rtx4090-8"})",
              R"({"gbit_per_s": 100})");
  // Ranks dealt out to hosts in turns: 8, 7, 3 and 1 of them.
  std::vector<RankPlace> where;
  for (int gpu = 0; gpu < 8; ++gpu)
    for (int h = 0; h < 4; ++h)
      if (gpu < std::vector{8, 7, 3, 1}[static_cast<size_t>(h)]) where.push_back({h, gpu});
  const Rings r = sound_rings(c, where);
  EXPECT_NEAR(r.gbytes_per_s(), 12.5, kTolerance) << "the one NIC of the last host";
  EXPECT_FALSE(r.fallback);
}

TEST(Rings, NvlinkDomains) {
  const std::string fabric = R"({"hosts_per_nvlink_domain": 18, "network": "infiniband", "rails": true})";
  const Cluster one = ready("gb200-nvl72", 18, fabric), two = ready("gb200-nvl72", 36, fabric);
  const Rings inside = sound_rings(one, places(one));
  EXPECT_NEAR(inside.gbytes_per_s(), 18 * 40.1, kTolerance);
  const Rings r = sound_rings(two, places(two));
  EXPECT_NEAR(r.gbytes_per_s(), 4 * 48, kTolerance);
  for (const RingChannel& channel : r.channels)
    EXPECT_EQ(std::count_if(channel.crossings.begin(), channel.crossings.end(),
                            [](const Crossing& x) { return x.from_port != kNone; }),
              2)
        << "NICs only where the domain changes";
}

// Leaves of 2 hosts whose uplinks have a quarter of what comes in: half a port's rate.
TEST(Rings, OversubscribedLeaves) {
  const Cluster c =
      ready("dgx-a100", 8, R"({"network": "infiniband", "hosts_per_leaf": 2, "oversubscription": 4})");
  EXPECT_NEAR(sound_rings(c, places(c)).gbytes_per_s(), 8 * 12.5, kTolerance);
}

TEST(Rings, ThousandsOfHosts) {
  const Cluster c = ready("dgx-h100", 2048, R"({"network": "infiniband", "rails": true})");
  const auto where = places(c);
  const Rings r = find_rings(c, where);
  EXPECT_NEAR(r.gbytes_per_s(), 8 * 48, kTolerance);
  for (const RingChannel& channel : r.channels) {
    EXPECT_EQ(std::set<int>(channel.ranks.begin(), channel.ranks.end()).size(), where.size());
    EXPECT_EQ(channel.crossings.size(), 2048u);
  }
}

// Every host has other members: as many searches, which share the steps.
TEST(Rings, ManyKindsOfHosts) {
  const Cluster c = ready("dgx-h100", 255);
  std::vector<RankPlace> where;
  for (int h = 0; h < 255; ++h)
    for (int gpu = 0; gpu < 8; ++gpu)
      if ((h + 1) >> gpu & 1) where.push_back({h, gpu});
  const Rings r = sound_rings(c, where);
  EXPECT_FALSE(r.fallback);
  EXPECT_NEAR(r.gbytes_per_s(), 48, kTolerance) << "the PCIe of a GPU that is alone on its host";
}

TEST(Rings, SameEachTime) {
  for (const char* name : {"dgx-1v", "dgx-h100", "rtx4090-8"}) {
    const Cluster a = ready(name, 3);
    const Rings first = find_rings(a, places(a));
    const Cluster b = ready(name, 3);  // at other addresses
    const Rings second = find_rings(b, places(b));
    EXPECT_EQ(first.channels, second.channels) << name;
  }
}

TEST(Rings, WithoutAnyLink) {
  Cluster c = topology::cluster_of(Machine{});
  Machine m;
  for (int i = 0; i < 3; ++i)
    m.add({.kind = Kind::gpu, .name = fmt::format("GPU{}", i), .detail = topology::Gpu{.index = i}});
  c.shapes[0] = std::make_shared<const Machine>(m);
  const Rings r = sound_rings(c, places(c));
  EXPECT_TRUE(r.fallback);
  EXPECT_EQ(r.channels.size(), 1u);
  EXPECT_EQ(r.channels[0].ranks, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(r.gbytes_per_s(), 0);
}

TEST(Rings, RanksOnHostMemory) {
  const Cluster one = ready("dgx-h100"),
                two = cluster(
                    R"({"count": 2, "host": {"gpus": 0, "nics": 1, "gbit_per_s": 100, "network": "roce",
      "numa_nodes": 2, "cpu": "skylake", "pci_generation": 4}})");
  const std::vector<RankPlace> same_node = {{0, kNone}};
  EXPECT_EQ(find_rings(one, same_node).gbytes_per_s(), std::numeric_limits<double>::infinity());
  const Rings r = sound_rings(two, {{0, kNone}, {0, kNone}, {1, kNone}, {1, kNone}, {1, kNone}});
  EXPECT_NEAR(r.gbytes_per_s(), 10, kTolerance) << "from one socket to the other and back to the NIC";
}

TEST(Rings, AThousandRanksOnAHost) {
  const Cluster c = cluster(R"({"host": {"gpus": 0, "numa_nodes": 2, "cpu": "skylake"}})");
  const Rings r = sound_rings(c, std::vector<RankPlace>(1000, {0, kNone}));
  EXPECT_NEAR(r.gbytes_per_s(), 10, kTolerance) << "each socket's ranks one after the other";
}

TEST(Rings, SeveralRanksPerGpu) {
  const Cluster c = ready("dgx-h100");
  const Rings r = sound_rings(c, {{0, 0}, {0, 1}, {0, 0}, {0, 1}});
  EXPECT_NEAR(r.gbytes_per_s(), 18 * 20.6, kTolerance) << "the GPU's links are passed once in each direction";
}

TEST(Rings, NoRanksNoRings) { EXPECT_TRUE(find_rings(ready("dgx-1v"), {}).channels.empty()); }

TEST(Rings, PlacesThatArentThere) {
  const Cluster c = ready("dgx-1v");
  const auto refusal = [&](std::vector<RankPlace> where, RingSearch search = {}) {
    try {
      find_rings(c, where, search);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Result::invalid_argument);
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal({{0, 0}, {1, 0}}),
              testing::HasSubstr("rank 1 is said to be on host 1, and the cluster has 1"));
  EXPECT_THAT(refusal({{0, 8}}),
              testing::HasSubstr("rank 0 is said to have GPU 8 of host 0, which has 8 GPUs"));
  EXPECT_THAT(refusal({{0, 0}}, {.most_channels = 0}), testing::HasSubstr("most_channels 0"));
  EXPECT_THAT(refusal({{0, 0}}, {.cross_nic = 3}), testing::HasSubstr("cross_nic 3"));
}

}  // namespace
}  // namespace muster
