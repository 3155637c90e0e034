// What two descriptions of a machine don't have in common, device by device.
#include "topology/compare.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/corpus.h"
#include "topology/nccl_xml.h"

namespace muster::topology {
namespace {

Machine server() { return read_nccl_xml(test::text_of(test::data("two_sockets.xml")), "two_sockets.xml").machine_of(0); }
std::string difference(const Machine& a, const Machine& b) {
  std::string d;
  const bool same = same_meaning(a, b, &d);
  EXPECT_EQ(same, d.empty());
  return d;
}
Gpu& gpu(Machine& m, const char* name) { return std::get<Gpu>(m[m.find(name)].detail); }
Port& port(Machine& m, const char* name) { return std::get<Port>(m[m.find(name)].detail); }

TEST(Compare, NothingBetweenEquals) {
  EXPECT_EQ(difference(server(), server()), "");
  Machine m = server();
  m.name = "other";
  m.host_hash = 1;
  m.findings.push_back({Severity::warning, "x", "", "y", ""});
  std::reverse(m.links.begin(), m.links.end());
  EXPECT_EQ(difference(server(), m), "") << "names, findings and the order of things don't count";
}

TEST(Compare, WhatOnlyOneKnowsDoesNotCount) {
  Machine m = server();
  gpu(m, "GPU0").model = "NVIDIA H100 80GB HBM3";
  gpu(m, "GPU1").gpudirect = Answer3::unknown;
  port(m, "mlx5_0").guid.clear();
  std::get<Numa>(m[m.find("NUMA0")].detail).cpus.clear();
  EXPECT_EQ(difference(server(), m), "");
}

TEST(Compare, Values) {
  Machine m = server();
  gpu(m, "GPU1").sm = 80;
  port(m, "mlx5_3").gbit_per_s = 100;
  port(m, "mlx5_0").gpudirect = Answer3::no;
  std::get<Numa>(m[m.find("NUMA1")].detail).model = 207;
  m[m.find("GPU2")].pci->lanes = 8;
  const std::string d = difference(server(), m);
  for (const char* line : {"NUMA1: model 143 / 207\n", "GPU1: sm 90 / 80\n", "GPU2: lanes 16 / 8\n", "mlx5_0: GPUDirect yes / no\n", "mlx5_3: Gbit/s 200 / 100\n"})
    EXPECT_THAT(d, testing::HasSubstr(line));
  EXPECT_EQ(std::count(d.begin(), d.end(), '\n'), 5);
}

TEST(Compare, Links) {
  Machine m = server();
  const int gpu0 = m.find("GPU0"), nvswitch = m.all(Kind::nvswitch)[0];
  for (Link& l : m.links) {
    if (l.kind == LinkKind::nvlink && (l.a == gpu0 || l.b == gpu0)) l = {gpu0, nvswitch, LinkKind::nvlink, 9, {9 * 20.6, Source::table}, 0};
    if (l.kind == LinkKind::cpu) l.rate.gb_per_s *= 1.0001;
  }
  EXPECT_EQ(difference(server(), m), "GPU0 - NVSwitch: NVLink links 18 / 9\nGPU0 - NVSwitch: NVLink GB/s 370.8 / 185.4\n");
}

TEST(Compare, DevicesMissingAndAdded) {
  Machine m = server();
  std::erase_if(m.links, [&](const Link& l) { return l.kind == LinkKind::nvlink; });
  m.add({.kind = Kind::gpu, .name = "GPU4", .parent = m.find("0000:10:01.0"), .detail = Gpu{.index = 4}});
  complete(m);
  const std::string d = difference(server(), m);
  EXPECT_THAT(d, testing::HasSubstr("GPU4: GPU, only in the second\n"));
  EXPECT_THAT(d, testing::HasSubstr("GPU0 - NVSwitch: NVLink x18, only in the first\n"));
  EXPECT_THAT(d, testing::HasSubstr("GPU0 - GPU1: class NVL / PIX\n"));
  EXPECT_THAT(d, testing::HasSubstr("GPU0 - GPU2: class NVL / SYS\n"));
  EXPECT_THAT(difference(m, server()), testing::HasSubstr("GPU4: GPU, only in the first\n"));
}

TEST(Compare, DevicesInAnotherPlace) {
  Machine m = server();
  const int card = m.nic_of(m.find("mlx5_0"));
  std::erase_if(m.links, [&](const Link& l) { return (l.a == card || l.b == card) && l.kind == LinkKind::pcie; });
  m[card].parent = m.find("NUMA0");
  complete(m);
  EXPECT_EQ(difference(server(), m),
            "0000:14:00.0: below 0000:10:01.0 / NUMA0\n"
            "GPU0 - mlx5_0: class PIX / PHB\nGPU0 - mlx5_1: class PIX / PHB\nGPU1 - mlx5_0: class PIX / PHB\nGPU1 - mlx5_1: class PIX / PHB\n");
}

// Other addresses in the same places: that they differ is said, and nothing else.
TEST(Compare, AnotherHostOfTheSameKind) {
  Machine m = server();
  for (Node& n : m.nodes)
    if (n.pci) n.pci->address.domain = 7;
  const std::string d = difference(server(), m);
  EXPECT_EQ(std::count(d.begin(), d.end(), '\n'), 8);  // 2 switches, 4 GPUs, 2 cards
  EXPECT_THAT(d, testing::HasSubstr("GPU3: PCI address 0000:83:00.0 / 0007:83:00.0\n"));
  EXPECT_THAT(d, testing::Not(testing::HasSubstr("only")));
}

}  // namespace
}  // namespace muster::topology
