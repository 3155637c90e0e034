// hwloc's files: real ones of 33 machines, and small ones of our own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "muster/types.h"
#include "support/corpus.h"
#include "topology/hwloc_xml.h"
#include "topology/nearest_ports.h"
#include "topology/paths.h"

namespace muster::topology {
namespace {

using testing::HasSubstr;

// What is known of the machines: vendors' descriptions, and the lists of PCI functions in the files.
struct Known {
  const char* file;
  int packages;  // kNone: several in each NUMA node
  size_t numas;  // those of GPU memory (POWER9) included
  size_t gpus;
  int chip;         // compute capability times ten, or the number of AMD's architecture; 0: older than those
  int nvlinks;      // per GPU
  double gb_per_s;  // of all of them
  int nvswitches;
  int infiniband, roce, efa, ethernet;  // ports
  const char* what;
};

constexpr Known kMachines[] = {
    {"flux-core-ipa20.xml", 2, 8, 4, 90, 18, 370.8, 0, 4, 0, 0, 2, "HGX H100 4-GPU: 6 links between any two"},
    {"flux-core-sierra.xml", 2, 6, 4, 70, 0, 0, 0, 4, 0, 0, 2,
     "Sierra: 2 POWER9, 4 V100, 2 two-port ConnectX-5; hwloc 1 tells no NVLink"},
    {"flux-core-tuo.TPX.xml", 4, 4, 12, 942, 0, 0, 0, 0, 0, 0, 5,
     "Tuolumne: 4 MI300A in 3 partitions each, 4 Slingshot"},
    {"flux-sched-chimera.xml", 1, 4, 2, 0, 0, 0, 0, 0, 0, 0, 3, "Threadripper with a GTX 1080 and a Vega"},
    {"hwloc-24em64t-2n6c2t-pci.xml", 2, 2, 3, 0, 0, 0, 0, 1, 0, 0, 2, "3 Tesla M2050, ConnectX-2"},
    {"hwloc-32em64t-2n8c2t-pci-normalio.xml", 2, 2, 4, 0, 0, 0, 0, 1, 0, 0, 2,
     "3 Fermi, a Tahiti, Connect-IB"},
    {"hwloc-32em64t-2n8c2t-pci-wholeio.xml", 2, 2, 4, 0, 0, 0, 0, 1, 0, 0, 2, "the same"},
    {"hwloc-64intel64-3g2n+2n-irregulargroups+pci.xml", 8, 8, 2, 0, 0, 0, 0, 0, 0, 0, 2,
     "8 sockets, 2 Quadro K4000"},
    {"hwloc-96em64t-4n4d3ca2co-pci.xml", kNone, 4, 0, 0, 0, 0, 0, 0, 0, 0, 8,
     "16 sockets in 4 nodes; its ES1000 is no GPU"},
    {"hwloc-cxlmem+dax.v2.xml", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, "QEMU"},
    {"hwloc-cxlmem+dax.v3.xml", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, "QEMU"},
    {"hwloc-devel09-pci.xml", 2, 2, 0, 0, 0, 0, 0, 1, 0, 0, 2, "ConnectX IB DDR"},
    {"hwloc-fakeheterodistances.xml", 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, ""},
    {"hwloc-fakepcilocalities.xml", 4, 4, 0, 0, 0, 0, 0, 1, 0, 0, 4, "a QLogic IB card"},
    {"hwloc-irregulargroups-disallowed.xml", 8, 8, 2, 0, 0, 0, 0, 0, 0, 0, 2, ""},
    {"hwloc-nvidia-dgx-gb10.xml", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, "written without I/O"},
    {"hwloc-nvidia-dgx-gb10-nomidr.xml", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, "written without I/O"},
    {"hwloc-nvidiaDGX2.xml", 2, 2, 16, 70, 6, 120, 12, 0, 0, 0, 0,
     "DGX-2: 16 V100, a link to each of 6 of 12 NVSwitches"},
    {"hwloc-power8gpudistances.xml", 2, 2, 4, 60, 4, 72, 0, 0, 0, 0, 0,
     "Minsky: 2 links to the other P100, 2 to the POWER8"},
    {"mpibind-arm64-ulna-hwloc1.xml", 2, 2, 2, 0, 0, 0, 0, 2, 2, 0, 0, "ThunderX2, 2 FirePro"},
    {"mpibind-coral-butte-hwloc1.xml", 2, 6, 4, 70, 0, 0, 0, 4, 0, 0, 2, "as Sierra"},
    {"mpibind-coral-lassen-hwloc1.xml", 2, 6, 4, 70, 0, 0, 0, 4, 0, 0, 2, "as Sierra"},
    {"mpibind-cts1-pascal.xml", 2, 2, 2, 60, 0, 0, 0, 1, 0, 0, 2, "2 P100 PCIe"},
    {"mpibind-eas-tioga.xml", 1, 4, 8, 910, 0, 0, 0, 0, 0, 0, 5, "4 MI250X of 2 dies, 4 Slingshot"},
    {"mpibind-epyc-corona.xml", 2, 8, 4, 906, 0, 0, 0, 1, 0, 0, 2, "4 MI50"},
    {"nixl-c5n.18xl.xml", 2, 2, 0, 0, 0, 0, 0, 0, 0, 1, 1, "AWS c5n.18xlarge"},
    {"nixl-g6.48xl.xml", 2, 2, 8, 89, 0, 0, 0, 0, 0, 1, 1, "AWS g6.48xlarge: 8 L4"},
    {"nixl-p5en.48xl.xml", 2, 2, 8, 90, 0, 0, 0, 0, 0, 16, 16,
     "AWS p5en.48xlarge: 8 H200, 16 EFA; hwloc was built without NVML"},
    {"nixl-p6-b200.48xl.xml", 2, 2, 8, 100, 0, 0, 0, 2, 0, 8, 8, "AWS p6-b200.48xlarge: 8 B200, 8 EFA"},
    {"nixl-trn1.32xl.xml", 2, 2, 0, 0, 0, 0, 0, 0, 0, 8, 8, "AWS trn1.32xlarge"},
    {"nixl-trn2.48xl.xml", 2, 2, 0, 0, 0, 0, 0, 0, 0, 16, 16, "AWS trn2.48xlarge"},
    {"prrte-turin-4gpu-nvml.xml", 2, 8, 4, 90, 18, 370.8, 0, 4, 2, 0, 1, "SD665-N V3: 4 H200, 4 ConnectX-7"},
    {"prrte-turin-4gpu.xml", 2, 8, 4, 90, 0, 0, 0, 4, 2, 0, 1, "the same without NVML"},
};

Machine machine(const std::string& file) {
  return read_hwloc_xml(test::text_of(test::corpus() / "hwloc" / file), file);
}

int ports_of(const Machine& m, Network kind) {
  int n = 0;
  for (const int p : m.all(Kind::port)) n += m.port(p).network == kind;
  return n;
}

bool has_finding(const Machine& m, std::string_view id) {
  return std::any_of(m.findings.begin(), m.findings.end(), [&](const Finding& f) { return f.id == id; });
}

TEST(HwlocFiles, AllAreInTheTable) {
  MUSTER_NEEDS_CORPUS();
  std::set<std::string> there, known;
  for (const auto& path : test::files_in(test::corpus() / "hwloc")) there.insert(path.filename());
  for (const Known& k : kMachines) known.insert(k.file);
  EXPECT_EQ(there, known);
}

TEST(HwlocFiles, AreTheMachinesThatTheyAreKnownToBe) {
  MUSTER_NEEDS_CORPUS();
  for (const Known& k : kMachines) {
    SCOPED_TRACE(std::string(k.file) + ": " + k.what);
    const Machine m = machine(k.file);
    std::set<int> packages;
    for (const int n : m.all(Kind::numa))
      if (m.numa(n).package != kNone) packages.insert(m.numa(n).package);
    EXPECT_EQ(static_cast<int>(packages.size()), std::max(0, k.packages));
    EXPECT_EQ(m.all(Kind::numa).size(), k.numas);
    EXPECT_EQ(m.all(Kind::gpu).size(), k.gpus);
    std::set<int> numbers;
    for (const int g : m.all(Kind::gpu)) {
      EXPECT_TRUE(k.chip == 0 || std::max(m.gpu(g).sm, m.gpu(g).gcn) == k.chip)
          << m.gpu(g).sm << ' ' << m.gpu(g).gcn;
      numbers.insert(m.gpu(g).index);
      EXPECT_EQ(m[g].name, "GPU" + std::to_string(m.gpu(g).index));
      NvlinkTotal total;
      for (const Link& l : m.links)
        if (l.kind == LinkKind::nvlink && (l.a == g || l.b == g)) {
          total.links += l.count;
          total.rate.gb_per_s += l.rate.gb_per_s;
        }
      EXPECT_EQ(total.links, k.nvlinks);
      EXPECT_NEAR(total.rate.gb_per_s, k.gb_per_s, 1e-6);
      EXPECT_EQ(m[m.numa_of(g)].kind, Kind::numa);
    }
    EXPECT_EQ(numbers.size(), k.gpus);
    EXPECT_TRUE(k.gpus == 0 || (*numbers.begin() == 0 && *numbers.rbegin() == static_cast<int>(k.gpus) - 1));
    const auto switches = m.all(Kind::nvswitch);
    EXPECT_EQ(switches.empty() ? 0 : std::get<NvSwitch>(m[switches[0]].detail).count, k.nvswitches);
    EXPECT_EQ(ports_of(m, Network::infiniband), k.infiniband);
    EXPECT_EQ(ports_of(m, Network::roce), k.roce);
    EXPECT_EQ(ports_of(m, Network::efa), k.efa);
    EXPECT_EQ(ports_of(m, Network::ethernet), k.ethernet);
    EXPECT_EQ(ports_of(m, Network::unknown), 0);
    // That NVLinks are missing in the file is said where there could be some.
    EXPECT_EQ(
        has_finding(m, "nvlink-unknown"),
        k.nvlinks == 0 && k.gpus > 1 && (k.chip == 60 || k.chip == 70 || k.chip == 90 || k.chip == 100));
  }
}

// Tuolumne's packages are joined by xGMI, by how many links its file doesn't say; each is three GPUs, which
// share them.
TEST(HwlocFiles, PartitionsShareTheLinksOfTheirPackage) {
  MUSTER_NEEDS_CORPUS();
  const Machine m = machine("flux-core-tuo.TPX.xml");
  EXPECT_TRUE(has_finding(m, "xgmi-links-shared"));
  std::map<std::pair<PciAddress, PciAddress>, double> between;
  for (const Link& l : m.links)
    if (l.kind == LinkKind::xgmi) {
      const PciAddress a = m[l.a].pci->address, b = m[l.b].pci->address;
      if (a != b) between[std::minmax(a, b)] += l.rate.gb_per_s;
    }
  EXPECT_EQ(between.size(), 6u);
  for (const auto& [pair, rate] : between) EXPECT_NEAR(rate, 48, 1e-6);
}

std::string_view class_between(const Machine& m, std::string_view a, std::string_view b) {
  const int from = m.find(a), to = m.find(b);
  if (from == kNone || to == kNone) return "?";
  return name_of(paths_from(m, from)[static_cast<size_t>(to)].path_class);
}

TEST(HwlocFiles, ClassesBetweenDevices) {
  MUSTER_NEEDS_CORPUS();
  const Machine dgx2 = machine("hwloc-nvidiaDGX2.xml");
  EXPECT_EQ(class_between(dgx2, "GPU0", "GPU15"), "NVL");

  const Machine minsky = machine("hwloc-power8gpudistances.xml");
  EXPECT_EQ(class_between(minsky, "GPU0", "GPU1"), "NVL");
  EXPECT_EQ(class_between(minsky, "GPU2", "GPU3"), "NVL");
  EXPECT_EQ(class_between(minsky, "GPU0", "GPU2"), "SYS");

  // Each ConnectX-7 has a switch in it, and behind that a second one with the GPU.
  const Machine turin = machine("prrte-turin-4gpu.xml");
  EXPECT_EQ(class_between(turin, "GPU0", "mlx5_0"), "PXB");
  EXPECT_EQ(class_between(turin, "GPU0", "mlx5_3"), "SYS");
  EXPECT_EQ(class_between(turin, "GPU0", "GPU1"), "SYS");
  EXPECT_EQ(class_between(machine("prrte-turin-4gpu-nvml.xml"), "GPU0", "GPU1"), "NVL");

  // Per switch 2 H200 and 4 EFA.
  const Machine p5en = machine("nixl-p5en.48xl.xml");
  EXPECT_EQ(class_between(p5en, "GPU0", "GPU1"), "PIX");
  EXPECT_EQ(class_between(p5en, "GPU0", "rdmap85s0"), "PIX");
  EXPECT_EQ(class_between(p5en, "GPU2", "rdmap110s0"), "PIX");
  EXPECT_EQ(class_between(p5en, "GPU0", "rdmap163s0"), "SYS");

  const Machine lassen = machine("mpibind-coral-lassen-hwloc1.xml");
  EXPECT_EQ(class_between(lassen, "GPU0", "GPU1"), "PIX");
  EXPECT_EQ(class_between(lassen, "GPU0", "GPU2"), "SYS");
  EXPECT_EQ(class_between(lassen, "GPU0", "mlx5_3"), "SYS");
}

TEST(HwlocFiles, DetailsAreRead) {
  MUSTER_NEEDS_CORPUS();
  const Machine m = machine("flux-core-ipa20.xml");
  const int gpu = m.gpu_with_index(0);
  EXPECT_EQ(m.gpu(gpu).model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(m[gpu].pci->address.text(), "0000:4e:00.0");
  EXPECT_EQ(m[gpu].pci->gigatransfers, 32);
  EXPECT_EQ(m[gpu].pci->lanes, 16);
  const int port = m.find("mlx5_0");
  EXPECT_EQ(m.port(port).interface, "hsi0");
  EXPECT_EQ(m.port(port).up, Answer3::yes);
  EXPECT_EQ(m.port(m.find("mlx5_1")).up, Answer3::no);
  EXPECT_EQ(m.port(port).guid, "0x043f720300aea282");
  EXPECT_EQ(m.nic(m.nic_of(port)).guid, m.nic(m.nic_of(m.find("mlx5_1"))).guid);  // two ports of a card
  EXPECT_EQ(m.numa(m.numa_of(gpu)).vendor, "GenuineIntel");
  // 2 nodes of 14 cores with 2 threads
  EXPECT_EQ(m.numa(m.find("NUMA0")).cpus.size(), 28u);
  EXPECT_EQ(m.numa(m.find("NUMA0")).memory_bytes, 540245127168u);

  for (const auto& [file, arch] : {std::pair{"flux-core-ipa20.xml", CpuArch::x86_64},
                                   {"hwloc-nvidiaDGX2.xml", CpuArch::x86_64},
                                   {"mpibind-coral-lassen-hwloc1.xml", CpuArch::ppc64},
                                   {"mpibind-arm64-ulna-hwloc1.xml", CpuArch::arm64},
                                   {"hwloc-nvidia-dgx-gb10.xml", CpuArch::arm64}})
    EXPECT_EQ(machine(file).numa(0).arch, arch) << file;

  const Machine disallowed = machine("hwloc-irregulargroups-disallowed.xml");
  EXPECT_THAT(disallowed.numa(0).cpus, testing::SizeIs(8));
}

std::string file(const std::string& objects, const std::string& rest = "",
                 const std::string& version = "2.0") {
  return "<?xml version=\"1.0\"?>\n<topology version=\"" + version +
         "\">\n<object type=\"Machine\" os_index=\"0\">\n" + objects + "</object>\n" + rest + "</topology>\n";
}

std::string gpu_object(const std::string& address, int gp, const std::string& link = "15.753846") {
  return "<object type=\"PCIDev\" gp_index=\"" + std::to_string(100 + gp) + "\" pci_busid=\"" + address +
         "\" pci_type=\"0302 [10de:20b2] [10de:1463] a1\" pci_link_speed=\"" + link +
         "\"><object type=\"OSDev\" gp_index=\"" + std::to_string(gp) + "\" name=\"nvml" +
         std::to_string(gp) + "\" subtype=\"NVML\" osdev_type=\"1\"/></object>\n";
}

TEST(HwlocXml, SwitchesAreOneNodeEach) {
  const auto bridge = [](const std::string& address, const std::string& speed, const std::string& in) {
    return "<object type=\"Bridge\" bridge_type=\"1-1\" pci_busid=\"" + address +
           "\" pci_type=\"0604 [1000:c030] [0000:0000] 01\" pci_link_speed=\"" + speed + "\">" + in +
           "</object>";
  };
  const std::string tree =
      bridge("0000:10:01.0", "7.876923",  // root port
             bridge("0000:11:00.0", "31.507692",
                    bridge("0000:12:00.0", "31.507692", gpu_object("0000:13:00.0", 0)) +
                        bridge("0000:12:01.0", "31.507692", gpu_object("0000:14:00.0", 1))));
  const Machine m =
      read_hwloc_xml(file("<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x3\"/>\n"
                          "<object type=\"Bridge\" bridge_type=\"0-1\" bridge_pci=\"0000:[10-14]\">" +
                          tree + "</object>"),
                     "f");
  ASSERT_EQ(m.all(Kind::pci_switch).size(), 1u);
  const int s = m.all(Kind::pci_switch)[0];
  EXPECT_EQ(m[s].name, "0000:11:00.0");
  EXPECT_EQ(m[m[s].parent].name, "pci0000:10");
  EXPECT_EQ(m[m.find("GPU0")].parent, s);
  // The root port says what the switch's link really is.
  EXPECT_DOUBLE_EQ(pcie_rate(m[s].pci->gigatransfers, m[s].pci->lanes).gb_per_s, 6);
  EXPECT_DOUBLE_EQ(pcie_rate(m[m.find("GPU0")].pci->gigatransfers, m[m.find("GPU0")].pci->lanes).gb_per_s,
                   12);
  EXPECT_EQ(class_between(m, "GPU0", "GPU1"), "PIX");
}

TEST(HwlocXml, CountsNvlinksByTheDataSheet) {
  const std::string matrix =
      "<distances2 type=\"OSDev\" nbobjs=\"2\" kind=\"9\" name=\"NVLinkBandwidth\" indexing=\"gp\">"
      "<indexes length=\"4\">0 1 </indexes><u64values length=\"9\">1000000 100000 "
      "</u64values><u64values>100000 1000000</u64values></distances2>";
  const Machine m =
      read_hwloc_xml(file(gpu_object("0000:13:00.0", 0) + gpu_object("0000:14:00.0", 1), matrix), "f");
  EXPECT_EQ(nvlinks_of(m, m.find("GPU0")).links, 4);  // A100: 25 GB/s each
  EXPECT_EQ(nvlinks_of(m, m.find("GPU0")).rate.source, Source::table);
  EXPECT_TRUE(m[m.all(Kind::numa)[0]].made_up);
}

TEST(HwlocXml, SeveralNodesNearAreSaid) {
  const Machine m = read_hwloc_xml(file("<object type=\"Package\" os_index=\"0\"><object type=\"NUMANode\" "
                                        "os_index=\"3\" cpuset=\"0x3\"/></object>\n"
                                        "<object type=\"Package\" os_index=\"1\"><object type=\"NUMANode\" "
                                        "os_index=\"4\" cpuset=\"0xc\"/></object>\n" +
                                        gpu_object("0000:13:00.0", 0)),
                                   "f");
  EXPECT_TRUE(has_finding(m, "pci-locality-unknown"));
  EXPECT_EQ(m[m.numa_of(m.find("GPU0"))].name, "NUMA3");
}

void expect_refused(const std::string& text, const std::string& why) {
  try {
    read_hwloc_xml(text, "some.xml");
    ADD_FAILURE() << "taken: " << text.substr(0, 200);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::invalid_argument);
    EXPECT_THAT(e.what(), HasSubstr(why));
    EXPECT_THAT(e.what(), HasSubstr("some.xml"));
  }
}

TEST(HwlocXml, BadFilesAreRefusedWithPosition) {
  expect_refused("", "some.xml");
  expect_refused("<system/>", "some.xml:1:2: <system>: hwloc's files begin with <topology>");
  expect_refused("<topology version=\"2.0\"/>", "there is no <object>");
  expect_refused("<topology version=\"9.1\"><object type=\"Machine\"/></topology>", "version \"9\"");
  expect_refused(file("<object os_index=\"1\"/>"), "some.xml:4:2: <object>: attribute 'type' is missing");
  expect_refused(file("<object type=\"NUMANode\" os_index=\"x\"/>"), "os_index=\"x\" is no whole number");
  expect_refused(file("<object type=\"NUMANode\" cpuset=\"0x0g\"/>"), "cpuset=\"0x0g\" is no set");
  expect_refused(file("<object type=\"NUMANode\" local_memory=\"-1\"/>"), "local_memory");
  expect_refused(file("<object type=\"PCIDev\"/>"), "'pci_busid' is missing");
  expect_refused(file("<object type=\"PCIDev\" pci_busid=\"0000:zz:00.0\"/>"), "is no PCI address");
  expect_refused(file("<object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_type=\"0302\"/>"),
                 "pci_type=\"0302\" is not like");
  expect_refused(file("<object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_link_speed=\"fast\"/>"),
                 "is no number");
  expect_refused(file("", "<distances2 name=\"NVLinkBandwidth\"/>"), "'nbobjs' is missing");
  expect_refused(file("", "<distances2 nbobjs=\"100000\"/>"), "nbobjs=\"100000\" is not in 1..4096");
  expect_refused(file("", "<distances2 nbobjs=\"2\"><indexes>0 1 2</indexes></distances2>"),
                 "more than the 2 indexes");
  expect_refused(
      file("", "<distances2 nbobjs=\"2\"><indexes>0 1</indexes><u64values>1 2 3</u64values></distances2>"),
      "3 values, and 2 objects need 4");
  expect_refused(
      file("", "<distances2 nbobjs=\"1\"><indexes>0</indexes><u64values>1.5</u64values></distances2>"),
      "\"1.5\" is no whole number");
  std::string many;
  for (int i = 0; i < 5000; ++i)
    many += "<object type=\"PCIDev\" pci_busid=\"" + std::to_string(1000 + i) + ":01:00.0\"/>\n";
  expect_refused(file(many), "more than 4096 PCI functions");
}

}  // namespace
}  // namespace muster::topology
