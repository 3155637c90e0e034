// Tables of `nvidia-smi topo -m`: what people paste, what is rebuilt of it, and what is written.
#include "topology/smi_matrix.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "support/corpus.h"
#include "topology/nearest_ports.h"

namespace muster::topology {
namespace {

using testing::HasSubstr;

SmiTable table_of_file(const std::string& name) {
  return parse_smi_table(test::text_of(test::data("smi/" + name + ".txt")), name);
}
Machine machine_of_file(const std::string& name) {
  return read_smi_matrix(test::text_of(test::data("smi/" + name + ".txt")), name);
}
std::string refusal(const std::string& text, const std::string& name) {
  try {
    read_smi_matrix(text, name);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::invalid_argument);
    return e.what();
  }
  return "not refused";
}
std::string refusal_of_file(const std::string& name) {
  return refusal(test::text_of(test::data("smi/" + name + ".txt")), name);
}

// "GPU0", or a port's device name.
int device(const Machine& m, const std::string& name) {
  const int i = m.find(name);
  EXPECT_NE(i, kNone) << name;
  return i;
}
// The class by which two reach each other: NVLinks where they are joined by some, and what PCI is to both
// otherwise.
std::string between(const Machine& m, const std::string& a, const std::string& b) {
  const SmiTable t = smi_table_of(m);
  const auto place = [&](const std::string& name) {
    const int node = device(m, name);
    return static_cast<size_t>(
        std::find_if(t.devices.begin(), t.devices.end(), [&](const SmiDevice& d) { return d.node == node; }) -
        t.devices.begin());
  };
  return t.cell(place(a), place(b)).text();
}
std::vector<Finding> findings(const Machine& m, const std::string& id) {
  std::vector<Finding> r;
  for (const Finding& f : m.findings)
    if (f.id == id) r.push_back(f);
  return r;
}
int nvswitches(const Machine& m) { return static_cast<int>(m.all(Kind::nvswitch).size()); }

// What holds for all tables without contradictions: the machine's cells are the table's, its paths agree with
// them, and what is written of it reads the same.
void expect_same_classes(const SmiTable& t, const Machine& m) {
  EXPECT_TRUE(findings(m, "smi-contradiction").empty()) << findings(m, "smi-contradiction").front().text;
  const SmiTable again = smi_table_of(m);
  const SmiTable written = parse_smi_table(write_smi_matrix(m), "written");
  ASSERT_EQ(again.size(), t.size());
  ASSERT_EQ(written.size(), t.size());
  for (size_t i = 0; i < t.size(); ++i) {
    EXPECT_EQ(again.devices[i].name.empty() ? again.devices[i].label : again.devices[i].name,
              t.devices[i].name);
    EXPECT_EQ(written.devices[i].name, t.devices[i].name);
    const std::vector<Path> paths = paths_from(m, again.devices[i].node);
    for (size_t j = 0; j < t.size(); ++j) {
      const std::string cell = again.cell(i, j).text(),
                        what = t.devices[i].label + " to " + t.devices[j].label;
      if (t.cell(i, j).known()) {
        EXPECT_EQ(cell, t.cell(i, j).text()) << what;
      }
      EXPECT_EQ(written.cell(i, j).text(), cell) << what;
      if (i == j) continue;
      const PathClass c = paths[static_cast<size_t>(again.devices[j].node)].path_class;
      if (c == PathClass::nvl) {
        EXPECT_THAT(cell, testing::StartsWith("NV")) << what;
      } else if (c != PathClass::nvb && c != PathClass::p2c) {
        EXPECT_EQ(cell, name_of(c)) << what;
      }
    }
  }
  for (const Link& l : m.links) EXPECT_EQ(l.rate.source, Source::assumed);
}
void expect_same_classes(const std::string& name) {
  SCOPED_TRACE(name);
  expect_same_classes(table_of_file(name), machine_of_file(name));
}

TEST(SmiMatrix, ColoursTabsAndLegend) {
  const Machine m = machine_of_file("colours-tabs-legend");
  EXPECT_EQ(m.all(Kind::gpu).size(), 3u);
  EXPECT_EQ(m.all(Kind::port).size(), 2u);
  EXPECT_EQ(between(m, "GPU0", "GPU2"), "NV12");
  EXPECT_EQ(between(m, "GPU1", "mlx5_0"), "PXB");
  EXPECT_EQ(between(m, "GPU2", "mlx5_bond_0"), "PIX");
  EXPECT_EQ(between(m, "GPU2", "mlx5_0"), "SYS");
  EXPECT_EQ(nvswitches(m), 1) << "24 links to two others are more than a GPU has";
  EXPECT_EQ(nvlinks_of(m, device(m, "GPU0")).links, 12);
  const Numa& far = m.numa(m.numa_of(device(m, "GPU2")));
  EXPECT_EQ(far.os_index, 1);
  EXPECT_EQ(far.cpus.size(), 32u);
  EXPECT_EQ(far.cpus.front(), 16);
  EXPECT_EQ(far.cpus.back(), 63);
  expect_same_classes("colours-tabs-legend");
}

TEST(SmiMatrix, LinesThatATerminalWrapped) {
  for (const char* name : {"wrapped-37", "wrapped-42", "wrapped-51"}) {
    SCOPED_TRACE(name);
    const Machine m = machine_of_file(name);
    EXPECT_EQ(m.all(Kind::gpu).size(), 4u);
    EXPECT_EQ(m.all(Kind::port).size(), 1u);
    EXPECT_EQ(between(m, "GPU0", "GPU3"), "NV4");
    EXPECT_EQ(between(m, "GPU0", "NIC0"), "NODE");
    EXPECT_EQ(between(m, "GPU3", "NIC0"), "SYS");
    EXPECT_EQ(nvlinks_of(m, device(m, "GPU2")).links, 12);
    EXPECT_EQ(nvswitches(m), 0) << "three times four links are what an A100 has";
    EXPECT_EQ(m.numa(m.numa_of(device(m, "GPU2"))).os_index, 1);
    EXPECT_EQ(m.numa(m.numa_of(device(m, "GPU2"))).cpus.size(), 32u);
    expect_same_classes(name);
  }
}

TEST(SmiMatrix, BetweenOtherOutput) {
  const Machine m = machine_of_file("prompt-and-other-output");
  EXPECT_EQ(between(m, "GPU0", "GPU1"), "PHB");
  EXPECT_EQ(between(m, "GPU0", "mlx5_0"), "NODE");
  const auto other = findings(m, "smi-other-table");
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0].where, "line 14, column 3");
  EXPECT_THAT(other[0].text, HasSubstr("topo -p2p"));
  expect_same_classes("prompt-and-other-output");
}

