// What collectives cost on the host memory of several hosts, against sums made by hand; and what is chosen by
// it.
#include "plan/hosts_price.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "algorithms/algorithms.h"
#include "topology/cluster.h"

namespace muster {
namespace {

using testing::HasSubstr;

// One GB/s is 1000 bytes per microsecond.
Constants simple_constants() {
  return Constants::read(
      "host.call 1 us assumed test\n"
      "host.message 0.25 us assumed test\n"
      "host.ring 0.125 us assumed test\n"
      "host.hand_over 4 us assumed test\n"
      "host.turn 16 us assumed test\n"
      "host.local 1 GB/s assumed test\n"
      "host.local.memory 0.5 GB/s assumed test\n"
      "host.slot 1 GB/s assumed test\n"
      "host.combine 2 GB/s assumed test\n"
      "network.share 0.5 - assumed test\n"
      "network.tcp.latency 50 us assumed test\n"
      "network.tcp.overhead 5 us assumed test\n"
      "network.tcp.rank 0.5 GB/s assumed test\n"
      "network.tcp.port 0.25 GB/s assumed test\n"
      "network.rdma.latency 10 us assumed test\n"
      "network.rdma.latency.ring 6 us assumed test\n"
      "network.rdma.overhead 1 us assumed test\n"
      "network.rdma.handshake 3 us assumed test\n"
      "network.rdma.copy 1 GB/s assumed test\n"
      "network.rdma.rank 2 GB/s assumed test\n"
      "network.rdma.port 4 GB/s assumed test\n",
      "test");
}

PlanInputs on(const std::vector<int>& host_of, HostNetwork::Kind kind = HostNetwork::Kind::tcp) {
  PlanInputs in;
  in.nranks = static_cast<int>(host_of.size());
  in.cores = in.nranks;
  in.slot_bytes = 32 << 10;
  in.message_bytes = 16 << 10;
  in.cache_bytes = size_t{1} << 30;
  in.placement = std::make_shared<const Placement>(placement_of(host_of));
  in.network.kind = kind;
  return in;
}

// `hosts` of `per_host` ranks, one after the other.
std::vector<int> hosts_of(int hosts, int per_host) {
  std::vector<int> host_of;
  for (int h = 0; h < hosts; ++h) host_of.insert(host_of.end(), static_cast<size_t>(per_host), h);
  return host_of;
}

double price(Coll coll, const char* algorithm, uint64_t bytes, const PlanInputs& in,
             const Constants& k = simple_constants()) {
  return hosts_price(*find_algorithm(coll, algorithm), {coll, DataType::uint8, RedOp::sum, 0, bytes}, in, k)
      .value()
      .us;
}

TEST(HostsPrice, DoublingIsARoundTheBytesAndTheirSum) {
  // call 1; one round of 50; 1000 bytes by the port's 0.25 GB/s, and combined.
  EXPECT_NEAR(price(Coll::all_reduce, "doubling", 1000, on({0, 1})), 1 + 50 + 4 + 0.5, 1e-9);
}

TEST(HostsPrice, AMessageIsCopiedOrAgreedOnWhicheverIsCheaper) {
  const PlanInputs in = on({0, 1}, HostNetwork::Kind::rdma);
  // A rank moves 2 GB/s, less than the port. 1000 bytes: 1 us of copies; 8000: the handshake's 3, not 8.
  EXPECT_NEAR(price(Coll::all_reduce, "doubling", 1000, in), 1 + 10 + 1 + 0.5 + 0.5, 1e-9);
  EXPECT_NEAR(price(Coll::all_reduce, "doubling", 8000, in), 1 + 10 + 3 + 4 + 4, 1e-9);
}

TEST(HostsPrice, FurtherMessagesOfARoundTakeTheirOverheadOnly) {
  // A root sends to three others; all goes out through its port.
  EXPECT_NEAR(price(Coll::broadcast, "direct", 1000, on({0, 1, 2, 3})), 1 + 50 + 2 * 5 + 3 * 4, 1e-9);
}

TEST(HostsPrice, AChainPassesItsFirstTileOn) {
  // Rounds 3, and the first tile of 32768 bytes waits at two hosts between.
  const double tile_us = 32768 / 250.0;
  EXPECT_NEAR(price(Coll::broadcast, "chain", 10 * 32768, on({0, 1, 2, 3})),
              1 + 150 + 10 * tile_us + 2 * tile_us, 1e-6);
}

TEST(HostsPrice, PortsAreSharedByAHostsRanks) {
  // Doubling of 2 hosts of 4: the last exchange crosses, of all four ranks at once.
  PlanInputs in = on(hosts_of(2, 4));
  const CallShape call{Coll::all_reduce, DataType::uint8, RedOp::sum, 0, 1000};
  const HostsPrice p =
      *hosts_price(*find_algorithm(Coll::all_reduce, "doubling"), call, in, simple_constants());
  EXPECT_NEAR(p.far_bytes_us, 4 * 1000 / 250.0, 1e-9);
  EXPECT_EQ(p.far_bytes, 4000);
  EXPECT_EQ(p.far_rounds, 1);
  in.network.gbytes_per_s = 4;  // of which half is reached: a rank's own 0.5 decides
  EXPECT_NEAR(
      hosts_price(*find_algorithm(Coll::all_reduce, "doubling"), call, in, simple_constants())->far_bytes_us,
      1000 / 500.0, 1e-9);
}

TEST(HostsPrice, RanksThatShareACoreTakeTurns) {
  PlanInputs in = on(hosts_of(2, 2));
  const double alone = price(Coll::all_reduce, "doubling", 8, in);
  in.cores = 1;
  EXPECT_NEAR(price(Coll::all_reduce, "doubling", 8, in) - alone, 2 * 2 * 16, 1);  // rounds times ranks
}

TEST(HostsPrice, DataThatLeavesTheCacheCostsEachAccess) {
  // Far outside: doubling's messages of the whole buffer, 1 + 1 + 3 accesses of 1 ns each; a ring's in a
  // tile: 1.
  PlanInputs in = on(hosts_of(2, 1));
  in.slot_bytes = size_t{1} << 40;
  const double doubling = price(Coll::all_reduce, "doubling", 1000000, in),
               ring = price(Coll::all_reduce, "ring", 1000000, in);
  in.cache_bytes = 1000;
  EXPECT_NEAR(price(Coll::all_reduce, "doubling", 1000000, in) - doubling, 5 * 1000, 1e-6);
  in.slot_bytes = 100;
  EXPECT_NEAR(price(Coll::all_reduce, "ring", 1000000, in) - ring, 1000, 1e-6);
}

TEST(HostsPrice, MoreDataIsNeverCheaper) {
  for (const auto& host_of :
       {hosts_of(2, 1), hosts_of(16, 1), hosts_of(2, 4), hosts_of(4, 8), std::vector{0, 1, 0, 1, 0}})
    for (const auto kind : {HostNetwork::Kind::tcp, HostNetwork::Kind::rdma})
      for (const Algorithm& a : algorithms()) {
        PlanInputs in = on(host_of, kind);
        in.cache_bytes = 32 << 20;
        double before = 0;
        for (uint64_t bytes = 1; bytes < uint64_t{1} << 30; bytes += 1 + bytes / 3) {
          const auto p =
              hosts_price(a, {a.coll, DataType::uint8, RedOp::sum, 0, bytes}, in, Constants::built_in());
          if (!p) break;
          EXPECT_GE(p->us, before) << a.name << " " << name_of(a.coll) << " " << bytes;
          before = p->us;
        }
      }
}

TEST(HostsPrice, TheSpreadIsThatOfThePlacement) {
  const Spread even = spread_of(on(hosts_of(3, 4))), mixed = spread_of(on({0, 1, 0, 1, 0}));
  EXPECT_EQ(std::tuple(even.ranks, even.hosts, even.per_host, even.in_order), std::tuple(12, 3, 4, true));
  EXPECT_EQ(std::tuple(mixed.ranks, mixed.hosts, mixed.per_host, mixed.in_order), std::tuple(5, 2, 3, false));
}

TEST(HostByHost, PassesEachHostOnce) {
  const std::vector<int> mixed{0, 1, 2, 0, 1, 0};
  EXPECT_EQ(host_by_host(mixed), (std::vector<int>{0, 3, 5, 1, 4, 2}));
}

// --- what is chosen ---

const char* chosen(Coll coll, uint64_t bytes, const PlanInputs& in) {
  return choose({coll, DataType::uint8, RedOp::sum, 0, bytes}, in).algorithm->name;
}

TEST(HostsChoice, LongDataCrossesASlowNetworkOncePerRail) {
  const PlanInputs in = on(hosts_of(2, 4));
  EXPECT_STREQ(chosen(Coll::reduce_scatter, 8 << 20, in), "hierarchical");
  const Choice c = choose({Coll::all_reduce, DataType::uint8, RedOp::sum, 0, 64 << 20}, in);
  EXPECT_STREQ(c.algorithm->name, "hierarchical");
  EXPECT_THAT(c.reason, HasSubstr("cheapest on 2 hosts of 4 ranks over TCP: "));
  // 2 (k - 1) / k of the data leaves each host.
  EXPECT_THAT(c.reason,
              HasSubstr("2 messages one after another and 6.71e+07 bytes of a host cross the network"));
}

TEST(HostsChoice, UnevenHostsAndOneRankEachHaveOneToo) {
  std::vector<int> uneven = hosts_of(1, 7);
  uneven.insert(uneven.end(), 8, 1);
  EXPECT_THAT(choose({Coll::all_reduce, DataType::uint8, RedOp::sum, 0, 64 << 20}, on(uneven)).reason,
              HasSubstr("2 hosts of up to 8 ranks over TCP"));
  // Few bytes, one rank per host: as few rounds as can be.
  const std::string small = chosen(Coll::all_reduce, 8, on(hosts_of(16, 1), HostNetwork::Kind::rdma));
  EXPECT_TRUE(small == "one_shot" || small == "doubling") << small;
  EXPECT_STRNE(chosen(Coll::all_reduce, 64 << 20, on(hosts_of(16, 1), HostNetwork::Kind::rdma)), "doubling")
      << "4 times the data of a rank cross";
}

TEST(HostsChoice, OneHostIsChosenForAsBefore) {
  PlanInputs in = on(hosts_of(1, 4));
  in.placement = nullptr;
  EXPECT_STREQ(chosen(Coll::all_reduce, 8, in), "one_shot");
  EXPECT_STREQ(chosen(Coll::all_reduce, 1 << 20, in), "direct");
  EXPECT_STREQ(chosen(Coll::broadcast, 1 << 20, in), "chain");
}

TEST(HostsChoice, AProfileIsHeeded) {
  PlanInputs in = on(hosts_of(16, 1), HostNetwork::Kind::rdma);
  auto slow = std::make_shared<Constants>(Constants::built_in());
  slow->override_with(Constants::read("network.rdma.overhead 1000 us measured x", "test"), "test");
  in.tuned = slow;
  // Many messages at once are dear now, so each rank sends few.
  EXPECT_STREQ(chosen(Coll::all_reduce, 8, in), "doubling");
  EXPECT_THAT(choose({Coll::all_reduce, DataType::uint8, RedOp::sum, 0, 8}, in).reason,
              HasSubstr("by the tuning profile"));
}

TEST(HostsChoice, ManyRanksAreSoonPlannedFor) {
  const PlanInputs in = on(hosts_of(2048, 8), HostNetwork::Kind::rdma);  // 16,384
  EXPECT_STREQ(chosen(Coll::all_reduce, 1 << 20, in), "tree");
  EXPECT_FALSE(choose({Coll::all_to_all, DataType::uint8, RedOp::sum, 0, 8}, in).reason.empty());
}

TEST(HostNetwork, IsTheWeakestHosts) {
  using namespace topology;
  const auto host = [](Network network, double gbit, int ports, Answer3 up = Answer3::yes) {
    auto m = std::make_shared<Machine>();
    for (int i = 0; i < ports; ++i) {
      Node node;
      Port port;
      port.network = network;
      port.gbit_per_s = gbit;
      port.up = up;
      node.detail = port;
      node.kind = Kind::port;
      m->nodes.push_back(node);
    }
    return m;
  };
  const auto between = [](std::vector<std::shared_ptr<const Machine>> shapes) {
    Cluster c;
    c.shapes = std::move(shapes);
    const HostNetwork n = network_between(c);
    return std::pair(n.kind, n.gbytes_per_s);
  };
  EXPECT_EQ(between({host(Network::infiniband, 400, 2)}), std::pair(HostNetwork::Kind::rdma, 100.0));
  EXPECT_EQ(between({host(Network::infiniband, 400, 2), host(Network::roce, 200, 1)}),
            std::pair(HostNetwork::Kind::rdma, 25.0));
  EXPECT_EQ(between({host(Network::infiniband, 400, 2), host(Network::ethernet, 10, 2)}),
            std::pair(HostNetwork::Kind::tcp, 0.0));
  EXPECT_EQ(between({host(Network::ethernet, 10, 2)}), std::pair(HostNetwork::Kind::tcp, 1.25));
  EXPECT_EQ(between({host(Network::infiniband, 400, 1, Answer3::no)}),
            std::pair(HostNetwork::Kind::tcp, 0.0));
  EXPECT_EQ(between({}), std::pair(HostNetwork::Kind::tcp, 0.0));
}

}  // namespace
}  // namespace muster
