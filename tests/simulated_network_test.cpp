// What messages between ranks go over: links, ports and uplinks of clusters, cores of a host.
#include "plan/simulated_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <set>

#include "base/error.h"
#include "topology/cluster_file.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using topology::LinkClass;
using topology::LinkKind;

topology::Cluster cluster(const std::string& hosts, const std::string& fabric = "{}") {
  return topology::read_cluster_file(
      "{\"muster_cluster\": 1, \"hosts\": [" + hosts + "], \"fabric\": " + fabric + "}", "c.json",
      [](const std::string& path) -> std::string { fail(Result::invalid_argument, "no file {}", path); });
}

std::vector<std::string> names(const SimulatedNetwork& n, const Route& r) {
  std::vector<std::string> all;
  for (const uint32_t i : r.resources) all.push_back(n.resource(i).name);
  return all;
}
double narrowest(const SimulatedNetwork& n, const Route& r) {
  double least = 1e30;
  for (const uint32_t i : r.resources) least = std::min(least, n.gb_per_s(i));
  return least;
}

TEST(SimulatedNetwork, RanksAreGpusHostByHost) {
  const SimulatedNetwork n(cluster(
      R"({"count": 3, "name": "node", "ready": "dgx-h100"}, {"name": "small", "host": {"gpus": 2, "gpu": "L40S", "nics": 1}})"));
  EXPECT_EQ(n.ranks(), 26);
  EXPECT_EQ(n.host_of(0), 0);
  EXPECT_EQ(n.host_of(23), 2);
  EXPECT_EQ(n.host_of(25), 3);
  EXPECT_THAT(n.work(3), IsEmpty());
}

TEST(SimulatedNetwork, NvlinkPortsInAndOut) {
  const SimulatedNetwork n(cluster(R"({"count": 2, "name": "node", "ready": "dgx-h100"})"));
  const Route r = n.route(1, 3), back = n.route(3, 1);
  EXPECT_EQ(r.link_class, LinkClass::nvlink);
  ASSERT_EQ(r.resources.size(), 2u);
  EXPECT_THAT(n.resource(r.resources[0]).name, AllOf(HasSubstr("node0: GPU1 -> "), HasSubstr("NVSwitch")));
  EXPECT_THAT(n.resource(r.resources[1]).name, AllOf(HasSubstr("node0: "), HasSubstr(" -> GPU3")));
  EXPECT_EQ(n.resource(r.resources[0]).link, LinkKind::nvlink);
  // 18 links of 20.6 GB/s (rates.h).
  EXPECT_NEAR(n.gb_per_s(r.resources[0]), 18 * 20.6, 1e-9);
  EXPECT_NEAR(r.latency_us, 2 * topology::nvlink_latency(), 1e-12);
  for (const uint32_t i : r.resources)
    EXPECT_THAT(back.resources, testing::Not(testing::Contains(i))) << "directions are apart";
  EXPECT_EQ(n.route(1, 4).resources[0], r.resources[0]) << "one port out";
  EXPECT_THAT(n.route(5, 5).resources, IsEmpty());
}

TEST(SimulatedNetwork, BetweenHostsOverTheNearestPorts) {
  const topology::Cluster c = cluster(R"({"count": 2, "name": "node", "ready": "dgx-h100"})",
                                      R"({"rails": true, "switch_latency_us": 0.5})");
  const SimulatedNetwork n(c);
  const Route r = n.route(2, 8 + 2);
  EXPECT_EQ(r.link_class, LinkClass::infiniband);
  const topology::HostPath p = topology::path_between(c, 0, 2, 1, 2);
  EXPECT_NEAR(narrowest(n, r), p.rate.gb_per_s, 1e-9);
  EXPECT_NEAR(r.latency_us, p.latency_us, 1e-12);
  const std::vector<std::string> over = names(n, r);
  EXPECT_THAT(over.front(), HasSubstr("node0: GPU2 -> "));
  EXPECT_THAT(over.back(), AllOf(HasSubstr("node1: "), HasSubstr(" -> GPU2")));
  // Each link ends where the next begins, but for the network between the two ports.
  int breaks = 0;
  for (size_t i = 0; i + 1 < over.size(); ++i) {
    const auto end = over[i].substr(over[i].find(" -> ") + 4);
    const auto begin =
        over[i + 1].substr(over[i + 1].find(": ") + 2, over[i + 1].find(" -> ") - over[i + 1].find(": ") - 2);
    breaks += begin != end || over[i].substr(0, 5) != over[i + 1].substr(0, 5);
  }
  EXPECT_EQ(breaks, 1);
}

