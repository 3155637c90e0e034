// hwloc's opinion beside /sys: hwloc itself reads a file that stands for the machine of
// support/fake_server.h.
#include "topology/detect_hwloc.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_server.h"

namespace muster::topology {
namespace {

using test::FakeSystem;
using test::SystemImage;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kX16 = 32 * 128.0 / 130 / 8 * 16;  // GB/s of 16 lanes of generation 5, as hwloc counts

// An element within another, and what is in it.
std::string bridge(const std::string& address, const std::string& buses, const std::string& inside,
                   double speed = kX16) {
  return fmt::format(
      "<object type=\"Bridge\" gp_index=\"{}\" bridge_type=\"1-1\" depth=\"1\" bridge_pci=\"0000:[{}]\" "
      "pci_busid=\"{}\" "
      "pci_type=\"0604 [1000:c030] [0000:0000] 00\" pci_link_speed=\"{}\">{}</object>\n",
      1000 + std::hash<std::string>()(address) % 1000000, buses, address, speed, inside);
}
std::string device(const std::string& address, const std::string& type, double speed = kX16) {
  return fmt::format(
      "<object type=\"PCIDev\" gp_index=\"{}\" pci_busid=\"{}\" pci_type=\"{} [0000:0000] 00\" "
      "pci_link_speed=\"{}\"/>\n",
      1000 + std::hash<std::string>()(address) % 1000000, address, type, speed);
}
std::string root(const std::string& bus, const std::string& buses, const std::string& inside) {
  return fmt::format(
      "<object type=\"Bridge\" gp_index=\"9{}\" bridge_type=\"0-1\" depth=\"0\" "
      "bridge_pci=\"0000:[{}]\">{}</object>\n",
      bus, buses, inside);
}

constexpr const char* kH100 = "0302 [10de:2330]";

// One side of the server: its GPU and card behind a switch.
struct Side {
  std::string bus, nic_class;
  double gpu_speed = kX16;
  std::string beside;  // more behind the switch