TEST(SmiMatrix, OldNamesSingleBlanksNoLastLineEnd) {
  const Machine m = machine_of_file("old-soc-single-blanks");
  EXPECT_EQ(between(m, "GPU0", "GPU1"), "PIX");
  EXPECT_EQ(between(m, "GPU0", "GPU2"), "SYS");
  expect_same_classes("old-soc-single-blanks");
}

TEST(SmiMatrix, DrawnWithLines) {
  expect_same_classes("markdown");
  expect_same_classes("markdown-rule");
  const Machine m = machine_of_file("markdown-rule");
  EXPECT_EQ(between(m, "GPU0", "GPU1"), "NV4");
  EXPECT_TRUE(findings(m, "smi-incomplete").empty());
}

TEST(SmiMatrix, RowsMissing) {
  const Machine m = machine_of_file("rows-missing");
  EXPECT_EQ(m.all(Kind::gpu).size(), 4u);
  EXPECT_EQ(between(m, "GPU0", "GPU1"), "NV12");
  EXPECT_EQ(between(m, "GPU2", "GPU3"), "NV12") << "NVSwitch joins all";
  EXPECT_EQ(between(m, "GPU0", "NIC0"), "PIX");
  EXPECT_EQ(between(m, "GPU1", "NIC1"), "SYS");
  const auto incomplete = findings(m, "smi-incomplete");
  ASSERT_EQ(incomplete.size(), 2u);
  EXPECT_EQ(incomplete[0].where, "GPU2, GPU3, NIC0, NIC1");
  EXPECT_EQ(incomplete[1].where, "NIC0, NIC1");
  ASSERT_FALSE(findings(m, "smi-assumed").empty());
  EXPECT_EQ(findings(m, "smi-assumed")[0].where, "GPU2, GPU3");
  expect_same_classes("rows-missing");
}

