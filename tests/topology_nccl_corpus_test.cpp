// Real topology files of others (support/corpus.h) against what their machines are known to be: the numbers of links are
// those of the vendors' descriptions (V100: 6 NVLinks, A100: 12, H100, H200 and B200: 18; MI50 and MI60 in hives of four:
// 2 xGMI, MI100: 3, MI250 as 8 dies of 4 modules: 4 to the other die and 1 to 2 to each neighbour, MI300: 7), the rates of a
// link those of rates.h, the ports those that the clouds and servers are sold with.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "muster/types.h"
#include "support/corpus.h"
#include "topology/compare.h"
#include "topology/nccl_xml.h"
#include "topology/nearest_ports.h"
#include "topology/paths.h"

namespace muster::topology {
namespace {

// Links of a GPU and GB/s of one of them.
struct Nvlinks {
  LinkKind kind = LinkKind::nvlink;
  double each = 0;
  std::vector<int> counts;  // of the GPUs by their numbers, over and over; empty: none
};
const Nvlinks kNone_{};
const Nvlinks kV100{LinkKind::nvlink, 22.2, {6}}, kA100{LinkKind::nvlink, 20, {12}}, kH100{LinkKind::nvlink, 20.6, {18}}, kB200{LinkKind::nvlink, 40.1, {18}};
const Nvlinks kMi50{LinkKind::xgmi, 24, {2}}, kMi100{LinkKind::xgmi, 24, {3}}, kMi250{LinkKind::xgmi, 36, {7, 6}}, kMi300{LinkKind::xgmi, 48, {7}}, kMi300a{LinkKind::xgmi, 48, {3}};
// Models of RCCL's for trying: 8 GPUs with 6 links each; 16 dies of MI250; MI200 in hives of four.
const Nvlinks kSix{LinkKind::xgmi, 24, {6}}, kMi250x16{LinkKind::xgmi, 36, {7}}, kMi200x3{LinkKind::xgmi, 36, {3}};
// NCCL_GP's made-up machines: 20 GB/s, the GPUs in a row.
const Nvlinks kRowOf8{LinkKind::nvlink, 20, {3, 5, 6, 6, 6, 6, 5, 3}}, kRowOf4{LinkKind::nvlink, 20, {3, 5, 5, 3}};

struct Expected {
  const char* file;
  int gpus;
  Nvlinks nvlinks;
  int nics, ports;
  double gbit_per_s;  // of the fastest port; 0: the file doesn't say
  std::set<std::string> findings;
};

const std::vector<Expected> kMachines = {
    // Static files that name devices by their addresses only; NCCL asks the system for the rest.
    {"aws-g5.48xl-rev1.xml", 0, kNone_, 0, 0, 0, {"missing-attribute", "unknown-device"}},
    {"aws-p5.48xl-rev1.xml", 0, kNone_, 0, 0, 0, {"missing-attribute", "unknown-device"}},
    // Clouds' files for virtual machines: by class.
    {"aws-p4d.24xl-rev1.xml", 8, kNone_, 4, 4, 0, {"gpu-details-missing", "nic-details-missing"}},
    {"aws-p4d.24xl-uccl.xml", 8, kNone_, 4, 4, 0, {"gpu-details-missing", "nic-details-missing"}},
    {"azure-ndv2-8xV100.xml", 8, kNone_, 1, 1, 0, {"gpu-details-missing", "nic-details-missing"}},
    {"azure-ndv4-8xA100-8HDR.xml", 8, kNone_, 8, 8, 0, {"gpu-details-missing", "nic-details-missing"}},
    {"azure-ndv4-azhpc-rev2.xml", 8, kNone_, 8, 8, 0, {"gpu-details-missing", "nic-details-missing"}},
    {"azure-ndv4-fairseq.xml", 8, kNone_, 8, 8, 0, {"gpu-details-missing", "nic-details-missing"}},
    {"azure-ndv5-healthchecks.xml", 8, kNone_, 8, 8, 0, {"gpu-details-missing", "nic-details-missing"}},
    {"azure-ndv5-mscclpp.xml", 8, kNone_, 8, 8, 0, {"gpu-details-missing", "nic-details-missing"}},
    {"azure-ndv5-new-ncclbranch.xml", 8, kNone_, 8, 8, 0, {"gpu-details-missing", "nic-details-missing"}},
    {"oci-BM.GPU4.8-topo-flattened.xml", 8, kNone_, 8, 8, 0, {"gpu-details-missing", "nic-details-missing"}},
    {"nebius-8xH100-vm.xml", 8, kNone_, 8, 8, 400, {"gpu-details-missing"}},
    // Written by NCCL, or by hand in its manner.
    {"aws-p5.48xl-8xH100-32EFA.xml", 8, kNone_, 32, 32, 100, {}},
    {"azure-ncv4-healthchecks.xml", 4, kNone_, 1, 1, 100, {"nvlink-to-itself"}},
    {"blinkplus-8xV100.xml", 8, kV100, 2, 3, 10, {}},
    {"modal-b200-vm-v1.xml", 8, kB200, 3, 13, 400, {}},
    {"modal-b200-vm-v2.xml", 8, kB200, 3, 13, 400, {}},
    {"oci-BM.GPU.H100.8.xml", 8, kH100, 8, 16, 180, {}},
    {"oci-oke-BM.GPU.H100.8.xml", 8, kH100, 8, 16, 180, {}},
    {"oci-oke-BM.GPU.A100-v2.8.xml", 8, kA100, 8, 16, 100, {}},
    {"oci-oke-BM.GPU4.8.xml", 8, kA100, 8, 16, 100, {}},
    {"simccl-2A100_1CX6.xml", 2, kA100, 2, 2, 200, {}},
    {"simccl-4A100_2CX6.xml", 4, kA100, 3, 3, 200, {}},
    {"simllm-8xH200-vastai.xml", 8, kH100, 1, 1, 10, {"net-repeated"}},
    {"spark-gb10-abbreviated.xml", 1, kNone_, 2, 2, 200, {"missing-attribute"}},
    {"nccl_miner-3xA5000-2socket.xml", 3, kNone_, 3, 5, 10, {}},
    {"sugarlxn-nccl_topo.xml", 4, kNone_, 2, 16, 10, {"net-repeated"}},
    {"yccl-4xA6000-2socket.xml", 4, kNone_, 3, 10, 10, {}},
    {"yccl-4xA6000-edited.xml", 2, kNone_, 3, 10, 10, {}},
    {"yccl-8xL20-pcie-bf3.xml", 16, kNone_, 8, 8, 400, {}},
    {"yynil-topo.xml", 2, kNone_, 1, 2, 100, {}},
    // Other software's: FlagCX's dump, and NCCL_GP's machines with bus ids that lack a part.
    {"flagcx-xml_topo_dump-rev2.xml", 8, kNone_, 3, 3, 0, {"missing-attribute"}},
    {"nccl_gp-16gpu_node0.xml", 8, kRowOf8, 1, 1, 100, {"odd-bus-id"}},
    {"nccl_gp-16gpu_node1.xml", 8, kRowOf8, 1, 1, 100, {"odd-bus-id"}},
    {"nccl_gp-16gpu_nodenode0.xml", 8, kRowOf8, 1, 1, 100, {"odd-bus-id"}},
    {"nccl_gp-2node_16gpu.xml", 16, kRowOf8, 2, 2, 100, {"odd-bus-id"}},
    {"nccl_gp-2node_4gpu.xml", 8, kRowOf4, 2, 2, 100, {"odd-bus-id", "nvlink-target-missing"}},
    // AMD's.
    {"rccl-model-topo_16p1h.xml", 16, kMi250x16, 8, 8, 200, {}},
    {"rccl-model-topo_16p_gio-3s-1rp-split-flat.xml", 16, kMi300, 1, 1, 1, {}},
    {"rccl-model-topo_3p_pcie_1.xml", 3, kNone_, 1, 1, 200, {}},
    {"rccl-model-topo_4p1h_1.xml", 4, kMi50, 2, 2, 10, {}},
    {"rccl-model-topo_4p2h.xml", 8, kMi50, 1, 1, 100, {}},
    {"rccl-model-topo_4p2h_1.xml", 8, kMi50, 1, 1, 100, {}},
    {"rccl-model-topo_4p2h_2nic.xml", 8, kMi50, 2, 2, 100, {}},
    {"rccl-model-topo_4p2h_3.xml", 8, kMi200x3, 1, 1, 1, {}},
    {"rccl-model-topo_4p3l.xml", 4, kMi100, 2, 2, 10, {"implausible-pci-link"}},
    {"rccl-model-topo_4p3l_2h.xml", 8, kMi100, 1, 1, 200, {}},
    {"rccl-model-topo_4p3l_n2.xml", 8, kMi100, 1, 1, 200, {}},
    {"rccl-model-topo_4p3l_n2_1.xml", 8, kMi100, 1, 1, 200, {}},
    {"rccl-model-topo_4p3l_n4.xml", 8, kMi100, 1, 1, 200, {}},
    {"rccl-model-topo_4p4h.xml", 16, kMi100, 16, 16, 200, {"duplicate-bus-id"}},
    {"rccl-model-topo_4p_940.xml", 4, kMi300a, 4, 4, 200, {"implausible-port-speed"}},
    {"rccl-model-topo_4p_942.xml", 4, kMi300a, 4, 4, 200, {"implausible-port-speed"}},
    {"rccl-model-topo_8p1h.xml", 8, kMi250, 4, 4, 200, {}},
    {"rccl-model-topo_8p1h_1.xml", 8, kMi250, 4, 4, 200, {"duplicate-bus-id"}},
    {"rccl-model-topo_8p1h_2.xml", 8, kMi250, 2, 2, 10, {}},
    {"rccl-model-topo_8p1h_3.xml", 8, kMi250, 4, 4, 200, {}},
    {"rccl-model-topo_8p1h_4.xml", 8, kMi250, 8, 8, 200, {}},
    {"rccl-model-topo_8p1h_5.xml", 8, kMi250, 8, 8, 200, {}},
    {"rccl-model-topo_8p1h_n1.xml", 8, kMi250, 4, 4, 200, {}},
    {"rccl-model-topo_8p6l.xml", 8, kSix, 1, 1, 200, {}},
    {"rccl-model-topo_8p6l_1nic.xml", 8, kSix, 1, 1, 200, {}},
    {"rccl-model-topo_8p6l_2nic.xml", 8, kSix, 2, 2, 200, {}},
    {"rccl-model-topo_8p6l_3nic.xml", 8, kSix, 3, 3, 200, {}},
    {"rccl-model-topo_8p6l_4nic.xml", 8, kSix, 4, 4, 200, {}},
    {"rccl-model-topo_8p6l_5nic.xml", 8, kSix, 5, 5, 200, {}},
    {"rccl-model-topo_8p6l_6nic.xml", 8, kSix, 6, 6, 200, {}},
    {"rccl-model-topo_8p_4nics.xml", 8, kMi100, 4, 4, 200, {}},
    {"rccl-model-topo_8p_90a.xml", 8, kMi200x3, 1, 1, 1, {}},
    {"rccl-model-topo_8p_940.xml", 8, kMi300, 8, 8, 400, {}},
    {"rccl-model-topo_8p_940vm.xml", 8, kMi300, 8, 8, 400, {}},
    {"rccl-model-topo_8p_pcie.xml", 8, kNone_, 1, 1, 100, {}},
    {"rccl-model-topo_8p_pcie_1.xml", 8, kNone_, 1, 1, 100, {}},
    {"rccl-model-topo_8p_rome_4n_2.xml", 8, kMi100, 4, 4, 100, {}},
    {"rccl-model-topo_8p_rome_n1.xml", 8, kMi50, 1, 1, 200, {}},
    {"rccl-model-topo_8p_rome_n2.xml", 8, kMi50, 1, 1, 200, {}},
    {"rccl-model-topo_8p_rome_n2_1.xml", 8, kMi50, 2, 2, 200, {}},
    {"rccl-model-topo_8p_rome_n2_2.xml", 8, kMi50, 1, 2, 200, {}},
    {"rccl-model-topo_8p_rome_n4.xml", 8, kMi50, 1, 1, 200, {}},
    {"rccl-model-topo_8p_rome_pcie.xml", 8, kNone_, 1, 2, 100, {}},
    {"rccl-model-topo_8p_rome_vm1.xml", 8, kMi100, 1, 1, 100, {}},
    {"rccl-model-topo_8p_ts1.xml", 8, kMi50, 2, 2, 200, {}},
    {"rccl-model-topo_8p_ts1_n4.xml", 8, kMi50, 2, 2, 200, {}},
    {"rccl-model-topo_8p_ts1_n4_2.xml", 8, kMi50, 2, 3, 200, {}},
    {"rccl-model-topo_collnet_n4.xml", 8, kMi100, 4, 4, 200, {}},
};

const std::map<std::string, std::string> kRefused = {
    {"aws-p5.48xl-autogen-nccl2.30-truncated.xml", "it was cut off"},
    {"nccl_issue-671-dgx1v-truncated.xml", "it was cut off"},
    {"nccl_issue-H200-vm-numa-1-truncated.xml", "it was cut off"},
    {"flagcx-xml_topo.xml", "is empty"},
    {"flagcx-topo_demo.xml", "a list of which GPU uses which NIC, as FlagCX has it, and no topology"},
    {"flagcx-perf-topo_demo.xml", "a list of which GPU uses which NIC, as FlagCX has it, and no topology"},
};

// What hasn't been looked at is not in the table: then it should be put there.
TEST(NcclCorpus, EveryFileIsInTheTable) {
  MUSTER_NEEDS_CORPUS();
  std::set<std::string> known;
  for (const Expected& e : kMachines) known.insert(e.file);
  for (const auto& [file, why] : kRefused) known.insert(file);
  for (const auto& file : test::files_in(test::corpus() / "nccl-topo")) EXPECT_TRUE(known.contains(file.filename().string())) << file;
}

Machine read(const std::string& file) {
  const Cluster c = read_nccl_xml(test::text_of(test::corpus() / "nccl-topo" / file), file);
  EXPECT_EQ(c.host_count(), 1) << file;
  EXPECT_THAT(c.findings, testing::IsEmpty()) << file;
  return c.machine_of(0);
}

TEST(NcclCorpus, Machines) {
  MUSTER_NEEDS_CORPUS();
  for (const Expected& e : kMachines) {
    SCOPED_TRACE(e.file);
    const Machine m = read(e.file);
    const std::vector<int> gpus = m.all(Kind::gpu);
    EXPECT_EQ(static_cast<int>(gpus.size()), e.gpus);
    for (size_t g = 0; g < gpus.size(); ++g) {
      const int count = e.nvlinks.counts.empty() ? 0 : e.nvlinks.counts[g % e.nvlinks.counts.size()];
      EXPECT_EQ(nvlinks_of(m, gpus[g]).links, count) << g;
      EXPECT_NEAR(nvlinks_of(m, gpus[g]).rate.gb_per_s, count * e.nvlinks.each, 1e-9) << g;
    }
    for (const Link& l : m.links) EXPECT_TRUE(!is_nvlink_class(l.kind) || l.kind == e.nvlinks.kind);
    EXPECT_EQ(static_cast<int>(m.all(Kind::nic).size()), e.nics);
    EXPECT_EQ(static_cast<int>(m.all(Kind::port).size()), e.ports);
    double fastest = 0;
    for (const int p : m.all(Kind::port)) fastest = std::max(fastest, m.port(p).gbit_per_s);
    EXPECT_EQ(fastest, e.gbit_per_s);
    std::set<std::string> findings;
    for (const Finding& f : m.findings) {
      findings.insert(f.id);
      EXPECT_TRUE(f.where.starts_with(e.file)) << f.where;
      EXPECT_NE(f.text, "");
    }
    EXPECT_EQ(findings, e.findings);
  }
}

TEST(NcclCorpus, Refused) {
  MUSTER_NEEDS_CORPUS();
  for (const auto& [file, why] : kRefused) {
    try {
      read_nccl_xml(test::text_of(test::corpus() / "nccl-topo" / file), file);
      ADD_FAILURE() << file << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Result::invalid_argument);
      EXPECT_THAT(error.what(), testing::AllOf(testing::StartsWith(file), testing::HasSubstr(why)));
    }
  }
}

TEST(NcclCorpus, WrittenAndReadAgain) {
  MUSTER_NEEDS_CORPUS();
  for (const Expected& e : kMachines) {
    const Machine m = read(e.file);
    const Cluster again = read_nccl_xml(write_nccl_xml(m), "again");
    std::string difference;
    EXPECT_TRUE(same_meaning(m, again.machine_of(0), &difference)) << e.file << "\n" << difference;
  }
}

// Classes between GPUs, and the nearest ports of each, of machine types whose build is published.
struct Build {
  const char* file;
  std::function<PathClass(int, int)> between;  // GPUs by number
  PathClass to_port;
  std::vector<std::string> nearest;  // of each GPU, in the order of their numbers: those of the best class and rate
};

PathClass nvl(int, int) { return PathClass::nvl; }
// Two GPUs to a switch, a switch to a NUMA node.
PathClass pairs_on_numas(int a, int b) { return a / 2 == b / 2 ? PathClass::pix : PathClass::sys; }
// A GPU to a switch, four to a socket.
PathClass four_to_a_socket(int a, int b) { return a / 4 == b / 4 ? PathClass::phb : PathClass::sys; }
// Two GPUs to a switch, two switches to a socket.
PathClass pairs_to_a_socket(int a, int b) { return a / 2 == b / 2 ? PathClass::pix : four_to_a_socket(a, b); }
// Hives of four, each GPU joined with each.
PathClass hives_of_four(int a, int b) { return a / 4 == b / 4 ? PathClass::nvl : PathClass::sys; }
// DGX-1: two groups of four, each GPU joined with each, and with its like in the other.
PathClass hybrid_cube_mesh(int a, int b) { return a / 4 == b / 4 || a % 4 == b % 4 ? PathClass::nvl : PathClass::nvb; }

const std::vector<Build> kBuilds = {
    {"aws-p4d.24xl-rev1.xml", pairs_to_a_socket, PathClass::pix, {"NIC0", "NIC0", "NIC1", "NIC1", "NIC2", "NIC2", "NIC3", "NIC3"}},
    {"aws-p4d.24xl-uccl.xml", pairs_to_a_socket, PathClass::pix, {"NIC0", "NIC0", "NIC1", "NIC1", "NIC2", "NIC2", "NIC3", "NIC3"}},
    {"aws-p5.48xl-8xH100-32EFA.xml", [](int, int) { return PathClass::phb; }, PathClass::pix,
     {"rdmap79s0 rdmap80s0 rdmap81s0 rdmap82s0", "rdmap96s0 rdmap97s0 rdmap98s0 rdmap99s0", "rdmap113s0 rdmap114s0 rdmap115s0 rdmap116s0",
      "rdmap130s0 rdmap131s0 rdmap132s0 rdmap133s0", "rdmap147s0 rdmap148s0 rdmap149s0 rdmap150s0", "rdmap164s0 rdmap165s0 rdmap166s0 rdmap167s0",
      "rdmap181s0 rdmap182s0 rdmap183s0 rdmap184s0", "rdmap198s0 rdmap199s0 rdmap200s0 rdmap201s0"}},
    {"azure-ndv2-8xV100.xml", four_to_a_socket, PathClass::phb, {"NIC0", "NIC0", "NIC0", "NIC0"}},
    {"azure-ndv4-8xA100-8HDR.xml", pairs_on_numas, PathClass::pix,
     {"NIC0 NIC1", "NIC0 NIC1", "NIC2 NIC3", "NIC2 NIC3", "NIC4 NIC5", "NIC4 NIC5", "NIC6 NIC7", "NIC6 NIC7"}},
    {"azure-ndv5-mscclpp.xml", four_to_a_socket, PathClass::pix, {"NIC0", "NIC1", "NIC2", "NIC3", "NIC4", "NIC5", "NIC6", "NIC7"}},
    {"azure-ndv5-healthchecks.xml", four_to_a_socket, PathClass::pix, {"NIC0", "NIC1", "NIC2", "NIC3", "NIC4", "NIC5", "NIC6", "NIC7"}},
    {"oci-BM.GPU4.8-topo-flattened.xml", pairs_on_numas, PathClass::pix,
     {"NIC0 NIC1", "NIC0 NIC1", "NIC2 NIC3", "NIC2 NIC3", "NIC4 NIC5", "NIC4 NIC5", "NIC6 NIC7", "NIC6 NIC7"}},
    {"oci-oke-BM.GPU4.8.xml", nvl, PathClass::pxb,
     {"mlx5_18 mlx5_19 mlx5_26 mlx5_27", "mlx5_18 mlx5_19 mlx5_26 mlx5_27", "mlx5_28 mlx5_29 mlx5_30 mlx5_31", "mlx5_28 mlx5_29 mlx5_30 mlx5_31",
      "mlx5_20 mlx5_21 mlx5_32 mlx5_33", "mlx5_20 mlx5_21 mlx5_32 mlx5_33", "mlx5_22 mlx5_23 mlx5_24 mlx5_25", "mlx5_22 mlx5_23 mlx5_24 mlx5_25"}},
    {"oci-BM.GPU.H100.8.xml", nvl, PathClass::pxb,
     {"mlx5_0 mlx5_1", "mlx5_3 mlx5_4", "mlx5_5 mlx5_6", "mlx5_7 mlx5_8", "mlx5_10 mlx5_9", "mlx5_12 mlx5_13", "mlx5_14 mlx5_15", "mlx5_16 mlx5_17"}},
    {"nebius-8xH100-vm.xml", four_to_a_socket, PathClass::pix, {"mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7", "mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}},
    {"simccl-4A100_2CX6.xml", nvl, PathClass::pxb, {"mlx5_bond_1", "mlx5_bond_1", "mlx5_bond_2", "mlx5_bond_2"}},
    {"yccl-8xL20-pcie-bf3.xml",
     // Two GPUs and a BlueField-3 to a switch, two such below another, two of those to a socket.
     [](int a, int b) {
       const auto socket = [](int g) { return g / 2 % 2; };
       return a / 2 == b / 2 ? PathClass::pix : socket(a) != socket(b) ? PathClass::sys : a / 8 == b / 8 ? PathClass::pxb : PathClass::phb;
     },
     PathClass::pix,
     {"mlx5_1", "mlx5_1", "mlx5_2", "mlx5_2", "mlx5_3", "mlx5_3", "mlx5_4", "mlx5_4", "mlx5_5", "mlx5_5", "mlx5_6", "mlx5_6", "mlx5_7", "mlx5_7", "mlx5_8", "mlx5_8"}},
    {"blinkplus-8xV100.xml", hybrid_cube_mesh, PathClass::phb, {"br-d774142ed332 lxcbr0", "br-d774142ed332 lxcbr0", "br-d774142ed332 lxcbr0", "br-d774142ed332 lxcbr0"}},
    {"modal-b200-vm-v2.xml", nvl, PathClass::phb, {}},
    {"simllm-8xH200-vastai.xml", nvl, PathClass::phb, {"eth0", "eth0", "eth0", "eth0"}},
    {"yynil-topo.xml", [](int, int) { return PathClass::sys; }, PathClass::phb, {"mlx5_0 mlx5_1"}},
    {"rccl-model-topo_8p_940.xml", nvl, PathClass::pxb, {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"}},
    {"rccl-model-topo_4p_942.xml", nvl, PathClass::phb, {"cxi0", "cxi1", "cxi2", "cxi3"}},
    {"rccl-model-topo_4p3l_2h.xml", hives_of_four, PathClass::phb, {}},
    {"rccl-model-topo_8p_rome_vm1.xml", hives_of_four, PathClass::phb, {"eth0", "eth0"}},
    {"rccl-model-topo_8p_4nics.xml", hives_of_four, PathClass::pxb, {"mlx5_1", "mlx5_1", "mlx5_3", "mlx5_3", "mlx5_5", "mlx5_5", "mlx5_7", "mlx5_7"}},
    // A ring of four with two links each.
    {"rccl-model-topo_4p2h.xml", [](int a, int b) { return a / 4 != b / 4 ? PathClass::phb : a + b == 3 || a + b == 11 ? PathClass::nvb : PathClass::nvl; }, PathClass::pxb, {"mlx5_0", "mlx5_0", "mlx5_0", "mlx5_0"}},
    {"rccl-model-topo_8p_pcie.xml", [](int a, int b) { return a / 4 == b / 4 ? PathClass::pxb : PathClass::phb; }, PathClass::pxb, {"mlx5_0", "mlx5_0", "mlx5_0", "mlx5_0"}},
};

TEST(NcclCorpus, Builds) {
  MUSTER_NEEDS_CORPUS();
  for (const Build& build : kBuilds) {
    SCOPED_TRACE(build.file);
    const Machine m = read(build.file);
    const std::vector<int> gpus = m.all(Kind::gpu);
    const auto ports = nearest_ports(m, {.pxn = false});
    for (size_t a = 0; a < gpus.size(); ++a) {
      EXPECT_EQ(m.gpu(gpus[a]).index, static_cast<int>(a));
      const std::vector<Path> paths = paths_from(m, gpus[a]);
      for (size_t b = 0; b < gpus.size(); ++b) {
        const PathClass expected = a == b ? PathClass::loc : build.between(static_cast<int>(a), static_cast<int>(b));
        EXPECT_EQ(name_of(paths[static_cast<size_t>(gpus[b])].path_class), name_of(expected)) << "GPU" << a << " and GPU" << b;
      }
      if (a >= build.nearest.size()) continue;
      std::set<std::string> near;
      for (const PortChoice& c : ports[a])
        if (c.path.path_class == ports[a][0].path.path_class && c.path.rate.gb_per_s == ports[a][0].path.rate.gb_per_s)
          near.insert(m[c.port].name);
      EXPECT_EQ(fmt::format("{}", fmt::join(near, " ")), build.nearest[a]) << "GPU" << a;
      EXPECT_EQ(name_of(ports[a][0].path.path_class), name_of(build.to_port)) << "GPU" << a;
    }
  }
}

// Two links between some GPUs of a DGX-1, one between others, as NVIDIA draws it.
TEST(NcclCorpus, HybridCubeMesh) {
  MUSTER_NEEDS_CORPUS();
  const Machine m = read("blinkplus-8xV100.xml");
  for (const auto& [a, b, links] : {std::tuple(0, 1, 1), {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2}, {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}})
    EXPECT_EQ(paths_from(m, m.gpu_with_index(a))[static_cast<size_t>(m.gpu_with_index(b))].rate.gb_per_s, 22.2 * links) << a << " " << b;
}

// Eight 400 Gbit/s ports, four at each socket.
TEST(NcclCorpus, PortsOfASocket) {
  MUSTER_NEEDS_CORPUS();
  const Machine m = read("modal-b200-vm-v2.xml");
  for (int p = 0; p < 13; ++p) EXPECT_EQ(m[m.numa_of(m.find(fmt::format("mlx5_{}", p)))].name, p < 9 ? "NUMA0" : "NUMA1");
  const Path near = paths_from(m, m.find("GPU4"))[static_cast<size_t>(m.find("mlx5_9"))];
  EXPECT_EQ(near.path_class, PathClass::phb);
  EXPECT_EQ(near.rate.gb_per_s, 48);  // PCIe 5 x16, less than the port's 50
}

// GB10: C2C of 8 x 43125 MB/s.
TEST(NcclCorpus, C2c) {
  MUSTER_NEEDS_CORPUS();
  const Machine m = read("spark-gb10-abbreviated.xml");
  const Path p = paths_from(m, m.find("GPU0"))[static_cast<size_t>(m.all(Kind::numa)[0])];
  EXPECT_EQ(p.path_class, PathClass::c2c);
  EXPECT_DOUBLE_EQ(p.rate.gb_per_s, 345);
}

}  // namespace
}  // namespace muster::topology