TEST(SimulatedNetwork, RoutesAreAsWideAndAsLongAsPathsOfTheTopology) {
  for (const char* ready : {"dgx-1v", "dgx-a100", "dgx-h100", "aws-p4d", "aws-p5", "rtx4090-8"})
    for (const char* fabric :
         {R"({"rails": false})", R"({"rails": true, "switch_latency_us": 1})", R"({"gbit_per_s": 80})"}) {
      const topology::Cluster c = cluster(std::string(R"({"count": 2, "ready": ")") + ready + "\"}", fabric);
      const SimulatedNetwork n(c);
      const topology::HostPaths paths(c);
      for (int a = 0; a < n.ranks(); ++a)
        for (int b = 0; b < n.ranks(); ++b) {
          if (a == b) continue;
          const topology::HostPath p = paths.between(a / 8, a % 8, b / 8, b % 8);
          const Route r = n.route(a, b);
          EXPECT_NEAR(narrowest(n, r), p.rate.gb_per_s, 1e-9) << ready << " " << a << " " << b;
          EXPECT_NEAR(r.latency_us, p.latency_us, 1e-9);
          EXPECT_EQ(r.link_class, topology::plain(p.path_class, p.network));
        }
    }
}

TEST(SimulatedNetwork, UplinksCarryWhatOversubscriptionLeaves) {
  const std::string hosts = R"({"count": 8, "name": "node", "ready": "dgx-h100"})";
  const SimulatedNetwork n(
      cluster(hosts, R"({"rails": true, "hosts_per_leaf": 4, "oversubscription": 2, "gbit_per_s": 400})"));
  const auto uplinks = [&](int a, int b) {
    std::vector<std::string> all;
    for (const uint32_t i : n.route(a, b).resources)
      if (n.resource(i).kind == Resource::Kind::uplink) {
        all.push_back(n.resource(i).name);
        EXPECT_NEAR(n.gb_per_s(i), 4 * 50.0 / 2, 1e-9) << "four hosts' ports of 400 Gbit/s, halved";
      }
    return all;
  };
  EXPECT_THAT(uplinks(3, 8 + 3), IsEmpty());
  EXPECT_THAT(uplinks(3, 5 * 8 + 3),
              ElementsAre("leaf 0, rail 3: to the spine", "leaf 1, rail 3: from the spine"));

  const SimulatedNetwork flat(cluster(hosts, R"({"hosts_per_leaf": 4, "oversubscription": 1})"));
  for (const uint32_t i : flat.route(3, 5 * 8 + 3).resources)
    EXPECT_EQ(flat.resource(i).kind, Resource::Kind::link);
  const SimulatedNetwork one(cluster(hosts, R"({"hosts_per_leaf": 4, "oversubscription": 4, "gbit_per_s": 400})"));
  std::vector<double> rates;
  for (const uint32_t i : one.route(3, 5 * 8 + 3).resources)
    if (one.resource(i).kind == Resource::Kind::uplink) rates.push_back(one.gb_per_s(i));
  EXPECT_THAT(rates, ElementsAre(4 * 8 * 50.0 / 4, 4 * 8 * 50.0 / 4))
      << "without rails all ports are at one leaf";
}