TEST(SmiMatrix, ColumnsMissing) {
  const Machine m = machine_of_file("nic-columns-missing");
  EXPECT_EQ(m.all(Kind::port).size(), 2u);
  EXPECT_EQ(between(m, "GPU1", "mlx5_3"), "PIX");
  EXPECT_EQ(between(m, "mlx5_2", "mlx5_3"), "SYS") << "they are at GPUs which are";
  EXPECT_THAT(findings(m, "smi-incomplete").back().text,
              HasSubstr("NIC2 (mlx5_4) is in the legend and not in the table"));
  expect_same_classes("nic-columns-missing");
}

TEST(SmiMatrix, HalvesThatDisagree) {
  const Machine m = machine_of_file("halves-disagree");
  EXPECT_EQ(between(m, "GPU0", "GPU1"), "PIX") << "the closer class";
  const auto found = findings(m, "smi-contradiction");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].where, "line 3, column 7");
  EXPECT_THAT(found[0].text,
              HasSubstr("GPU1 reaches GPU0 by PHB here, and by PIX at line 2, column 13; PIX is taken"));
}

TEST(SmiMatrix, ClassesThatDontFitEachOther) {
  const Machine m = machine_of_file("not-transitive");
  EXPECT_EQ(between(m, "GPU0", "GPU1"), "PIX");
  EXPECT_EQ(between(m, "GPU1", "GPU2"), "PIX");
  EXPECT_EQ(between(m, "GPU0", "GPU2"), "PIX");
  const auto found = findings(m, "smi-contradiction");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].where, HasSubstr("line 4"));
  EXPECT_THAT(found[0].text,
              HasSubstr("GPU2 and GPU0: SYS doesn't fit what the other cells say, which make it PIX"));
  EXPECT_THAT(found[0].text, HasSubstr("GPU2 reaches GPU1 by PIX (line 4"));
}

TEST(SmiMatrix, CellsMissing) {
  for (const char* name : {"cell-missing-tabs", "cell-missing-blanks"}) {
    SCOPED_TRACE(name);
    const Machine m = machine_of_file(name);
    EXPECT_EQ(between(m, "GPU0", "GPU1"), "PHB") << "from the other half";
    EXPECT_EQ(between(m, "GPU1", "GPU2"), "NODE");
    expect_same_classes(name);
  }
  EXPECT_THAT(findings(machine_of_file("cell-missing-tabs"), "smi-incomplete")[0].text,
              HasSubstr("GPU1 has 1 cells too few"));
  EXPECT_THAT(findings(machine_of_file("cell-missing-blanks"), "smi-unreadable")[0].text,
              HasSubstr("row of GPU1 has 'NODE' where it meets itself"));
}

TEST(SmiMatrix, CellsThatSayNothing) {
  const Machine m = machine_of_file("unreadable-cells");
  EXPECT_EQ(between(m, "GPU0", "NIC0"), "NODE") << "a NIC has no NVLink";
  EXPECT_EQ(between(m, "GPU1", "NIC0"), "PIX");
  const auto found = findings(m, "smi-unreadable");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].where, "line 2, column 19");
  EXPECT_THAT(found[0].text, HasSubstr("'NV2' says nothing of how GPU0 reaches NIC0"));
  EXPECT_THAT(found[1].text, HasSubstr("'-3,8-11' is no list of CPUs"));
  EXPECT_THAT(found[2].text, HasSubstr("'P?X'"));
  // GPU0 and NIC0 are at one NUMA node, NIC0 and GPU1 too: then SYS between the GPUs can't be.
  EXPECT_EQ(between(m, "GPU0", "GPU1"), "NODE");
  EXPECT_FALSE(findings(m, "smi-contradiction").empty());
}

