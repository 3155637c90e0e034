// Path classes and rates on small machines made by hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "topology/nearest_ports.h"
#include "topology/paths.h"

namespace muster::topology {
namespace {

Pci pci(const char* address, uint32_t class_code, double gt = 16, int lanes = 16) {
  return {*PciAddress::parse(address), class_code, 0, 0, 0, 0, gt, lanes};
}

// Two NUMA nodes with two host bridges each; a switch with a switch under it, GPUs and NICs in all places.
struct House {
  Machine m;
  int numa0, numa1, hb0, hb1, hb2, outer, inner, gpu0, gpu1, gpu2, gpu3, gpu4, nic0, port0, nic1, port1;

  House() {
    numa0 = m.add({.kind = Kind::numa, .name = "NUMA0", .detail = Numa{.os_index = 0, .package = 0, .arch = CpuArch::x86_64, .vendor = "GenuineIntel", .family = 6, .model = 0x8f}});
    numa1 = m.add({.kind = Kind::numa, .name = "NUMA1", .detail = Numa{.os_index = 1, .package = 1, .arch = CpuArch::x86_64, .vendor = "GenuineIntel", .family = 6, .model = 0x8f}});
    hb0 = m.add({.kind = Kind::host_bridge, .name = "bridge0", .parent = numa0});
    hb1 = m.add({.kind = Kind::host_bridge, .name = "bridge1", .parent = numa0});
    hb2 = m.add({.kind = Kind::host_bridge, .name = "bridge2", .parent = numa1});
    outer = m.add({.kind = Kind::pci_switch, .name = "outer", .parent = hb0, .pci = pci("10:00.0", 0x060400)});
    inner = m.add({.kind = Kind::pci_switch, .name = "inner", .parent = outer, .pci = pci("11:00.0", 0x060400)});
    gpu0 = gpu(0, outer, "12:00.0");
    gpu1 = gpu(1, inner, "13:00.0");
    gpu2 = gpu(2, hb0, "14:00.0");
    gpu3 = gpu(3, hb1, "20:00.0");
    gpu4 = gpu(4, hb2, "80:00.0");
    nic0 = m.add({.kind = Kind::nic, .name = "nic0", .parent = inner, .pci = pci("15:00.0", 0x020700), .detail = Nic{}});
    port0 = m.add({.kind = Kind::port, .name = "mlx5_0", .parent = nic0, .detail = Port{.device = "mlx5_0", .gbit_per_s = 400, .gpudirect = Answer3::yes}});
    nic1 = m.add({.kind = Kind::nic, .name = "nic1", .parent = hb2, .pci = pci("81:00.0", 0x020700, 8, 8), .detail = Nic{}});
    port1 = m.add({.kind = Kind::port, .name = "mlx5_1", .parent = nic1, .detail = Port{.device = "mlx5_1", .gbit_per_s = 400, .gpudirect = Answer3::yes}});
  }
  int gpu(int index, int parent, const char* address) {
    return m.add({.kind = Kind::gpu, .name = fmt::format("GPU{}", index), .parent = parent, .pci = pci(address, 0x030200), .detail = Gpu{.index = index, .sm = 90}});
  }
  void nvlink(int a, int b, int count) {
    m.link({a, b, LinkKind::nvlink, count, {count * nvlink_rate(90).gb_per_s, Source::table}, nvlink_latency()});
  }
  void finish() {
    complete(m);
    validate(m);
  }
  PathClass between(int a, int b) const {
    const PathClass c = paths_from(m, a)[static_cast<size_t>(b)].path_class;
    EXPECT_EQ(paths_from(m, b)[static_cast<size_t>(a)].path_class, c) << m[a].name << " and " << m[b].name;
    return c;
  }
  double rate(int a, int b) const { return paths_from(m, a)[static_cast<size_t>(b)].rate.gb_per_s; }
};

TEST(Paths, ClassesOfPci) {
  House h;
  h.finish();
  EXPECT_EQ(h.between(h.gpu0, h.gpu0), PathClass::loc);
  EXPECT_EQ(h.between(h.nic0, h.port0), PathClass::loc) << "a card and what it carries are at one place";
  EXPECT_EQ(h.between(h.gpu1, h.nic0), PathClass::pix);
  EXPECT_EQ(h.between(h.gpu1, h.port0), PathClass::pix);
  EXPECT_EQ(h.between(h.gpu0, h.gpu1), PathClass::pxb);
  EXPECT_EQ(h.between(h.gpu0, h.gpu2), PathClass::phb);
  EXPECT_EQ(h.between(h.gpu0, h.gpu3), PathClass::node);
  EXPECT_EQ(h.between(h.gpu0, h.gpu4), PathClass::sys);
  EXPECT_EQ(h.between(h.gpu0, h.numa0), PathClass::phb);
  EXPECT_EQ(h.between(h.gpu4, h.numa0), PathClass::sys);
}

// A file says less of one device than of another: in neither direction is more made of it.
TEST(Paths, WithAndWithoutHostBridge) {
  House h;
  const int bare = h.gpu(5, h.numa0, "60:00.0");
  h.finish();
  EXPECT_EQ(h.between(bare, h.gpu2), PathClass::phb);
  EXPECT_EQ(h.between(bare, h.numa0), PathClass::phb);
  EXPECT_EQ(h.between(bare, h.gpu4), PathClass::sys);
}

TEST(Paths, TheNarrowestLinkCounts) {
  House h;
  h.finish();
  EXPECT_DOUBLE_EQ(h.rate(h.gpu0, h.gpu1), 24);    // x16 of the fourth generation
  EXPECT_DOUBLE_EQ(h.rate(h.gpu0, h.gpu4), 22);    // Sapphire Rapids' UPI
  EXPECT_DOUBLE_EQ(h.rate(h.gpu4, h.port1), 6);    // x8 of the third
  const Path p = paths_from(h.m, h.gpu4)[static_cast<size_t>(h.port1)];
  EXPECT_EQ(p.nodes, (std::vector<int>{h.gpu4, h.hb2, h.nic1, h.port1}));
  EXPECT_EQ(p.narrowest, h.m.up_link(h.nic1));
}

TEST(Paths, NvlinkIsCloserThanPci) {
  House h;
  h.nvlink(h.gpu0, h.gpu4, 4);
  h.nvlink(h.gpu4, h.gpu3, 2);
  h.finish();
  EXPECT_EQ(h.between(h.gpu0, h.gpu4), PathClass::nvl);
  EXPECT_DOUBLE_EQ(h.rate(h.gpu0, h.gpu4), 82.4);
  EXPECT_EQ(h.between(h.gpu0, h.gpu3), PathClass::nvb);
  EXPECT_DOUBLE_EQ(h.rate(h.gpu0, h.gpu3), 41.2);
  EXPECT_EQ(h.between(h.gpu0, h.gpu1), PathClass::pxb);
  EXPECT_EQ(h.between(h.gpu0, h.port1), PathClass::sys) << "a path alone doesn't go through another GPU to a card";
  EXPECT_EQ(nvlinks_of(h.m, h.gpu4).links, 6);
}

TEST(Paths, ThroughOneGpuAtMost) {
  House h;
  h.nvlink(h.gpu1, h.gpu0, 2);
  h.nvlink(h.gpu0, h.gpu4, 2);
  h.nvlink(h.gpu4, h.gpu3, 2);
  h.finish();
  EXPECT_EQ(h.between(h.gpu1, h.gpu4), PathClass::nvb);
  EXPECT_EQ(h.between(h.gpu1, h.gpu3), PathClass::node);
}

TEST(Paths, NvswitchJoinsAll) {
  House h;
  const int s = h.m.add({.kind = Kind::nvswitch, .name = "NVSwitch", .detail = NvSwitch{4}});
  for (const int g : h.m.all(Kind::gpu)) h.nvlink(g, s, 18);
  h.finish();
  EXPECT_EQ(h.between(h.gpu0, h.gpu4), PathClass::nvl);
  EXPECT_NEAR(h.rate(h.gpu0, h.gpu4), 370.8, 1e-9);
}

TEST(Paths, GpuOnItsCpusModule) {
  House h;
  h.m.link({h.gpu3, h.numa0, LinkKind::c2c, 1, {225, Source::assumed}, 0});
  h.finish();
  EXPECT_EQ(h.between(h.gpu3, h.numa0), PathClass::c2c);
  EXPECT_EQ(h.between(h.gpu3, h.port0), PathClass::p2c);
}

TEST(NearestPorts, ByWayOfAnotherGpu) {
  House h;
  h.nvlink(h.gpu1, h.gpu4, 4);
  h.finish();
  const auto all = nearest_ports(h.m);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[1][0].port, h.port0);
  EXPECT_EQ(all[1][0].path.path_class, PathClass::pix);
  EXPECT_EQ(all[1][0].gpudirect, Answer3::yes);
  const PortChoice& far = all[4][0];
  EXPECT_EQ(far.port, h.port0);
  EXPECT_EQ(far.path.path_class, PathClass::pxn);
  EXPECT_EQ(far.gpudirect, Answer3::yes);
  const auto without = nearest_ports(h.m, {.pxn = false});
  EXPECT_EQ(without[4][0].port, h.port1);
  EXPECT_EQ(without[4][0].path.path_class, PathClass::phb);
  EXPECT_EQ(without[4][0].gpudirect, Answer3::no);
}

TEST(NearestPorts, EqualOnesAreSharedOut) {
  Machine m;
  const int numa = m.add({.kind = Kind::numa, .name = "NUMA0", .detail = Numa{}});
  const int s = m.add({.kind = Kind::pci_switch, .name = "switch", .parent = numa, .pci = pci("10:00.0", 0x060400)});
  for (int i = 0; i < 4; ++i)
    m.add({.kind = Kind::gpu, .name = fmt::format("GPU{}", i), .parent = s, .detail = Gpu{.index = i}});
  std::vector<int> ports;
  for (int i = 0; i < 2; ++i) {
    const int nic = m.add({.kind = Kind::nic, .name = fmt::format("nic{}", i), .parent = s, .detail = Nic{}});
    ports.push_back(m.add({.kind = Kind::port, .name = fmt::format("port{}", i), .parent = nic, .detail = Port{.gbit_per_s = 100}}));
  }
  complete(m);
  const auto all = nearest_ports(m);
  for (size_t g = 0; g < 4; ++g) EXPECT_EQ(all[g][0].port, ports[g % 2]) << g;
}

TEST(Pci, Addresses) {
  EXPECT_EQ(PciAddress::parse("0000:17:00.0")->text(), "0000:17:00.0");
  EXPECT_EQ(PciAddress::parse("00000009:C1:1f.7")->text(), "0009:c1:1f.7");
  EXPECT_EQ(PciAddress::parse("17:00.1")->text(), "0000:17:00.1");
  EXPECT_EQ(PciAddress::parse("abcd1234:00:00.0")->text(), "abcd1234:00:00.0");
  for (const char* wrong : {"", "fffffff:ffff:ff", "0000:17:00", "0000:17:0g.0", "0000:17:00.10", ":::", "123456789:0:0.0"})
    EXPECT_FALSE(PciAddress::parse(wrong)) << wrong;
}

TEST(Pci, Rates) {
  EXPECT_DOUBLE_EQ(pcie_rate(8, 16).gb_per_s, 12);
  EXPECT_DOUBLE_EQ(pcie_rate(16, 16).gb_per_s, 24);
  EXPECT_DOUBLE_EQ(pcie_rate(32, 16).gb_per_s, 48);
  EXPECT_DOUBLE_EQ(pcie_rate(64, 16).gb_per_s, 96);
  EXPECT_DOUBLE_EQ(pcie_rate(5, 16).gb_per_s, 6);
  EXPECT_DOUBLE_EQ(pcie_rate(2.5, 16).gb_per_s, 3);
  EXPECT_EQ(pcie_rate(0, 0).source, Source::assumed);
  EXPECT_TRUE(is_implausible(2.5, 1));
  EXPECT_FALSE(is_implausible(8, 4));
  EXPECT_DOUBLE_EQ(parse_link_speed("16.0 GT/s PCIe"), 16);
  EXPECT_DOUBLE_EQ(parse_link_speed("8 GT/s"), 8);
  EXPECT_DOUBLE_EQ(parse_link_speed("2.5 GT/s"), 2.5);
  for (const char* nothing : {"", "Unknown", "-8 GT/s", "16 GB/s", "nan"}) EXPECT_EQ(parse_link_speed(nothing), 0) << nothing;
}

}  // namespace
}  // namespace muster::topology