TEST(SimulatedNetwork, NvlinkDomains) {
  const SimulatedNetwork n(cluster(R"({"count": 4, "name": "tray", "ready": "gb200-nvl72"})",
                          R"({"hosts_per_nvlink_domain": 2})"));
  const Route r = n.route(1, 4 + 2);
  EXPECT_EQ(r.link_class, LinkClass::nvlink);
  ASSERT_EQ(r.resources.size(), 2u);
  EXPECT_THAT(n.resource(r.resources[0]).name, HasSubstr("tray0: GPU1 -> "));
  EXPECT_THAT(n.resource(r.resources[1]).name, AllOf(HasSubstr("tray1: "), HasSubstr(" -> GPU2")));
  EXPECT_EQ(n.route(1, 8 + 2).link_class, LinkClass::infiniband);
}

TEST(SimulatedNetwork, PlacesSayWhereRanksAre) {
  const topology::Cluster c = cluster(R"({"count": 2, "name": "node", "ready": "dgx-h100"})");
  const SimulatedNetwork n(c, {{1, 7}, {0, 0}, {1, 6}});
  EXPECT_EQ(n.ranks(), 3);
  EXPECT_EQ(n.host_of(0), 1);
  EXPECT_EQ(n.route(0, 2).link_class, LinkClass::nvlink);
  EXPECT_EQ(n.route(0, 1).link_class, LinkClass::infiniband);
  EXPECT_THROW(SimulatedNetwork(c, {{2, 0}}), Error);
  EXPECT_THROW(SimulatedNetwork(c, {{0, 8}}), Error);
  EXPECT_THROW(n.route(0, 3), Error);
}

TEST(SimulatedNetwork, CoresAndMemory) {
  const SimulatedNetwork n(HostMemory{{0, 1, 1, 3}, 10, 25, 0.1});
  EXPECT_EQ(n.ranks(), 4);
  EXPECT_EQ(n.resources(), 5u);
  EXPECT_EQ(n.route(0, 1).latency_us, 0.1);
  EXPECT_THAT(n.route(0, 1).resources, IsEmpty());
  EXPECT_EQ(n.work(1), n.work(2)) << "one core";
  ASSERT_EQ(n.work(3).size(), 2u);
  EXPECT_EQ(n.resource(n.work(3)[0]).name, "core 3");
  EXPECT_EQ(n.gb_per_s(n.work(3)[0]), 10);
  EXPECT_EQ(n.resource(n.work(3)[1]).name, "memory");
  EXPECT_EQ(n.gb_per_s(n.work(3)[1]), 25);
  EXPECT_EQ(SimulatedNetwork(HostMemory{{0, 1}, 10, 0, 0}).work(1).size(), 1u);
  EXPECT_THROW(SimulatedNetwork(HostMemory{{0, 1}, 0, 0, 0}), Error);
  EXPECT_THROW(SimulatedNetwork(HostMemory{{0, -1}, 1, 0, 0}), Error);
}

TEST(SimulatedNetwork, SixteenThousandRanksTakeLittleMemory) {
  const auto peak_kib = [] {
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
  };
  const topology::Cluster c = cluster(R"({"count": 2048, "name": "node", "ready": "dgx-h100"})",
                                      R"({"rails": true, "hosts_per_leaf": 32, "oversubscription": 2})");
  const long before = peak_kib();
  const SimulatedNetwork n(c);
  EXPECT_EQ(n.ranks(), 16384);
  std::set<uint32_t> used;
  for (int r = 0; r < n.ranks(); ++r)
    for (const uint32_t i : n.route(r, (r + 8) % n.ranks()).resources) used.insert(n.gb_per_s(i) > 0 ? i : 0);
  EXPECT_GT(used.size(), 2u * 16384);
  EXPECT_LT(peak_kib() - before, 100 << 10);
}

}  // namespace
}  // namespace muster