TEST(SmiMatrix, MemoryThatIsANumaNode) {
  const Machine m = machine_of_file("coherent-memory");
  const int gpu0 = device(m, "GPU0"), gpu1 = device(m, "GPU1");
  EXPECT_EQ(m.gpu(gpu1).memory_numa, 18);
  EXPECT_EQ(paths_from(m, gpu0)[static_cast<size_t>(m.numa_of(gpu0))].path_class, PathClass::c2c);
  EXPECT_EQ(m.numa(m.numa_of(gpu1)).os_index, 1);
  EXPECT_EQ(between(m, "GPU0", "NIC0"), "SYS");
  EXPECT_EQ(nvlinks_of(m, gpu0).links, 18);
  expect_same_classes("coherent-memory");
  const Machine again = read_smi_matrix(write_smi_matrix(m), "written");
  EXPECT_EQ(again.gpu(device(again, "GPU1")).memory_numa, 18);
}

// NVIDIA's description of DGX-1 with V100: six NVLinks each, to four others.
TEST(SmiMatrix, HybridCubeMesh) {
  const Machine m = machine_of_file("hybrid-cube-mesh");
  EXPECT_EQ(nvswitches(m), 0);
  for (const int g : m.all(Kind::gpu)) EXPECT_EQ(nvlinks_of(m, g).links, 6) << m[g].name;
  EXPECT_EQ(paths_from(m, device(m, "GPU0"))[static_cast<size_t>(device(m, "GPU5"))].path_class,
            PathClass::nvb);
  EXPECT_EQ(between(m, "GPU0", "GPU5"), "SYS") << "nvidia-smi knows no way through another GPU";
  EXPECT_EQ(between(m, "GPU0", "GPU4"), "NV2");
  expect_same_classes("hybrid-cube-mesh");
}

TEST(SmiMatrix, LinksOfOneGpuMissing) {
  const Machine m = machine_of_file("nvlinks-missing");
  EXPECT_EQ(nvswitches(m), 1);
  EXPECT_EQ(nvlinks_of(m, device(m, "GPU0")).links, 18);
  EXPECT_EQ(nvlinks_of(m, device(m, "GPU3")).links, 17);
  expect_same_classes("nvlinks-missing");
}

TEST(SmiMatrix, LookAlikesAreRefused) {
  EXPECT_THAT(refusal_of_file("p2p-status"),
              HasSubstr("p2p-status:1:1: this table is that of nvidia-smi topo -p2p"));
  EXPECT_THAT(refusal_of_file("rocm-kinds"), HasSubstr("rocm-kinds:2:1: this table is one of rocm-smi"));
  EXPECT_THAT(refusal_of_file("no-table"), HasSubstr("no table of nvidia-smi topo -m"));
  EXPECT_THAT(refusal("", "empty"), HasSubstr("no table of nvidia-smi topo -m"));
  EXPECT_THAT(refusal("GPU0 GPU0\nGPU0 X PIX\n", "twice"), HasSubstr("twice:1:6: GPU0 is there twice"));
  std::string many, row = "GPU0 X";
  for (int i = 0; i <= kMostSmiDevices; ++i) many += fmt::format("GPU{} ", i);
  for (int i = 0; i < kMostSmiDevices; ++i) row += " PIX";
  EXPECT_THAT(refusal(many + "\n" + row + "\n", "many"), HasSubstr("more than 256 devices"));
  EXPECT_THAT(refusal(std::string(kMostSmiBytes + 1, 'x'), "long"),
              HasSubstr("4194305 bytes, and 4194304 are the most"));
}

