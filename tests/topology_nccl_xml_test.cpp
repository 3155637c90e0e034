// Reading and writing NCCL's topology files: every trait in a small file of our own.
#include "topology/nccl_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/corpus.h"
#include "topology_nccl_support.h"

namespace muster::topology {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(NcclXml, ServerWithNvswitch) {
  const Machine m = read(test::text_of(test::data("two_sockets.xml")));
  EXPECT_THAT(m.findings, testing::IsEmpty());
  EXPECT_EQ(m.host_hash, 0x1234abcdu);
  EXPECT_EQ(names(m, Kind::numa), "NUMA0 NUMA1") << "in the order of numbers, not of the file";
  EXPECT_EQ(names(m, Kind::gpu), "GPU0 GPU1 GPU2 GPU3");
  EXPECT_EQ(names(m, Kind::port), "mlx5_0 mlx5_1 mlx5_2 mlx5_3 eth0");
  ASSERT_EQ(m.all(Kind::nvswitch).size(), 1u);
  EXPECT_EQ(std::get<NvSwitch>(m[m.all(Kind::nvswitch)[0]].detail).count, 4);
  for (const int g : m.all(Kind::gpu)) {
    EXPECT_EQ(nvlinks_of(m, g).links, 18);
    EXPECT_NEAR(nvlinks_of(m, g).rate.gb_per_s, 370.8, 1e-9);  // 18 x 20.6
  }
  EXPECT_EQ(between(m, "GPU0", "GPU3"), PathClass::nvl);
  EXPECT_EQ(between(m, "GPU0", "mlx5_1"), PathClass::pix);
  EXPECT_EQ(between(m, "GPU0", "eth0"), PathClass::phb);
  EXPECT_EQ(between(m, "GPU3", "mlx5_0"), PathClass::sys);
  EXPECT_DOUBLE_EQ(rate(m, "GPU3", "mlx5_2"), 25);  // 200 Gbit/s
  const Numa& numa = m.numa(m.find("NUMA1"));
  EXPECT_EQ(numa.cpus.front(), 32);
  EXPECT_EQ(numa.cpus.size(), 32u);
  EXPECT_EQ(numa.arch, CpuArch::x86_64);
  const Gpu& gpu = m.gpu(m.find("GPU2"));
  EXPECT_EQ(gpu.sm, 90);
  EXPECT_EQ(gpu.rank, 2);
  EXPECT_EQ(gpu.gpudirect, Answer3::yes);
  const Port& port = m.port(m.find("mlx5_3"));
  EXPECT_EQ(port.index, 3);
  EXPECT_EQ(port.number, 2);
  EXPECT_EQ(port.gbit_per_s, 200);
  EXPECT_EQ(port.latency_us, 0.5);
  EXPECT_EQ(port.network, Network::infiniband);
  EXPECT_EQ(port.max_connections, 131072);
  EXPECT_TRUE(port.collectives);
  EXPECT_EQ(m.nic(m.nic_of(m.find("mlx5_3"))).guid, "0x20");
  EXPECT_EQ(m.port(m.find("eth0")).network, Network::ethernet);
  EXPECT_EQ(m.port(m.find("eth0")).gpudirect, Answer3::no);
  expect_round_trip(m);
}

TEST(NcclXml, VirtualMachine) {
  const Machine m = read(test::text_of(test::data("virtual_machine.xml")));
  EXPECT_EQ(ids(m), (std::vector<std::string>{"gpu-details-missing", "nic-details-missing"}));
  // The driver counts in the order of bus ids.
  EXPECT_EQ(m[m.find("GPU0")].pci->address.text(), "0001:00:00.0");
  EXPECT_EQ(m[m.find("GPU1")].pci->address.text(), "0002:00:00.0");
  EXPECT_EQ(between(m, "GPU0", "NIC0"), PathClass::pix);
  EXPECT_EQ(between(m, "GPU0", "NIC1"), PathClass::sys);
  EXPECT_EQ(m.port(m.find("NIC0")).network, Network::infiniband);
  EXPECT_TRUE(m[m.find("NIC0")].made_up);
  const Path p = paths_from(m, m.find("GPU0"))[static_cast<size_t>(m.find("NIC0"))];
  EXPECT_EQ(p.rate.source, Source::assumed);
  EXPECT_EQ(p.rate.gb_per_s, default_network_rate().gb_per_s);
  expect_round_trip(m);
  EXPECT_THAT(write_nccl_xml(m), testing::Not(HasSubstr("<gpu"))) << "NCCL fills in what isn't said";
}

// The hybrid cube mesh of a DGX-1 in small: two links between some, one between others.
TEST(NcclXml, NvlinkBetweenGpus) {
  const Machine m = read(
      in_cpu(gpu_at("0000:01:00.0", 0, nvlink("0000:02:00.0", 2) + nvlink("0000:03:00.0", 1), R"(sm="70")") +
             gpu_at("0000:02:00.0", 1, nvlink("0000:01:00.0", 2), R"(sm="70")") +
             gpu_at("0000:03:00.0", 2, nvlink("0000:01:00.0", 1), R"(sm="70")")));
  EXPECT_THAT(m.findings, testing::IsEmpty());
  EXPECT_EQ(between(m, "GPU0", "GPU1"), PathClass::nvl);
  EXPECT_EQ(rate(m, "GPU0", "GPU1"), 44.4);  // two of 22.2 GB/s, counted once though both ends list them
  EXPECT_EQ(rate(m, "GPU0", "GPU2"), 22.2);
  EXPECT_EQ(between(m, "GPU1", "GPU2"), PathClass::nvb);
  EXPECT_EQ(nvlinks_of(m, m.find("GPU0")).links, 3);
  expect_round_trip(m);
}

TEST(NcclXml, NvlinksThatContradict) {
  const Machine m =
      read(in_cpu(gpu_at("0000:01:00.0", 0,
                         nvlink("0000:02:00.0", 4) + nvlink("0000:03:00.0", 2) + nvlink("0000:01:00.0", 3) +
                             nvlink("0000:09:00.0", 1)) +
                  gpu_at("0000:02:00.0", 1, nvlink("0000:01:00.0", 2)) + gpu_at("0000:03:00.0", 2, "")));
  EXPECT_THAT(ids(m), testing::UnorderedElementsAre("nvlink-counts-disagree", "nvlink-one-sided",
                                                    "nvlink-to-itself", "nvlink-target-missing"));
  EXPECT_EQ(rate(m, "GPU0", "GPU1"), 40);  // the smaller of 4 and 2
  EXPECT_EQ(rate(m, "GPU0", "GPU2"), 40);
  EXPECT_EQ(nvlinks_of(m, m.find("GPU0")).links, 4);
  EXPECT_THAT(finding(m, "nvlink-to-itself").where, testing::StartsWith("f.xml:2:"));
}

// Virtual machines don't see the switches.
TEST(NcclXml, NvswitchThatCannotBeRead) {
  for (const char* target : {"fffffff:ffff:ff", "fffffff:ff:ff.0", "ffff:ff:00.0", "0000:c5:00.0"}) {
    const Machine m = read(in_cpu(gpu_at("0000:01:00.0", 0, nvlink(target, 18, "0x068000"), R"(sm="100")") +
                                  gpu_at("0000:02:00.0", 1, nvlink(target, 18, "0x068000"), R"(sm="100")")));
    EXPECT_THAT(m.findings, testing::IsEmpty()) << target;
    EXPECT_EQ(between(m, "GPU0", "GPU1"), PathClass::nvl) << target;
    EXPECT_NEAR(rate(m, "GPU0", "GPU1"), 721.8, 1e-9) << target;
    expect_round_trip(m);
  }
  const Machine m = read(in_cpu(gpu_at("0000:01:00.0", 0, R"(<nvlink target="0000:c5:00.0" count="12"/>)")));
  EXPECT_EQ(ids(m), std::vector<std::string>{"nvlink-class-missing"});
  EXPECT_EQ(nvlinks_of(m, m.find("GPU0")).links, 12);
}

// As files show whose addresses were cut or changed.
TEST(NcclXml, MoreNvswitchesThanAGpuHasLinks) {
  const Machine m = read(in_cpu(
      gpu_at("0000:01:00.0", 0, nvlink("0000:c0:00.0", 1, "0x068000") + nvlink("0000:c1:00.0", 1, "0x068000"), R"(sm="80")") +
      gpu_at("0000:02:00.0", 1, nvlink("0000:c2:00.0", 2, "0x068000") + nvlink("0000:c3:00.0", 1, "0x068000"), R"(sm="80")")));
  EXPECT_EQ(std::get<NvSwitch>(m[m.all(Kind::nvswitch).at(0)].detail).count, 4);
  expect_round_trip(m);
}

// POWER9: the class of the other end is that of its NVLink bridge.
TEST(NcclXml, NvlinkToTheCpu) {
  const Machine m =
      read("<system version=\"1\">\n<cpu numaid=\"8\" affinity=\"ff\" arch=\"ppc64\">" +
           gpu_at("0035:03:00.0", 0, nvlink("0006:00:00.0", 3, "0x068001") + nvlink("0035:04:00.0", 3),
                  R"(sm="70")") +
           gpu_at("0035:04:00.0", 1, nvlink("0006:00:00.1", 3, "0x068001") + nvlink("0035:03:00.0", 3),
                  R"(sm="70")") +
           "</cpu></system>");
  EXPECT_THAT(m.findings, testing::IsEmpty());
  EXPECT_EQ(between(m, "GPU0", "NUMA8"), PathClass::nvl);
  EXPECT_DOUBLE_EQ(rate(m, "GPU0", "NUMA8"), 66.6);
  EXPECT_EQ(m.links[static_cast<size_t>(m.up_link(m.find("GPU0")))].kind, LinkKind::pcie)
      << "beside the PCI link";
  EXPECT_EQ(nvlinks_of(m, m.find("GPU1")).links, 6);
  expect_round_trip(m);
}

TEST(NcclXml, C2c) {
  const Machine m =
      read(in_cpu("<pci busid=\"0009:01:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" "
                  "link_width=\"1\"><gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\">"
                  "<c2c bw=\"44000\" count=\"10\"/>" +
                  nvlink("fffffff:ffff:ff", 18, "0x068000") +
                  "</gpu></pci>"
                  "<pci busid=\"0002:03:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" "
                  "link_width=\"16\"><nic><net name=\"mlx5_0\" dev=\"0\" speed=\"400000\"/></nic></pci>"));
  EXPECT_EQ(between(m, "GPU0", "NUMA0"), PathClass::c2c);
  EXPECT_DOUBLE_EQ(rate(m, "GPU0", "NUMA0"), 440);  // 44000 MB/s x 10
  EXPECT_EQ(between(m, "GPU0", "mlx5_0"), PathClass::p2c);
  expect_round_trip(m);
}

TEST(NcclXml, AmdDialect) {
  const auto gpu = [](const char* busid, int dev, const char* gcn, const std::string& links) {
    return fmt::format(
        "<pci busid=\"{}\" class=\"0x120000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu "
        "dev=\"{}\" sm=\"304\" gcn=\"{}\" arch=\"38911\" rank=\"{}\" gdr=\"1\">{}</gpu></pci>",
        busid, dev, gcn, dev, links);
  };
  for (const auto& [gcn, number, each] : {std::tuple("942", 942, 48.0),
                                          {"gfx942:sramecc+:xnack-", 942, 48.0},
                                          {"910", 910, 36.0},
                                          {"gfx90a", 910, 36.0},
                                          {"908", 908, 24.0},
                                          {"906", 906, 24.0}}) {
    const Machine m = read(
        "<system version=\"2\"><cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" vendor=\"AuthenticAMD\" "
        "familyid=\"175\" modelid=\"144\">" +
        gpu("0000:01:00.0", 0, gcn, R"(<xgmi target="0000:02:00.0" count="2" tclass="0x120000"/>)") +
        gpu("0000:02:00.0", 1, gcn, R"(<xgmi target="0000:01:00.0" count="2" tclass="0x120000"/>)") +
        "</cpu></system>");
    EXPECT_THAT(m.findings, testing::IsEmpty()) << gcn;
    EXPECT_EQ(m.gpu(m.find("GPU1")).gcn, number);
    EXPECT_EQ(m.gpu(m.find("GPU1")).sm, 0) << "of AMD's it is the number of compute units";
    EXPECT_EQ(between(m, "GPU0", "GPU1"), PathClass::nvl);
    EXPECT_EQ(rate(m, "GPU0", "GPU1"), 2 * each) << gcn;
    EXPECT_THAT(write_nccl_xml(m),
                AllOf(HasSubstr("<system version=\"2\">"),
                      HasSubstr("<xgmi target=\"0000:02:00.0\" count=\"2\" tclass=\"0x120000\"/>")));
    expect_round_trip(m);
  }
}

TEST(NcclXml, NicsInAllPlaces) {
  const Machine m = read(
      in_cpu("<nic><net name=\"veth1\" dev=\"3\" speed=\"10000\" port=\"0\" guid=\"0x3\" gdr=\"0\"/></nic>"
             "<pci busid=\"0000:00:00.0\" class=\"0x060000\" link_speed=\"\" link_width=\"0\"><nic>"
             "<net name=\"mlx5_0\" dev=\"0\" speed=\"400000\" port=\"1\" guid=\"0x10\"/><net name=\"mlx5_1\" "
             "dev=\"1\" speed=\"400000\" port=\"2\" guid=\"0x11\"/></nic></pci>"
             "<pci busid=\"0000:01:00.0\" class=\"0x020000\"/><pci busid=\"0000:02:00.0\" "
             "class=\"0x020000\"><nic/></pci>"
             "<pci busid=\"0000:03:00.0\" class=\"0x020000\" vendor=\"0x1d0f\" device=\"0xefa1\"><nic><net "
             "name=\"rdmap3s0\" dev=\"2\"/></nic></pci>"));
  EXPECT_EQ(names(m, Kind::port), "mlx5_0 mlx5_1 rdmap3s0 veth1 NIC0")
      << "by the network's numbers; the one without comes last";
  EXPECT_EQ(m.all(Kind::nic).size(), 5u);
  EXPECT_EQ(m.nic(m.nic_of(m.find("mlx5_0"))).guid, "") << "two cards behind one address";
  EXPECT_EQ(m.port(m.find("rdmap3s0")).network, Network::efa);
  EXPECT_EQ(m.port(m.find("veth1")).network, Network::ethernet);
  const Link& up = m.links[static_cast<size_t>(m.up_link(m.nic_of(m.find("mlx5_0"))))];
  EXPECT_EQ(up.rate.source, Source::assumed);
  EXPECT_EQ(up.rate.gb_per_s, 12);  // 16 lanes of the third generation
  EXPECT_THAT(ids(m), testing::UnorderedElementsAre("missing-attribute", "nic-details-missing"));
  expect_round_trip(m);
}

TEST(NcclXml, OneVirtualNetUnderSeveralCpusIsOne) {
  const std::string net =
      "<nic><net name=\"eth0\" dev=\"0\" speed=\"10000\" port=\"0\" guid=\"0x0\" gdr=\"0\"/></nic>";
  const Machine m = read("<system version=\"1\"><cpu numaid=\"0\" affinity=\"f\" arch=\"arm64\">" + net +
                         "</cpu><cpu numaid=\"1\" affinity=\"f0\" arch=\"arm64\">" + net + "</cpu></system>");
  EXPECT_EQ(names(m, Kind::port), "eth0");
  EXPECT_EQ(m.all(Kind::nic).size(), 1u);
  EXPECT_EQ(ids(m), std::vector<std::string>{"net-repeated"});
}

TEST(NcclXml, SeveralHosts) {
  const auto host = [](const char* hash, int first) {
    return fmt::format("<cpu host_hash=\"{}\" numaid=\"0\" affinity=\"ff\" arch=\"arm64\">{}{}</cpu>\n", hash,
                       gpu_at("0000:01:00.0", first, nvlink("0000:02:00.0", 2)),
                       gpu_at("0000:02:00.0", first + 1, nvlink("0000:01:00.0", 2)));
  };
  const Cluster c = read_nccl_xml(
      "<system version=\"1\">" + host("0xa", 0) + host("not-a-number", 0) + "</system>", "f.xml");
  ASSERT_EQ(c.host_count(), 2);
  EXPECT_EQ(c.gpu_count(), 4);
  EXPECT_EQ(c.host_name(1), "host1");
  EXPECT_EQ(c.machine_of(0).host_hash, 0xau);
  EXPECT_NE(c.machine_of(1).host_hash, 0u);
  for (int h = 0; h < 2; ++h) {
    EXPECT_THAT(c.machine_of(h).findings, testing::IsEmpty())
        << "the same bus ids in two hosts are no duplicates";
    EXPECT_EQ(between(c.machine_of(h), "GPU0", "GPU1"), PathClass::nvl);
  }
}

TEST(NcclXml, ImplausiblePciLinks) {
  const Machine m = read(
      in_cpu("<pci busid=\"0000:01:00.0\" class=\"0x060400\" link_speed=\"2.5 GT/s PCIe\" link_width=\"1\">" +
             gpu_at("0000:02:00.0", 0, "") +
             "</pci>"
             "<pci busid=\"0000:03:00.0\" class=\"0x020000\" link_speed=\"2.5 GT/s\" "
             "link_width=\"1\"><nic><net name=\"enp3s0\" dev=\"0\" speed=\"1000\"/></nic></pci>"
             "<pci busid=\"0000:04:00.0\" class=\"0x020700\" link_speed=\"5.0 GT/s PCIe\" "
             "link_width=\"1\"><nic><net name=\"ib0\" dev=\"1\" speed=\"100000\"/></nic></pci>"));
  ASSERT_EQ(ids(m), std::vector<std::string>{"implausible-pci-link"})
      << "a gigabit card may well have such a link";
  EXPECT_THAT(finding(m, "implausible-pci-link").text,
              AllOf(HasSubstr("0000:01:00.0"), HasSubstr("2.5 GT/s x1"), HasSubstr("1 more")));
  const Link& bridge = m.links[static_cast<size_t>(m.up_link(m.find("0000:01:00.0")))];
  EXPECT_EQ(bridge.rate.gb_per_s, 12);
  EXPECT_EQ(bridge.rate.source, Source::assumed);
  const Link& slow = m.links[static_cast<size_t>(m.up_link(m.find("0000:03:00.0")))];
  EXPECT_EQ(slow.rate.gb_per_s, 3.0 / 16);
  EXPECT_EQ(slow.rate.source, Source::table);
  expect_round_trip(m);
}

TEST(NcclXml, ImplausiblePortSpeeds) {
  const Machine m =
      read(in_cpu("<nic><net name=\"cxi0\" dev=\"0\" speed=\"200000000\"/><net name=\"cxi1\" dev=\"1\" "
                  "speed=\"98765432\"/><net name=\"cxi2\" dev=\"2\" speed=\"-1\"/></nic>"));
  EXPECT_EQ(m.port(m.find("cxi0")).gbit_per_s, 200);  // it is a port of that speed, written in kbit/s
  EXPECT_EQ(m.port(m.find("cxi1")).gbit_per_s, 0);
  EXPECT_EQ(m.port(m.find("cxi2")).gbit_per_s, 0);
  EXPECT_THAT(ids(m), testing::UnorderedElementsAre("implausible-port-speed", "missing-attribute"));
}

TEST(NcclXml, LinkSpeedsAsFilesWriteThem) {
  for (const auto& [text, gb] : {std::pair("16.0 GT/s PCIe", 24.0),
                                 {"16 GT/s", 24.0},
                                 {"8.0 GT/s PCIe", 12.0},
                                 {"32 GT/s PCIe/s", 48.0},
                                 {"64.0 GT/s PCIe", 96.0},
                                 {"Unknown speed", 12.0},
                                 {"Unknown", 12.0},
                                 {"", 12.0}}) {
    const Machine m =
        read(in_cpu(fmt::format("<pci busid=\"0000:01:00.0\" class=\"0x030200\" link_speed=\"{}\" "
                                "link_width=\"16\"><gpu dev=\"0\" sm=\"80\"/></pci>",
                                text)));
    EXPECT_EQ(m.links[static_cast<size_t>(m.up_link(m.find("GPU0")))].rate.gb_per_s, gb) << text;
    EXPECT_THAT(m.findings, testing::IsEmpty()) << text;
  }
  const Machine m =
      read(in_cpu("<pci busid=\"0000:01:00.0\" class=\"0x030200\" link_speed=\"fast\" "
                  "link_width=\"255\"><gpu dev=\"0\" sm=\"80\"/></pci>"));
  EXPECT_THAT(ids(m), testing::UnorderedElementsAre("unreadable-link-speed", "unreadable-link-width"));
}

TEST(NcclXml, OddThingsThatAreRead) {
  // A bus id that NCCL takes for 0000:00:01.0, twice; a GPU within a GPU; two of one number; nothing known of
  // one device.
  const Machine m = read(in_cpu(gpu_at("0000:01.0", 0, "") + gpu_at("0000:00:01.0", 0, "") +
                                "<pci busid=\"0000:05:00.0\" class=\"0x030200\"><gpu dev=\"1\" "
                                "sm=\"80\"/><pci busid=\"0000:05:00.1\" class=\"0x040300\"/></pci>"
                                "<pci busid=\"0000:06:00.0\"/><apu/>"
                                "<pci busid=\"0000:07:00.0\" class=\"0x030200\"><apu dev=\"2\"/></pci>"));
  EXPECT_EQ(names(m, Kind::gpu), "GPU0 GPU0#2 GPU1 GPU2");
  EXPECT_THAT(ids(m), testing::UnorderedElementsAre(
                          "odd-bus-id", "duplicate-bus-id", "duplicate-gpu-number", "device-within-device",
                          "device-left-out", "unknown-device", "unknown-element", "missing-attribute"));
  EXPECT_EQ(m[m.find("0000:06:00.0")].kind, Kind::pci_switch);
}

TEST(NcclXml, SwitchesThatAreLinked) {
  const Machine m = read(in_cpu(
      "<pci busid=\"0000:01:00.0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">" +
      gpu_at("0000:02:00.0", 0, "") +
      "<pcilink target=\"0000:03:00.0\"/></pci>"
      "<pci busid=\"0000:03:00.0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">" +
      gpu_at("0000:04:00.0", 1, "") +
      "<pcilink target=\"0000:01:00.0\"/><pcilink target=\"0000:99:00.0\"/></pci>"));
  EXPECT_EQ(between(m, "GPU0", "GPU1"), PathClass::pxb) << "not by way of the CPU";
  EXPECT_EQ(ids(m), std::vector<std::string>{"pcilink-target-missing"});
  expect_round_trip(m);
}

TEST(NcclXml, NumaNodes) {
  const Machine m = read(
      "<system version=\"1\"><cpu numaid=\"-1\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
      "modelid=\"207\"/>"
      "<cpu numaid=\"0x2\" affinity=\"0x5\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"25\" "
      "modelid=\"17\"/><cpu numaid=\"2\" affinity=\"1,00000000\" arch=\"aarch64\"/></system>");
  EXPECT_EQ(names(m, Kind::numa), "NUMA2 NUMA2#2 NUMA");
  EXPECT_EQ(m.numa(m.find("NUMA2")).cpus, (std::vector<int>{0, 2}));
  EXPECT_EQ(m.numa(m.find("NUMA2#2")).cpus, std::vector<int>{32});
  EXPECT_EQ(m.numa(m.find("NUMA")).os_index, kNone);
  EXPECT_EQ(ids(m), std::vector<std::string>{"duplicate-numa"});
}

// Partitions of one card.
TEST(NcclXml, SeveralGpusOfOneDevice) {
  const Machine m = read(in_cpu("<pci busid=\"0000:01:00.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"100\"/><gpu dev=\"1\" sm=\"100\"/></pci>" +
                                gpu_at("0000:02:00.0", 2, "")));
  EXPECT_EQ(names(m, Kind::gpu), "GPU0 GPU1 GPU2");
  EXPECT_EQ(ids(m), std::vector<std::string>{"gpus-of-one-device"});
  EXPECT_EQ(m[m.find("GPU1")].pci->address.text(), "0000:01:00.0");
  expect_round_trip(m);
}

// The form that NCCL writes and its reader takes: one blank between attributes, no declaration, "/>" or ">"
// and a line end.
TEST(NcclXml, WrittenAsNcclDoes) {
  const std::string text =
      write_nccl_xml(read(test::text_of(test::data("two_sockets.xml"))));
  EXPECT_THAT(
      text, testing::StartsWith(
                "<system version=\"1\">\n  <cpu host_hash=\"0x1234abcd\" numaid=\"0\" affinity=\"ffffffff\" "
                "arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n"));
  EXPECT_THAT(text, HasSubstr("    <pci busid=\"0000:10:01.0\" class=\"0x060400\" vendor=\"0x1000\" "
                              "device=\"0xc030\" subsystem_vendor=\"0x1000\" subsystem_device=\"0x1003\" "
                              "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"));
  EXPECT_THAT(text, HasSubstr("        <gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\">\n          <nvlink "
                              "target=\"fffe:00:00.0\" count=\"5\" tclass=\"0x068000\"/>\n"));
  EXPECT_THAT(text, HasSubstr("          <net name=\"mlx5_0\" dev=\"0\" latency=\"0.5\" speed=\"200000\" "
                              "port=\"1\" guid=\"0x10\" maxconn=\"131072\" gdr=\"1\" coll=\"1\"/>\n"));
  EXPECT_THAT(text, testing::EndsWith("</system>\n"));
}

// Machines from other sources have nodes that this format doesn't.
TEST(NcclXml, WritesWhatHasNoAddress) {
  Machine m;
  const int numa = m.add({.kind = Kind::numa, .name = "NUMA0", .detail = Numa{.os_index = 0}});
  const int bridge = m.add({.kind = Kind::host_bridge, .name = "bridge", .parent = numa});
  const int sw = m.add({.kind = Kind::pci_switch, .name = "switch", .parent = bridge});
  for (int i = 0; i < 2; ++i)
    m.add({.kind = Kind::gpu, .name = fmt::format("GPU{}", i), .parent = sw, .detail = Gpu{.index = i}});
  const int nic = m.add({.kind = Kind::nic, .name = "nic", .parent = sw, .detail = Nic{}});
  m.add({.kind = Kind::port,
         .name = "mlx5_0",
         .parent = nic,
         .detail = Port{.device = "mlx5_0", .gbit_per_s = 100}});
  m.link({m.find("GPU0"), m.find("GPU1"), LinkKind::nvlink, 4, {80, Source::assumed}, 0});
  complete(m);
  const Machine again = read(write_nccl_xml(m));
  std::string difference;
  EXPECT_FALSE(same_meaning(m, again, &difference));
  EXPECT_EQ(difference, "bridge: host bridge, only in the first\n")
      << "the one thing that the format can't say\n"
      << write_nccl_xml(m) << write_nccl_xml(again);
}

}  // namespace
}  // namespace muster::topology
