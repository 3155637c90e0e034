// What ranks make of their hosts' topologies when they meet.
#include "comm/agreed_cluster.h"

#include <gmock/gmock.h>

#include "bootstrap_support.h"
#include "topology/json.h"
#include "topology/merge.h"
#include "topology/paths.h"

namespace muster {
namespace {

using namespace test;  // NOLINT
using testing::HasSubstr;
using topology::Kind;
using topology::Machine;

// A host of some GPUs with serial numbers of its own.
Machine host(int gpus, const std::string& serial) {
  Machine m;
  m.name = "host-" + serial;
  const int numa = m.add({.kind = Kind::numa, .name = "NUMA0", .detail = topology::Numa{.os_index = 0}});
  for (int i = 0; i < gpus; ++i)
    m.add({.kind = Kind::gpu, .name = fmt::format("GPU{}", i), .parent = numa, .detail = topology::Gpu{.index = i, .sm = 90, .uuid = serial + std::to_string(i)}});
  topology::complete(m);
  return m;
}

struct Hosts {
  std::vector<std::string> identities, names;  // by rank
};

std::vector<AgreedCluster> agree(const Hosts& hosts, const std::function<Machine(int rank)>& machine, std::vector<int>* asked) {
  const int n = static_cast<int>(hosts.identities.size());
  const Ranks ranks = connect_all(n);
  std::vector<AgreedCluster> all(static_cast<size_t>(n));
  asked->assign(static_cast<size_t>(n), 0);
  for (const Failure& f : in_threads(n, [&](int r) {
         Bootstrap& b = *ranks[static_cast<size_t>(r)];
         all[static_cast<size_t>(r)] = agree_on_cluster(
             b, hosts.identities, hosts.names,
             [&] {
               ++(*asked)[static_cast<size_t>(r)];
               return machine(r);
             },
             in_seconds(30));
         b.close();
       }))
    EXPECT_EQ(f.text, "");
  return all;
}

TEST(AgreedCluster, HostsOfOneShapeAreKeptOnce) {
  // Ranks 0, 2 and 5 on a, 1 and 4 on b, 3 on c; a and b are alike but for serial numbers.
  const Hosts hosts{{"a", "b", "a", "c", "b", "a"}, {"ha", "hb", "ha", "hc", "hb", "ha"}};
  std::vector<int> asked;
  const auto all = agree(hosts, [](int rank) { return host(rank == 3 ? 4 : 8, std::to_string(rank)); }, &asked);
  EXPECT_EQ(asked, (std::vector<int>{1, 1, 0, 1, 0, 0})) << "the first rank of each host looks, and no other";
  for (const AgreedCluster& a : all) {
    EXPECT_EQ(a.hash, all[0].hash);
    EXPECT_EQ(a.host_of, (std::vector<int>{0, 1, 0, 2, 1, 0}));
    ASSERT_EQ(a.cluster->shapes.size(), 2u);
    ASSERT_EQ(a.cluster->host_count(), 3);
    EXPECT_EQ(a.cluster->gpu_count(), 20);
    EXPECT_EQ(a.cluster->hosts[0].shape, a.cluster->hosts[1].shape);
    EXPECT_EQ(a.cluster->host_name(1), "hb");
    EXPECT_EQ(a.cluster->host_name(2), "hc");
    EXPECT_EQ(a.cluster->machine_of(2).all(Kind::gpu).size(), 4u);
    EXPECT_EQ(topology::write_json(*a.cluster), topology::write_json(*all[0].cluster));
  }
}

TEST(AgreedCluster, AnotherPlacementHasAnotherHash) {
  const auto machine = [](int) { return host(2, "x"); };
  std::vector<int> asked;
  const uint64_t one = agree({{"a", "a", "b", "b"}, {"h", "h", "i", "i"}}, machine, &asked)[0].hash;
  const uint64_t again = agree({{"a", "a", "b", "b"}, {"h", "h", "i", "i"}}, machine, &asked)[0].hash;
  const uint64_t other = agree({{"a", "b", "a", "b"}, {"h", "i", "h", "i"}}, machine, &asked)[0].hash;
  EXPECT_EQ(one, again);
  EXPECT_NE(one, other);
}

TEST(AgreedCluster, AHostThatCantBeReadIsAnErrorEverywhere) {
  const int n = 3;
  const Ranks ranks = connect_all(n);
  const std::vector<std::string> names{"a", "b", "b"};
  for (int r = 0; r < n; ++r) ranks[static_cast<size_t>(r)]->watch([](const Bootstrap::Trouble&) {});
  const auto failures = in_threads(n, [&](int r) {
    Bootstrap& b = *ranks[static_cast<size_t>(r)];
    try {
      agree_on_cluster(
          b, names, names,
          [&]() -> Machine {
            if (r == 1) throw Error(Result::invalid_argument, "t.xml:3:7: <gpu>: attribute 'dev' is missing");
            return host(1, "x");
          },
          in_seconds(30));
    } catch (const Error& e) {
      if (r == 1) b.announce({r, e.code(), e.what()});
      throw;
    }
  });
  ASSERT_EQ(failures.size(), 3u);
  for (const Failure& f : failures) EXPECT_THAT(f.text, HasSubstr("t.xml:3:7"));
}

// --- a file and what is seen ---

TEST(Merge, TheFileSaysWhereAndTheSystemSaysWhat) {
  using namespace topology;
  Machine file, seen;
  const int numa = file.add({.kind = Kind::numa, .name = "NUMA0", .detail = Numa{.os_index = 0}});
  const int sw = file.add({.kind = Kind::pci_switch, .name = "ffff:ff:01.0", .parent = numa, .pci = Pci{*PciAddress::parse("ffff:ff:01.0"), 0x060400}});
  file.add({.kind = Kind::gpu, .name = "GPU0", .parent = sw, .pci = Pci{*PciAddress::parse("0001:00:00.0"), 0x030200, 0, 0, 0, 0, 16, 16}, .detail = Gpu{.index = 0}});
  file.add({.kind = Kind::gpu, .name = "GPU1", .parent = sw, .pci = Pci{*PciAddress::parse("0009:00:00.0"), 0x030200}, .detail = Gpu{.index = 1}});
  complete(file);
  const int there = seen.add({.kind = Kind::numa, .name = "NUMA0", .detail = Numa{.os_index = 0, .cpus = {0, 1}, .vendor = "GenuineIntel"}});
  const int a = seen.add({.kind = Kind::gpu, .name = "GPU0", .parent = there, .pci = Pci{*PciAddress::parse("0001:00:00.0"), 0x030200, 0x10de, 0x2330, 0, 0, 2.5, 1}, .detail = Gpu{.index = 0, .sm = 90, .model = "H100"}});
  const int b = seen.add({.kind = Kind::gpu, .name = "GPU1", .parent = there, .pci = Pci{*PciAddress::parse("0002:00:00.0"), 0x030200, 0x10de}, .detail = Gpu{.index = 1, .sm = 90}});
  seen.link({a, b, LinkKind::nvlink, 4, {82.4, Source::table}, 0.6});
  complete(seen);

  const Machine m = merge(file, seen, "vm.xml");
  validate(m);
  const int gpu = m.find(*PciAddress::parse("0001:00:00.0"));
  ASSERT_NE(gpu, kNone);
  EXPECT_EQ(m.gpu(gpu).sm, 90);
  EXPECT_EQ(m.gpu(gpu).model, "H100");
  EXPECT_EQ(m[gpu].pci->device, 0x2330);
  EXPECT_EQ(m[gpu].pci->gigatransfers, 16) << "the file's word against a virtual bridge's";
  EXPECT_EQ(m[m[gpu].parent].name, "ffff:ff:01.0");
  const int added = m.find(*PciAddress::parse("0002:00:00.0"));
  ASSERT_NE(added, kNone);
  EXPECT_EQ(m[m[added].parent].name, "NUMA0");
  EXPECT_EQ(paths_from(m, gpu)[static_cast<size_t>(added)].path_class, PathClass::nvl);
  EXPECT_EQ(m.numa(m.find("NUMA0")).cpus, (std::vector<int>{0, 1}));
  std::vector<std::string> ids;
  for (const Finding& f : m.findings) ids.push_back(f.id + " " + f.where);
  EXPECT_THAT(ids, testing::UnorderedElementsAre(HasSubstr("device-not-in-file"), "device-not-present GPU1"));
}

}  // namespace
}  // namespace muster