TEST(SmiMatrix, AsManyDevicesAsMayBe) {
  std::string text;
  for (int i = 0; i < kMostSmiDevices; ++i) text += fmt::format("GPU{} ", i);
  text += "\n";
  for (int i = 0; i < kMostSmiDevices; ++i) {
    text += fmt::format("GPU{}", i);
    for (int j = 0; j < kMostSmiDevices; ++j)
      text += i == j ? " X" : i / 8 == j / 8 ? " PIX" : i / 64 == j / 64 ? " NODE" : " SYS";
    text += "\n";
  }
  const SmiTable t = parse_smi_table(text, "many");
  const Machine m = machine_of(t);
  EXPECT_EQ(m.all(Kind::pci_switch).size(), 32u);
  EXPECT_EQ(m.all(Kind::numa).size(), 4u);
  const SmiTable again = parse_smi_table(write_smi_matrix(m), "written");
  for (size_t i = 0; i < t.cells.size(); ++i) ASSERT_TRUE(again.cells[i].same(t.cells[i])) << i;
}

// A machine as other sources describe it: one card with two ports, a GPU that is hidden, numbers that several
// GPUs have.
TEST(SmiMatrix, WrittenOfAnyMachine) {
  Machine m;
  const int numa =
      m.add({.kind = Kind::numa, .name = "NUMA3", .detail = Numa{.os_index = 3, .cpus = {0, 1, 2, 8}}});
  const int sw = m.add({.kind = Kind::pci_switch, .name = "switch", .parent = numa});
  const int a = m.add({.kind = Kind::gpu, .name = "one", .parent = sw, .detail = Gpu{.index = 0}});
  const int b = m.add({.kind = Kind::gpu, .name = "other", .parent = numa, .detail = Gpu{.index = 0}});
  m.add({.kind = Kind::gpu, .name = "hidden", .parent = numa, .detail = Gpu{.index = 2}, .hidden = true});
  const int card = m.add({.kind = Kind::nic, .name = "card", .parent = sw, .detail = Nic{}});
  for (const char* port : {"mlx5_0", "mlx5_1"})
    m.add({.kind = Kind::port, .name = port, .parent = card, .detail = Port{.device = port}});
  m.link({a, b, LinkKind::nvlink, 4, {80, Source::read}, 0});
  complete(m);
  const std::string text = write_smi_matrix(m);
  EXPECT_THAT(text, testing::StartsWith("\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
                                        "GPU0\t X \tNV4\tPIX\tPIX\t0-2,8\t3\t\tN/A\n"
                                        "GPU1\tNV4\t X \tPHB\tPHB\t0-2,8\t3\t\tN/A\n"
                                        "NIC0\tPIX\tPHB\t X \tPIX\n"
                                        "NIC1\tPIX\tPHB\tPIX\t X \n"
                                        "\nLegend:\n"));
  EXPECT_THAT(text, HasSubstr("\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"));
}

// What each file of the corpus says, read by eye; links per GPU from NVIDIA's descriptions of the machines.
struct Expected {
  const char* file;
  int gpus, nics;
  int nvlinks;  // per GPU; kSeveral: not all have as many
  bool nvswitch;
  std::vector<const char*> cells;    // "GPU0 GPU1 PHB"
  std::vector<const char*> nearest;  // "GPU0 PIX mlx5_0 mlx5_1": all ports of that class
};
constexpr int kSeveral = -1;

