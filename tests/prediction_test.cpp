// Prices of collectives on GPUs: formulas by hand, and what must hold whatever the numbers are.
#include "plan/prediction.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "plan/bandwidth.h"
#include "topology/read.h"

namespace muster {
namespace {

topology::Cluster cluster(const std::string& hosts, const std::string& fabric = "") {
  return topology::read_topology(fmt::format(R"({{"muster_cluster": 1, "hosts": [{}]{}}})", hosts,
                                             fabric.empty() ? "" : ", \"fabric\": " + fabric),
                                 "test");
}
Links links_of_cluster(const topology::Cluster& c) { return links_of(c, all_gpus(c)); }
Links links_of_ready(const char* host, int count) {
  return links_of_cluster(
      cluster(fmt::format(R"({{"count": {}, "name": "node", "ready": "{}"}})", count, host)));
}

CallShape call_of(Coll coll, uint64_t bytes, int nranks) {
  CallShape call{coll, DataType::float32, RedOp::sum, 0, 1};
  call.count = count_of(call, bytes, nranks);
  return call;
}

constexpr Coll kCollectives[] = {Coll::all_reduce, Coll::reduce_scatter, Coll::all_gather, Coll::broadcast,
                                 Coll::reduce,     Coll::all_to_all,     Coll::gather,     Coll::scatter};

std::vector<Links> many_links() {
  std::vector<Links> all;
  for (const char* host : {"dgx-1v", "dgx-a100", "dgx-h100", "aws-p4d", "rtx4090-8", "gb200-nvl72"})
    for (const int hosts : {1, 2, 3, 16}) all.push_back(links_of_ready(host, hosts));
  return all;
}

// A DGX H100's links as its parts say: 18 NVLinks of 20.6 GB/s a GPU, 8 ports of 400 Gbit/s of which 91 % are
// reached.
TEST(Links, OfADgxH100) {
  const Links l = links_of_ready("dgx-h100", 2);
  EXPECT_EQ(l.spread.ranks, 16);
  EXPECT_EQ(l.spread.hosts, 2);
  EXPECT_EQ(l.spread.per_host, 8);
  EXPECT_EQ(l.near, Near::nvlink);
  EXPECT_EQ(l.sm, 90);
  EXPECT_TRUE(l.switched);
  EXPECT_NEAR(l.rings, 18 * 20.6, 1e-6);
  EXPECT_NEAR(l.exchange, 18 * 20.6, 1e-6);
  EXPECT_NEAR(l.ports, 8 * 50 * 0.91, 1e-6);
  EXPECT_EQ(l.network, topology::Network::infiniband);
}

TEST(Links, OneCardForEightGpus) {
  const Links l = links_of_ready("rtx4090-8", 2);
  EXPECT_EQ(l.near, Near::cpu);
  EXPECT_FALSE(l.switched);
  EXPECT_NEAR(l.ports, 12.5 * 0.74, 1e-6);  // GPU and card meet at the host bridge
}

// Ring all-reduce of D bytes on n GPUs: base + 2 (n - 1) messages; 2 (n - 1) / n D bytes at the rings'
// bandwidth.
TEST(Price, OfARingByHand) {
  const Links l = links_of_ready("dgx-a100", 1);
  const Constants& k = Constants::built_in();
  const double data = 1 << 30;
  const Price p = gpu_price(*work_of(*find_algorithm(Coll::all_reduce, "ring"), l.spread, data), l,
                            Protocol::simple, k, 8);
  EXPECT_NEAR(p.launch_us, 8 * k("gpu.launch"), 1e-9);
  EXPECT_NEAR(p.latency_us, 8.4 + 14 * k("gpu.simple.nvlink.sm80"), 1e-9);
  const double transfer = 1.75 * data / (12 * 20.0) / 1e3;
  EXPECT_NEAR(p.transfer_us, transfer, 1e-6 * transfer);
  EXPECT_NEAR(p.ramp_us, k("gpu.ramp") * std::sqrt(transfer), 1e-6 * transfer);
  EXPECT_EQ(p.bound, Bound::near_links);
}

// Among hosts the same ring is one flow: the ports of a host decide where they carry less than the links.
TEST(Price, OfARingAmongHosts) {
  const Links l = links_of_ready("aws-p4d", 2);  // 4 ports of 100 Gbit/s
  const double data = 1 << 30;
  const Price p = gpu_price(*work_of(*find_algorithm(Coll::all_reduce, "ring"), l.spread, data), l,
                            Protocol::simple, Constants::built_in());
  EXPECT_NEAR(p.transfer_us, 2 * 15.0 / 16 * data / l.ports / 1e3, 1e-3);
  EXPECT_EQ(p.bound, Bound::ports);
  EXPECT_EQ(p.launch_us, 0);  // one process per GPU: hidden behind the call before
}

TEST(Prediction, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Coll::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(Coll::all_gather, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Coll::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Coll::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Coll::broadcast, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Coll::reduce, 8), 1);
}

// No size cliffs: more bytes never take less time, neither by one candidate nor by the best.
TEST(Prediction, IsMonotoneInSize) {
  for (const Links& l : many_links())
    for (const Coll coll : kCollectives) {
      double before = 0;
      for (uint64_t bytes = 8; bytes <= uint64_t{16} << 30; bytes = bytes * 3 / 2) {
        const Prediction p = predict(call_of(coll, bytes, l.spread.ranks), l);
        ASSERT_NE(p.best(), nullptr) << name_of(coll);
        EXPECT_GE(p.best()->price.us(), before * (1 - 1e-12)) << name_of(coll) << " of " << bytes;
        before = p.best()->price.us();
      }
    }
}

TEST(Prediction, NothingBeatsTheRoof) {
  for (const Links& l : many_links())
    for (const Coll coll : kCollectives)
      for (const uint64_t bytes : {uint64_t{1} << 10, uint64_t{1} << 20, uint64_t{1} << 30}) {
        const Prediction p = predict(call_of(coll, bytes, l.spread.ranks), l);
        for (const Candidate& c : p.candidates)
          if (c.known) {
            EXPECT_GE(c.price.us(), p.roof.us * (1 - 1e-9))
                << name_of(coll) << " by " << c.algorithm << " of " << bytes << " on " << l.spread.hosts
                << " hosts";
          }
      }
}

// Where hosts are uneven, and where each GPU isn't joined with each.
TEST(Prediction, NothingBeatsTheRoofOnIrregularMachinesEither) {
  const std::string one =
      R"({"name": "small", "host": {"gpus": 1, "gpu": "H100", "nics": 1, "network": "infiniband", "gbit_per_s": 400, "pci_generation": 5}})";
  std::vector<Links> all;
  all.push_back(links_of_cluster(cluster(R"({"name": "large", "ready": "dgx-h100"}, )" + one)));
  const topology::Cluster two = cluster(R"({"count": 2, "name": "node", "ready": "dgx-h100"})");
  for (const size_t ranks : {9u, 11u, 15u}) {
    std::vector<RankPlace> places = all_gpus(two);
    places.resize(ranks);
    all.push_back(links_of(two, places));
  }
  for (const Links& l : all)
    for (const Coll coll : kCollectives)
      for (const uint64_t bytes : {uint64_t{1} << 10, uint64_t{1} << 20, uint64_t{1} << 30}) {
        const Prediction p = predict(call_of(coll, bytes, l.spread.ranks), l);
        for (const Candidate& c : p.candidates)
          if (c.known) {
            EXPECT_TRUE(std::isfinite(c.price.us())) << name_of(coll) << " by " << c.algorithm;
            EXPECT_GE(c.price.us(), p.roof.us * (1 - 1e-9))
                << name_of(coll) << " by " << c.algorithm << " of " << bytes << " on " << l.spread.ranks
                << " ranks";
          }
      }
}

// The smallest host has as many rails as ranks, each with the more to do: prices beside simulations of what
// programs do there.
TEST(Prediction, HierarchicalOnUnevenHosts) {
  const topology::Cluster two =
      cluster(R"({"count": 2, "name": "node", "ready": "dgx-h100"})", R"({"rails": true})");
  const Constants& constants = Constants::built_in();
  for (const size_t ranks : {9u, 12u, 15u, 16u})
    for (const Coll coll : {Coll::all_reduce, Coll::reduce_scatter, Coll::all_gather, Coll::all_to_all}) {
      std::vector<RankPlace> places = all_gpus(two);
      places.resize(ranks);
      const Links l = links_of(two, places);
      const Algorithm& algorithm = *find_algorithm(coll, "hierarchical");
      const CallShape call = call_of(coll, uint64_t{256} << 20, static_cast<int>(ranks));
      const double data = data_bytes(coll, static_cast<int>(ranks), call.count, size_of(call.type));
      const Price price = gpu_price(*work_of(algorithm, l.spread, data), l, Protocol::simple, constants);
      std::vector<int> hosts;
      for (const RankPlace& p : places) hosts.push_back(p.host);
      const Placement placement = placement_of(hosts);
      const Simulation s = simulate(
          [&](int rank) {
            return make_program(algorithm, {static_cast<int>(ranks), rank, 0, &placement}, 8);
          },
          {call.count, size_of(call.type), 512 << 10, 3}, SimulatedNetwork(two, places),
          sim_costs(l, Protocol::simple, constants));
      // Simulations don't know the ramp. At worst, a reduce-scatter of 8 and 4 ranks waits half as long again.
      const double ratio = s.time_us / (price.us() - price.ramp_us);
      EXPECT_GT(ratio, 0.7) << name_of(coll) << " of " << ranks;
      EXPECT_LT(ratio, 1.6) << name_of(coll) << " of " << ranks;
    }
}

// Everybody to everybody crosses the sockets far more often than a ring does.
TEST(Prediction, RingsWhereLinksAreShared) {
  for (
      const char* host :
      {R"({"gpus": 8, "gpu": "A100", "numa_nodes": 2, "cpu": "epyc", "pci_generation": 4, "gpus_per_pci_switch": 2})",
       R"({"gpus": 4, "gpu": "A40", "numa_nodes": 2, "cpu": "skylake", "pci_generation": 4, "host_bridges": 4})"}) {
    const Links l = links_of_cluster(cluster(fmt::format(R"({{"name": "node", "host": {}}})", host)));
    EXPECT_LT(l.exchange, l.rings) << host;
    EXPECT_EQ(predict(call_of(Coll::all_reduce, 1 << 30, l.spread.ranks), l).best()->algorithm, "ring")
        << host;
  }
  // 8 GPUs, 4 on each socket: of the 7 others of each 4 are behind the link between sockets, 16 pairs each
  // way.
  const Links l = links_of_cluster(cluster(
      R"({"name": "node", "host": {"gpus": 8, "gpu": "A100", "numa_nodes": 2, "cpu": "skylake", "pci_generation": 4, "gpus_per_pci_switch": 2}})"));
  EXPECT_NEAR(l.exchange, 7 * 10.0 / 16, 1e-9);
}

TEST(Links, HostsOfOneNvlinkDomainAreOne) {
  const Links l = links_of_cluster(cluster(R"({"count": 18, "name": "node", "ready": "gb200-nvl72"})",
                                           R"({"hosts_per_nvlink_domain": 18})"));
  EXPECT_EQ(l.spread.hosts, 1);
  EXPECT_EQ(l.spread.per_host, 72);
  EXPECT_NEAR(l.rings, 721.8, 0.1);
}

TEST(Links, NoPortsAreMadeUp) {
  try {
    links_of_cluster(cluster(R"({"count": 2, "name": "node", "host": {"gpus": 4, "gpu": "L40S"}})"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("without network ports"), std::string::npos) << e.what();
  }
}

// All that leaves a leaf shares its uplinks; a ring leaves each leaf once.
TEST(Price, OfOversubscribedUplinks) {
  const char* const hosts = R"({"count": 8, "name": "node", "ready": "dgx-h100"})";
  const Links full = links_of_cluster(cluster(hosts, R"({"hosts_per_leaf": 4})"));
  const Links half = links_of_cluster(cluster(hosts, R"({"hosts_per_leaf": 4, "oversubscription": 2})"));
  const auto price = [](const Links& l, Coll coll, const char* algorithm) {
    return gpu_price(*work_of(*find_algorithm(coll, algorithm), l.spread, 1 << 30), l, Protocol::simple,
                     Constants::built_in())
        .transfer_us;
  };
  EXPECT_NEAR(price(half, Coll::all_to_all, "pairwise") - price(full, Coll::all_to_all, "pairwise"),
              8.0 * 56 / 64 * (1 << 30) / full.ports / 1e3, 1);
  EXPECT_EQ(price(half, Coll::all_reduce, "ring"), price(full, Coll::all_reduce, "ring"));
}

// One GPU has its share of the host's ports: 1 of 8.
TEST(Price, OfARootsPort) {
  const Links l = links_of_ready("dgx-h100", 2);
  const Price p = gpu_price(*work_of(*find_algorithm(Coll::gather, "direct"), l.spread, 1 << 30), l,
                            Protocol::simple, Constants::built_in());
  EXPECT_NEAR(p.far_gbytes_per_s, l.ports / 8, 1e-9);
}

TEST(Prediction, TheBestIsTheCheapestThatCan) {
  const Links l = links_of_ready("dgx-h100", 2);
  const Prediction p = predict(call_of(Coll::all_reduce, 1 << 20, 16), l);
  bool refused = false;
  for (size_t i = 1; i < p.candidates.size(); ++i) {
    const Candidate &a = p.candidates[i - 1], &b = p.candidates[i];
    refused = refused || !b.obstacle.empty();
    EXPECT_FALSE(refused && b.obstacle.empty()) << "those that can come first";
    if (a.obstacle.empty() == b.obstacle.empty()) {
      EXPECT_LE(a.price.us(), b.price.us());
    }
  }
  EXPECT_TRUE(refused);
  // Sums in the switch are shown, and not chosen: Muster has no program for them.
  const auto in_switch = std::find_if(p.candidates.begin(), p.candidates.end(),
                                      [](const Candidate& c) { return c.algorithm == "in_switch"; });
  ASSERT_NE(in_switch, p.candidates.end());
  EXPECT_FALSE(in_switch->obstacle.empty());
}

// NCCL runs few bytes by LL on a host with NVLink: the flag comes with the data, where a counter comes after it.
TEST(Prediction, FewBytesInsideAHostGoByLl) {
  for (const char* host : {"dgx-1v", "dgx-a100", "dgx-h100"})
    for (const Coll coll : {Coll::all_reduce, Coll::all_gather, Coll::reduce_scatter, Coll::broadcast})
      for (uint64_t bytes = 8; bytes < 64 << 10; bytes *= 2) {
        const Links l = links_of_ready(host, 1);
        const Prediction p = predict(call_of(coll, bytes, 8), l);
        EXPECT_EQ(p.best()->protocol, Protocol::ll)
            << host << " " << name_of(coll) << " of " << bytes << " by " << p.best()->algorithm;
      }
}

TEST(Prediction, ForcedOrRefused) {
  const Links l = links_of_ready("dgx-h100", 1);
  PredictOptions o;
  o.algorithm = "ring";
  o.protocol = "simple";
  const Prediction p = predict(call_of(Coll::all_reduce, 8, 8), l, Constants::built_in(), o);
  EXPECT_EQ(p.best()->algorithm, "ring");
  EXPECT_EQ(p.best()->protocol, Protocol::simple);
  o.algorithm = "circle";
  try {
    predict(call_of(Coll::all_reduce, 8, 8), l, Constants::built_in(), o);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("There are: one_shot"), std::string::npos) << e.what();
  }
  // Lines of 128 bytes arrive whole over NVLink only.
  o.algorithm.clear();
  o.protocol = "LL128";
  EXPECT_EQ(predict(call_of(Coll::all_reduce, 8, 8), links_of_ready("rtx4090-8", 1), Constants::built_in(), o)
                .best(),
            nullptr);
}

TEST(Prediction, SixteenThousandRanks) {
  const topology::Cluster c = cluster(R"({"count": 2048, "name": "node", "ready": "dgx-h100"})",
                                      R"({"network": "infiniband", "rails": true, "hosts_per_leaf": 32})");
  const Links l = links_of_cluster(c);
  EXPECT_EQ(l.spread.ranks, 16384);
  for (const Coll coll : kCollectives) {
    const Prediction p = predict(call_of(coll, uint64_t{1} << 30, 16384), l);
    ASSERT_NE(p.best(), nullptr) << name_of(coll);
    EXPECT_TRUE(std::isfinite(p.best()->price.us()));
  }
}

TEST(Prediction, OneRankAndOneElement) {
  const topology::Cluster c = cluster(R"({"count": 1, "name": "node", "ready": "dgx-a100"})");
  const RankPlace place{0, 3};
  const Links l = links_of(c, std::span(&place, 1));
  for (const Coll coll : kCollectives) {
    const Prediction p = predict(call_of(coll, 4, 1), l);
    ASSERT_NE(p.best(), nullptr) << name_of(coll);
    EXPECT_GT(p.best()->price.us(), 0);
    EXPECT_TRUE(std::isfinite(p.best()->price.us()));
  }
}

TEST(Constants, EachSaysWhereItIsFrom) {
  for (const auto& [name, c] : Constants::built_in().all()) {
    EXPECT_FALSE(c.source.empty()) << name;
    EXPECT_GT(c.value, 0) << name;
  }
  EXPECT_EQ(Constants::read(Constants::built_in().to_text(), "again").to_text(),
            Constants::built_in().to_text());
}

TEST(Constants, AProfileGoesBeforeThem) {
  Constants k = Constants::built_in();
  k.override_with(Constants::read("gpu.launch 3 us measured here, today\n", "p"), "p");
  EXPECT_EQ(k("gpu.launch"), 3);
  EXPECT_EQ(k.get("gpu.launch").kind, "measured");
  EXPECT_THROW(k.override_with(Constants::read("gpu.lunch 3 us measured here\n", "p"), "p"), Error);
  EXPECT_THROW(k.override_with(Constants::read("gpu.launch 3 ms measured here\n", "p"), "p"), Error);
}

TEST(Constants, WhatIsNoLine) {
  for (const char* text :
       {"gpu.launch", "gpu.launch x us measured here", "gpu.launch -1 us measured here",
        "gpu.launch inf us measured here", "gpu.launch nan us measured here", "gpu.launch 3 us guessed here",
        "gpu.launch 3 us measured a\ngpu.launch 4 us measured b", "gpu.launch 3"}) {
    try {
      Constants::read(text, "file");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Result::invalid_argument);
      EXPECT_EQ(std::string(e.what()).find("file:"), 0u) << e.what();
    }
  }
  EXPECT_TRUE(Constants::read("# nothing\n\n   \n", "file").all().empty());
}

}  // namespace
}  // namespace muster