  std::string text() const {
    const std::string b = bus == "10" ? "1" : "8";
    const auto at = [&](const std::string& rest) { return "0000:" + b + rest; };
    const std::string below =
        bridge(at("2:00.0"), b + "3-" + b + "3", device(at("3:00.0"), kH100, gpu_speed)) +
        bridge(at("2:01.0"), b + "4-" + b + "4", device(at("4:00.0"), nic_class + " [15b3:1021]")) + beside;
    return root(bus, bus + "-" + b + "f",
                bridge(at("0:01.0"), b + "1-" + b + "f", bridge(at("1:00.0"), b + "2-" + b + "f", below)));
  }
};

std::string package(int number, const std::string& io) {
  const std::string set = number == 0 ? "0x0f" : "0xf0", node = number == 0 ? "0x1" : "0x2";
  const auto sets = [&](const std::string& cpus) {
    return fmt::format("cpuset=\"{0}\" complete_cpuset=\"{0}\" nodeset=\"{1}\" complete_nodeset=\"{1}\"",
                       cpus, node);
  };
  std::string cores;
  for (int c = 4 * number; c < 4 * number + 4; ++c)
    cores += fmt::format(
        "<object type=\"Core\" os_index=\"{0}\" {1} gp_index=\"{2}\"><object type=\"PU\" os_index=\"{0}\" "
        "{1} gp_index=\"{3}\"/></object>\n",
        c, sets(fmt::format("{:#x}", 1 << c)), 100 + c, 200 + c);
  return fmt::format(
      "<object type=\"Package\" os_index=\"{0}\" {1} gp_index=\"{2}\">\n<object type=\"NUMANode\" "
      "os_index=\"{0}\" {1} gp_index=\"{3}\" "
      "local_memory=\"68719476736\"/>\n{4}{5}</object>\n",
      number, sets(set), 10 + number, 20 + number, cores, io);
}

// `left` and `right`: sides of the server, or other I/O of their packages.
std::string hwloc_file(const std::string& left, const std::string& right) {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology "
         "version=\"2.0\">\n"
         "<object type=\"Machine\" os_index=\"0\" cpuset=\"0xff\" complete_cpuset=\"0xff\" "
         "allowed_cpuset=\"0xff\" nodeset=\"0x3\" "
         "complete_nodeset=\"0x3\" allowed_nodeset=\"0x3\" gp_index=\"1\">\n" +
         package(0, left) + package(1, right) + "</object>\n</topology>\n";
}

const std::string kSmall = root("00", "00-0f", device("0000:00:1f.6", "0200 [8086:1533]", 0.25));

Machine detect_with(const SystemImage& image, const std::string& left, const std::string& right) {
  SystemImage both = image;
  both.files["/hwloc.xml"] = hwloc_file(left, right);
  const FakeSystem system(both);
  return detect({.root = system.root(), .hwloc_xml = system.root() + "/hwloc.xml"});
}

const Side kLeftSide{"10", "0207"}, kRightSide{"80", "0200"};

class WithHwloc : public testing::Test {
 protected:
  void SetUp() override {
    const FakeSystem system({{{"/hwloc.xml", hwloc_file(kSmall + kLeftSide.text(), kRightSide.text())}}, {}});
    const auto view = look_by_hwloc(system.root() + "/hwloc.xml");
    if (!view) GTEST_SKIP() << "built without hwloc";
    ASSERT_EQ(view->functions.size(), 13u);
  }
};

TEST_F(WithHwloc, WhereBothSayTheSameNothingIsFound) {
  const Machine m = detect_with(server(), kSmall + kLeftSide.text(), kRightSide.text());
  EXPECT_THAT(ids(m), IsEmpty()) << m.findings[0].text;
  EXPECT_EQ(class_between(m, "GPU0", "mlx5_0"), "PIX");
  EXPECT_EQ(m.all(Kind::gpu).size(), 2u);
}

TEST_F(WithHwloc, DevicesThatSysfsDoesNotShow) {
  SystemImage image = server();
  image.links.erase("/sys/bus/pci/devices/0000:83:00.0");
  image.links.erase("/sys/bus/pci/devices/0000:82:00.0");
  const Machine m = detect_with(image, kSmall + kLeftSide.text(), kRightSide.text());
  EXPECT_FALSE(ids(m).contains("hwloc-disagrees"));
  EXPECT_EQ(finding(m, "pci-not-in-sysfs").where, "0000:83:00.0");
  ASSERT_EQ(m.all(Kind::gpu).size(), 2u);
  EXPECT_EQ(class_between(m, "GPU1", "mlx5_1"), "PIX");
  EXPECT_EQ(numa_name(m, "GPU1"), "NUMA1");
  EXPECT_EQ(m.gpu(m.find("GPU1")).sm, 90);
}

TEST_F(WithHwloc, NothingOfPciInSysfs) {
  SystemImage image = server();
  std::erase_if(image.links, [](const auto& l) { return l.first.starts_with("/sys/bus/pci/"); });
  const Machine m = detect_with(image, kSmall + kLeftSide.text(), kRightSide.text());
  EXPECT_THAT(finding(m, "pci-not-in-sysfs").text, HasSubstr("and 4 more"));
  EXPECT_EQ(class_between(m, "GPU0", "mlx5_0"), "PIX");
  EXPECT_EQ(class_between(m, "GPU0", "GPU1"), "SYS");
  EXPECT_EQ(numa_name(m, "GPU0"), "NUMA0");
  EXPECT_EQ(numa_name(m, "GPU1"), "NUMA1");
}

// A view of /sys that has lost the switch above a GPU and a card.
TEST_F(WithHwloc, BridgesThatSysfsDoesNotShow) {
  SystemImage image = server();
  for (const char* gone : {"0000:11:00.0", "0000:12:00.0", "0000:12:01.0"})
    image.links.erase(std::string("/sys/bus/pci/devices/") + gone);
  const Machine m = detect_with(image, kSmall + kLeftSide.text(), kRightSide.text());
  EXPECT_EQ(class_between(m, "GPU0", "mlx5_0"), "PIX");
  EXPECT_FALSE(ids(m).contains("hwloc-disagrees"));
}

TEST_F(WithHwloc, SpeedsThatSysfsDoesNotSay) {
  SystemImage image = server();
  for (const char* file : {"max_link_speed", "current_link_speed", "max_link_width", "current_link_width"}) {
    image.files.erase(left("gpu") + file);
    image.files.erase("/sys/devices/" + std::string(kLeft) + "/0000:12:00.0/" + file);
  }
  Side slow = kLeftSide;
  slow.gpu_speed = kX16 / 4;  // 16 GT/s x8, or 8 GT/s x16
  const Machine m = detect_with(image, kSmall + slow.text(), kRightSide.text());
  const Link& up = m.links[static_cast<size_t>(m.up_link(m.find("GPU0")))];
  EXPECT_NEAR(up.rate.gb_per_s, pcie_rate(16, 8).gb_per_s, 1e-9);
  EXPECT_EQ(up.rate.source, Source::table);
  EXPECT_FALSE(ids(m).contains("hwloc-disagrees"));
}

TEST_F(WithHwloc, DifferencesAreFoundAndSysfsStays) {
  // The card is Ethernet for /sys, and at another bridge.
  const std::string b = device("0000:14:00.0", "0200 [15b3:1021]"),
                    other = root(
                        "10", "10-1f",
                        bridge("0000:10:01.0", "11-1f",
                               bridge("0000:11:00.0", "12-1f",
                                      bridge("0000:12:00.0", "13-14", device("0000:13:00.0", kH100) + b) +
                                          bridge("0000:12:01.0", "15-15", ""))));
  const Machine m = detect_with(server(), kSmall + other, kRightSide.text());
  const Finding& f = finding(m, "hwloc-disagrees");
  EXPECT_EQ(f.where, "0000:14:00.0");
  EXPECT_THAT(f.text, AllOf(HasSubstr("0207"), HasSubstr("0200"), HasSubstr("1 more")));
  EXPECT_EQ(class_between(m, "GPU0", "mlx5_0"), "PIX");
  EXPECT_EQ(m[m.nic_of(m.find("mlx5_0"))].pci->class_code, 0x020700u);
}

TEST_F(WithHwloc, LinksFasterThanSysfsSays) {
  SystemImage image = server();
  image.files[right("gpu") + "max_link_width"] = image.files[right("gpu") + "current_link_width"] = "8\n";
  const Machine m = detect_with(image, kSmall + kLeftSide.text(), kRightSide.text());
  EXPECT_EQ(finding(m, "hwloc-disagrees").where, "0000:83:00.0");
  EXPECT_THAT(finding(m, "hwloc-disagrees").text, AllOf(HasSubstr("x8"), HasSubstr("x16")));
  // What is slower now saves power.
  Side idle = kRightSide;
  idle.gpu_speed = 4;
  EXPECT_THAT(ids(detect_with(server(), kSmall + kLeftSide.text(), idle.text())), IsEmpty());
}

TEST_F(WithHwloc, DevicesThatHwlocDoesNotFind) {
  Machine m = detect_with(server(), kSmall + kLeftSide.text(), "");
  EXPECT_EQ(finding(m, "hwloc-disagrees").where, "0000:83:00.0");
  EXPECT_THAT(finding(m, "hwloc-disagrees").text, HasSubstr("1 more"));
  EXPECT_EQ(m.all(Kind::gpu).size(), 2u);
  // Without PCI at all it has no opinion, and most builds of hwloc don't look into domains above ffff.
  EXPECT_THAT(ids(detect_with(server(), "", "")), IsEmpty());
  SystemImage image = server();
  image.add_pci("pci10000:00/10000:00:02.0", "0x030200", "0x10de", "0x2330", "0");
  EXPECT_THAT(ids(detect_with(image, kSmall + kLeftSide.text(), kRightSide.text())), IsEmpty());
}

TEST_F(WithHwloc, NumaNodesOfDevicesThatSysfsDoesNotTell) {
  SystemImage image = server();
  for (auto& [path, text] : image.files)
    if (path.ends_with("/numa_node")) text = "-1\n";
  const Machine m = detect_with(image, kSmall + kLeftSide.text(), kRightSide.text());
  EXPECT_EQ(numa_name(m, "GPU0"), "NUMA0");
  EXPECT_EQ(numa_name(m, "GPU1"), "NUMA1");
  EXPECT_FALSE(ids(m).contains("numa-unknown"));
}

}  // namespace
}  // namespace muster::topology