const std::vector<Expected> kCorpus = {
    {"8gpu-pcie-6plus2-numa",
     8,
     0,
     0,
     false,
     {"GPU0 GPU1 NODE", "GPU1 GPU2 PHB", "GPU3 GPU4 PHB", "GPU0 GPU5 NODE", "GPU5 GPU6 SYS", "GPU6 GPU7 PHB"},
     {}},
    // DGX-2: V100 with six links, all to NVSwitches.
    {"dgx2-16gpu-10mlx5-first-rows",
     16,
     10,
     6,
     true,
     {"GPU0 GPU15 NV6", "GPU14 GPU15 NV6", "GPU0 mlx5_1 PXB", "GPU0 mlx5_2 NODE", "GPU0 mlx5_4 SYS",
      "mlx5_0 mlx5_1 PXB"},
     {"GPU0 PIX mlx5_0", "GPU1 PIX mlx5_0", "GPU2 PIX mlx5_1", "GPU3 PIX mlx5_1"}},
    // DGX A100: twelve links.
    {"dgxa100-12nic-first-rows",
     8,
     12,
     12,
     true,
     {"GPU0 GPU7 NV12", "GPU4 GPU5 NV12", "GPU0 NIC2 SYS", "GPU2 NIC0 SYS"},
     {"GPU0 PXB NIC0 NIC1", "GPU1 PXB NIC0 NIC1", "GPU2 PXB NIC2 NIC3", "GPU3 PXB NIC2 NIC3"}},
    // GB200: eighteen links, to NVSwitches outside of the tray.
    {"gb200-4gpu-8nic-gpu-numa-ids",
     4,
     8,
     18,
     true,
     {"GPU0 GPU3 NV18", "GPU0 mlx5_0 SYS", "mlx5_2 mlx5_3 PIX", "mlx5_6 mlx5_7 PIX", "mlx5_0 mlx5_1 SYS",
      "mlx5_3 mlx5_4 SYS"},
     {"GPU0 SYS mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7"}},
    {"gb200-4gpu-k8s-test-infra", 4, 0, 18, true, {"GPU0 GPU3 NV18"}, {}},
    // HGX H100: eighteen links.
    {"h100-8gpu-9nic-tabs-truncated",
     8,
     9,
     18,
     true,
     {"GPU0 GPU7 NV18", "GPU0 NIC0 SYS", "GPU7 NIC0 SYS", "GPU0 NIC7 NODE", "NIC6 NIC7 NODE"},
     {"GPU0 PIX NIC8", "GPU1 PIX NIC7", "GPU2 PIX NIC6", "GPU3 PIX NIC5", "GPU4 PIX NIC4", "GPU5 PIX NIC3",
      "GPU6 PIX NIC2", "GPU7 PIX NIC1"}},
    {"h20-deepep-8gpu-14nic-topo-mp-first-rows",
     8,
     14,
     0,
     false,
     {"GPU0 GPU1 NODE", "GPU0 GPU4 SYS", "GPU3 NIC6 NODE", "GPU3 NIC8 SYS"},
     {"GPU0 PIX NIC0", "GPU1 PIX NIC1", "GPU2 PIX NIC2", "GPU3 PIX NIC7"}},
    // H800: eight links of a Hopper's eighteen.
    {"llmaction-8xH800-nic-rows-without-columns",
     8,
     4,
     8,
     true,
     {"GPU0 GPU7 NV8", "GPU0 mlx5_0 NODE", "GPU4 mlx5_0 SYS"},
     {"GPU0 NODE mlx5_0 mlx5_1", "GPU1 PIX mlx5_0", "GPU3 PIX mlx5_1", "GPU7 PIX mlx5_2 mlx5_3",
      "GPU4 NODE mlx5_2 mlx5_3"}},
    {"mock-4gpu-nv12-2mlx5",
     4,
     2,
     12,
     true,
     {"mlx5_0 mlx5_1 SYS"},
     {"GPU0 NODE mlx5_0", "GPU1 NODE mlx5_0", "GPU2 NODE mlx5_1", "GPU3 NODE mlx5_1"}},
    // BM.GPU.H100.8: two ports of 200 Gbit/s beside each GPU, and two of the host.
    {"oci-8xH100-18nic-ANSI",
     8,
     18,
     18,
     true,
     {"mlx5_0 mlx5_1 PIX", "GPU0 mlx5_2 NODE", "mlx5_2 mlx5_3 NODE", "GPU0 mlx5_11 SYS",
      "mlx5_16 mlx5_17 PIX"},
     {"GPU0 PXB mlx5_0 mlx5_1", "GPU1 PXB mlx5_3 mlx5_4", "GPU2 PXB mlx5_5 mlx5_6", "GPU3 PXB mlx5_7 mlx5_8",
      "GPU4 PXB mlx5_9 mlx5_10", "GPU5 PXB mlx5_12 mlx5_13", "GPU6 PXB mlx5_14 mlx5_15",
      "GPU7 PXB mlx5_16 mlx5_17"}},
    // AC922: V100 in pairs of three links; the other three go to the CPU, which the table doesn't show.
    {"p9-or-pcie-4gpu-nv3-pairs-4mlx5",
     4,
     4,
     3,
     false,
     {"GPU0 GPU1 NV3", "GPU1 GPU2 SYS", "mlx5_0 mlx5_1 PIX", "mlx5_1 mlx5_2 SYS"},
     {"GPU0 NODE mlx5_0 mlx5_1", "GPU3 NODE mlx5_2 mlx5_3"}},
    // Perlmutter: A100, four links to each of three others.
    {"perlmutter-4xA100-nv4", 4, 0, 12, false, {"GPU0 GPU3 NV4"}, {}},
    {"rtx-mixed-5gpu-x16x8",
     5,
     0,
     0,
     false,
     {"GPU0 GPU1 SYS", "GPU1 GPU2 PHB", "GPU3 GPU4 PHB", "GPU2 GPU3 NODE"},
     {}},
    {"rtx3090-2gpu-node-wrapped-legend-indented", 2, 0, 0, false, {"GPU0 GPU1 NODE"}, {}},
    {"rtx4090-8gpu-pix-1bond",
     8,
     1,
     0,
     false,
     {"GPU0 GPU3 PIX", "GPU3 GPU4 SYS", "GPU4 GPU7 PIX"},
     {"GPU0 PIX mlx5_bond_0", "GPU3 PIX mlx5_bond_0", "GPU4 SYS mlx5_bond_0"}},
    {"rtx5090-2gpu-phb-and-p2p-matrix", 2, 0, 0, false, {"GPU0 GPU1 PHB"}, {}},
    // HGX H200: eighteen links.
    {"simllm-8xH200-8nic-full",
     8,
     8,
     18,
     true,
     {"GPU0 GPU7 NV18", "mlx5_0 mlx5_1 NODE", "mlx5_3 mlx5_4 SYS"},
     {"GPU0 PIX mlx5_0", "GPU1 PIX mlx5_1", "GPU2 PIX mlx5_2", "GPU3 PIX mlx5_3", "GPU4 PIX mlx5_4",
      "GPU5 PIX mlx5_5", "GPU6 PIX mlx5_6", "GPU7 PIX mlx5_7"}},
    {"single-gpu-soc-legend", 1, 0, 0, false, {}, {}},
    {"soc-4gpu-pcie-old-legend", 4, 0, 0, false, {"GPU0 GPU1 PHB", "GPU1 GPU2 SYS", "GPU2 GPU3 PHB"}, {}},
    {"stas-2gpu-nv", 2, 0, 2, false, {"GPU0 GPU1 NV2"}, {}},
    {"stas-8gpu-affinity-ranges", 8, 0, 18, true, {"GPU0 GPU7 NV18"}, {}},
    {"stas-8gpu-nv18-h100", 8, 0, 18, true, {"GPU0 GPU7 NV18"}, {}},
    {"stelline-2xRTX-2nic-threadripper",
     2,
     2,
     0,
     false,
     {"GPU0 GPU1 PHB", "mlx5_0 mlx5_1 PIX"},
     {"GPU0 NODE mlx5_0 mlx5_1", "GPU1 NODE mlx5_0 mlx5_1"}},
    {"stelline-4xRTX6000Ada-4nic-esc8000a",
     4,
     4,
     0,
     false,
     {"GPU0 GPU1 NODE", "GPU1 GPU2 SYS", "mlx5_2 mlx5_3 PIX"},
     {"GPU0 NODE mlx5_0 mlx5_1", "GPU2 NODE mlx5_2 mlx5_3"}},
    {"v100-2gpu-nv1-mlx5-phb-oldlegend",
     2,
     1,
     1,
     false,
     {"GPU0 GPU1 NV1"},
     {"GPU0 PHB mlx5_0", "GPU1 PHB mlx5_0"}},
    // Half a hybrid cube mesh: what goes to the other half is missing.
    {"v100-4gpu-nv1nv2-mlx5",
     4,
     1,
     kSeveral,
     false,
     {"GPU0 GPU1 NV1", "GPU0 GPU3 NV2", "GPU1 GPU2 NV2", "GPU2 GPU3 NV2"},
     {"GPU0 SYS mlx5_0"}},
    {"wayne-8gpu-12nic-ANSI-underline",
     8,
     12,
     18,
     true,
     {"ibp33s0 ibp36s0 PXB", "ibp36s0 ibp71s0 NODE", "rocep42s0f0 rocep42s0f1 PIX", "GPU0 rocep42s0f0 NODE",
      "GPU0 rocep185s0f0 SYS"},
     {"GPU0 PXB ibp33s0 ibp36s0", "GPU1 PXB ibp33s0 ibp36s0", "GPU2 PXB ibp71s0 ibp74s0",
      "GPU4 PXB ibp140s0 ibp143s0", "GPU7 PXB ibp197s0 ibp200s0"}},
};
// And why the others aren't read.
const std::vector<std::pair<const char*, const char*>> kRefused = {
    {"NOT-nvidia-rocm-smi-xgmi", "one of rocm-smi"},
    {"P2P-STATUS-nccl-docs-8gpu-OK-cells", "nvidia-smi topo -p2p"},
    {"P2P-STATUS-stas-2gpu-CNS-cells", "nvidia-smi topo -p2p"}};

std::string text_of_corpus(const std::string& file) {
  return test::text_of(test::corpus() / "smi-topo" / (file + ".txt"));
}

TEST(SmiMatrixCorpus, EachFileIsReadOrRefused) {
  MUSTER_NEEDS_CORPUS();
  size_t files = 0;
  for (const auto& file : test::files_in(test::corpus() / "smi-topo")) {
    ++files;
    const std::string name = file.stem().string();
    const bool known =
        std::any_of(kCorpus.begin(), kCorpus.end(), [&](const Expected& e) { return name == e.file; }) ||
        std::any_of(kRefused.begin(), kRefused.end(), [&](const auto& r) { return name == r.first; });
    EXPECT_TRUE(known) << name << " is in no list of this test";
  }
  EXPECT_EQ(files, kCorpus.size() + kRefused.size());
  for (const auto& [file, why] : kRefused) EXPECT_THAT(refusal(text_of_corpus(file), file), HasSubstr(why));
}

TEST(SmiMatrixCorpus, SaysWhatTheMachinesAre) {
  MUSTER_NEEDS_CORPUS();
  for (const Expected& e : kCorpus) {
    SCOPED_TRACE(e.file);
    const SmiTable t = parse_smi_table(text_of_corpus(e.file), e.file);
    const Machine m = machine_of(t);
    EXPECT_EQ(static_cast<int>(m.all(Kind::gpu).size()), e.gpus);
    EXPECT_EQ(static_cast<int>(m.all(Kind::port).size()), e.nics);
    EXPECT_EQ(nvswitches(m), e.nvswitch ? 1 : 0);
    if (e.nvlinks != kSeveral) {
      for (const int g : m.all(Kind::gpu)) EXPECT_EQ(nvlinks_of(m, g).links, e.nvlinks) << m[g].name;
    }
    for (const std::string_view cell : e.cells) {
      const auto w = split(cell, ' ');
      EXPECT_EQ(between(m, std::string(w[0]), std::string(w[1])), w[2]) << cell;
      EXPECT_EQ(between(m, std::string(w[1]), std::string(w[0])), w[2]) << cell;
    }
    const auto ports = nearest_ports(m, {.pxn = false});
    const std::vector<int> gpus = m.all(Kind::gpu);
    for (const std::string_view nearest : e.nearest) {
      const auto w = split(nearest, ' ');
      const auto g = static_cast<size_t>(std::find(gpus.begin(), gpus.end(), device(m, std::string(w[0]))) -
                                         gpus.begin());
      ASSERT_LT(g, ports.size());
      std::vector<std::string> best;
      for (const PortChoice& c : ports[g])
        if (c.path.path_class == ports[g][0].path.path_class) best.push_back(m.port(c.port).device);
      EXPECT_EQ(name_of(ports[g][0].path.path_class), w[1]) << nearest;
      EXPECT_THAT(best, testing::UnorderedElementsAreArray(w.begin() + 2, w.end())) << nearest;
    }
    expect_same_classes(t, m);
  }
}

}  // namespace
}  // namespace muster::topology
