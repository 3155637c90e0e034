// Detection: made-up systems in a temporary folder, and the machine that the test runs on.
#include "topology/detect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <thread>

#include "support/fake_server.h"
#include "topology/allowed_cpus.h"
#include "topology/hwloc_view.h"

namespace muster::topology {
namespace {

namespace fs = std::filesystem;
using test::FakeSystem;
using test::SystemImage;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Detect, AServer) {
  const Machine m = detect_in(server());
  EXPECT_EQ(m.name, "node7");
  EXPECT_THAT(ids(m), IsEmpty());
  ASSERT_EQ(m.all(Kind::numa).size(), 2u);
  const Numa& second = m.numa(m.find("NUMA1"));
  EXPECT_THAT(second.cpus, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(second.package, 1);
  EXPECT_EQ(second.memory_bytes, uint64_t{64} << 30);
  EXPECT_EQ(second.arch, CpuArch::x86_64);
  EXPECT_EQ(second.vendor, "GenuineIntel");
  EXPECT_EQ(second.model, 143);
  EXPECT_TRUE(second.allowed);
  ASSERT_EQ(m.all(Kind::gpu).size(), 2u);
  EXPECT_EQ(m.gpu(m.find("GPU0")).sm, 90);
  EXPECT_EQ(m[m.find("GPU1")].pci->address.text(), "0000:83:00.0");
  EXPECT_EQ(m[m[m.find("GPU1")].parent].name, "0000:81:00.0");
  EXPECT_EQ(m[m[m[m.find("GPU1")].parent].parent].name, "pci0000:80");
  EXPECT_EQ(m.all(Kind::pci_switch).size(), 2u);
  EXPECT_EQ(m.all(Kind::host_bridge).size(), 3u);
  EXPECT_EQ(class_between(m, "GPU0", "mlx5_0"), "PIX");
  EXPECT_EQ(class_between(m, "GPU1", "mlx5_1"), "PIX");
  EXPECT_EQ(class_between(m, "GPU0", "mlx5_1"), "SYS");
  EXPECT_EQ(class_between(m, "GPU0", "GPU1"), "SYS");
  EXPECT_DOUBLE_EQ(paths_from(m, m.find("GPU0"))[static_cast<size_t>(m.find("NUMA0"))].rate.gb_per_s,
                   48);  // x16 of generation 5
  const Port& ib = m.port(m.find("mlx5_0"));
  EXPECT_EQ(ib.network, Network::infiniband);
  EXPECT_EQ(ib.gbit_per_s, 400);
  EXPECT_EQ(ib.interface, "ib0");
  EXPECT_EQ(ib.up, Answer3::yes);
  EXPECT_EQ(ib.gpudirect, Answer3::yes);  // open kernel modules have dma-buf
  EXPECT_THAT(ib.guid, testing::MatchesRegex("0xa088c2030009[0-9a-f]{4}"));
  EXPECT_EQ(m.port(m.find("mlx5_1")).network, Network::roce);
  EXPECT_EQ(m.port(m.find("mlx5_1")).interface, "eth1");
  EXPECT_EQ(m.port(m.find("eth0")).network, Network::ethernet);
  EXPECT_EQ(m.port(m.find("eth0")).gbit_per_s, 1);
  EXPECT_EQ(m.all(Kind::port).size(), 3u);
}

TEST(Detect, NothingThatIsMissingOrNonsenseMakesItFail) {
  const SystemImage image = server();
  const FakeSystem system(image);
  const auto look = [&](const std::string& what) {
    try {
      const Machine m = detect({.root = system.root()});
      validate(m);
      EXPECT_FALSE(m.all(Kind::numa).empty());
    } catch (const std::exception& e) {
      ADD_FAILURE() << what << ": " << e.what();
    }
  };
  for (const auto& [path, text] : image.files) {
    const std::string at = system.root() + path;
    fs::remove(at);
    look("without " + path);
    for (const std::string& nonsense : {std::string(), std::string("-1\n"), std::string("abc \xff\n"),
                                        std::string("99999999999999999999"), std::string(300, '0')}) {
      std::ofstream(at, std::ios::binary) << nonsense;
      look(path + " with \"" + nonsense + "\"");
    }
    fs::remove(at);
    fs::create_directory(at);
    look(path + " a folder");
    fs::remove(at);
    std::ofstream(at, std::ios::binary) << text;
  }
  for (const auto& [path, to] : image.links) {
    const fs::path at = system.root() + path, target = fs::read_symlink(at);
    fs::remove(at);
    look("without " + path);
    fs::create_symlink("nowhere", at);
    look(path + " leads nowhere");
    fs::remove(at);
    fs::create_symlink(at.filename(), at);
    look(path + " leads to itself");
    fs::remove(at);
    fs::create_symlink(target, at);
  }
  EXPECT_THAT(ids(detect({.root = system.root()})), IsEmpty()) << "all is there again";
}

TEST(Detect, EmptySystems) {
  for (const char* only : {"/nothing", "/sys/nothing", "/proc/nothing", "/sys/devices/system/node/nothing",
                           "/sys/bus/pci/devices/nothing", "/sys/class/net/nothing"}) {
    SystemImage image;
    image.files[only] = "";
    const Machine m = detect_in(image);
    EXPECT_EQ(m.all(Kind::numa).size(), 1u);
    EXPECT_TRUE(m[0].made_up);
    EXPECT_THAT(ids(m), ElementsAre("numa-unknown"));
  }
  EXPECT_EQ(detect({.root = "/no/such/folder"}).all(Kind::numa).size(), 1u);
}

TEST(Detect, WithoutSysTheCpusAreThoseOfProc) {
  SystemImage image;
  image.files["/proc/cpuinfo"] = "processor\t: 0\nCPU implementer\t: 0x41\nprocessor\t: 2\n";
  const Machine m = detect_in(image);
  EXPECT_THAT(m.numa(0).cpus, ElementsAre(0, 2));
  EXPECT_EQ(m.numa(0).arch, CpuArch::arm64);
}

// A device that doesn't know its NUMA node is at an assumed one, never at another machine's or none.
TEST(Detect, NumaNodeOfADeviceMissingOrNonsense) {
  for (const std::string said : {"-1", "", "abc", "4096", "-7", "99999999999999999999", "missing"}) {
    SCOPED_TRACE(said);
    SystemImage image = server();
    for (auto& [path, text] : image.files)
      if (path.starts_with("/sys/devices/pci0000:80") && path.ends_with("/numa_node")) text = said + "\n";
    if (said == "missing")
      std::erase_if(image.files, [](const auto& f) {
        return f.first.starts_with("/sys/devices/pci0000:80") && f.first.ends_with("/numa_node");
      });
    const Machine m = detect_in(image);
    EXPECT_EQ(numa_name(m, "GPU1"), "NUMA0");
    EXPECT_EQ(numa_name(m, "mlx5_1"), "NUMA0");
    EXPECT_EQ(numa_name(m, "GPU0"), "NUMA0");
    const bool silent = said == "-1" || said.empty() || said == "missing";
    const Finding& f = finding(m, silent ? "numa-unknown" : "numa-implausible");
    EXPECT_EQ(f.where, "pci0000:80");
    EXPECT_THAT(f.text, HasSubstr("NUMA0"));
    EXPECT_FALSE(f.remedy.empty());
    EXPECT_THAT(f.text, HasSubstr(silent ? "doesn't tell" : '"' + said + '"'));
    // What CPUs are near is a sign, too.
    image.files[right("gpu") + "local_cpulist"] = "4-7\n";
    const Machine by_cpus = detect_in(image);
    EXPECT_EQ(numa_name(by_cpus, "GPU1"), "NUMA1");
    EXPECT_EQ(ids(by_cpus), silent ? std::set<std::string>() : std::set<std::string>{"numa-implausible"});
  }
}

TEST(Detect, NumaNodesAcrossPackagesAreFlattened) {
  SystemImage image = server();
  image.files["/sys/devices/system/cpu/online"] = "0-127\n";
  image.files["/proc/self/status"] = "Cpus_allowed_list:\t0-127\n";
  image.add_cpus(0, 63, 0);
  image.add_cpus(64, 127, 1);
  image.add_node(0, "0-31,64-95", "1000000");
  image.add_node(1, "32-63,96-127", "1000000");
  const Machine m = detect_in(image);
  ASSERT_EQ(m.all(Kind::numa).size(), 1u);
  EXPECT_EQ(m.numa(0).cpus.size(), 128u);
  EXPECT_EQ(m.numa(0).memory_bytes, 2000000u * 1024);
  EXPECT_THAT(ids(m), ElementsAre("numa-across-packages"));
  EXPECT_EQ(finding(m, "numa-across-packages").severity, Severity::warning);
  EXPECT_THAT(finding(m, "numa-across-packages").text, HasSubstr("0, 1"));
  EXPECT_EQ(class_between(m, "GPU0", "mlx5_1"), "NODE");
}

TEST(Detect, NumaNodesThatShareCpusAreFlattened) {
  SystemImage image = server();
  image.add_node(1, "0-7", "1000000");
  EXPECT_EQ(detect_in(image).all(Kind::numa).size(), 1u);
}

TEST(Detect, NumaNodesWithoutMemoryOrCpus) {
  SystemImage image = server();
  std::erase_if(image.files, [](const auto& f) { return f.first.starts_with("/sys/devices/system/node"); });
  image.add_node(0, "0-3", "0");
  image.add_node(1, "", "1000000");
  image.add_node(2, "", "1000000");
  image.add_node(3, "4-7", "0");
  image.add_node(4, "", "0");
  const Machine m = detect_in(image);
  EXPECT_EQ(m.all(Kind::numa).size(), 4u);
  EXPECT_THAT(finding(m, "numa-without-memory").text, HasSubstr("0, 3"));
  EXPECT_THAT(finding(m, "numa-without-cpus").text, HasSubstr("1, 2"));
  EXPECT_THAT(finding(m, "numa-empty").text, HasSubstr("1 NUMA"));
  EXPECT_EQ(m.numa(m.find("NUMA3")).package, 1);
  EXPECT_EQ(m.numa(m.find("NUMA1")).package, kNone);
}

TEST(Detect, CpusKeepTheSystemsNumbersInACpuset) {
  SystemImage image = server();
  image.files["/proc/self/status"] = "Cpus_allowed_list:\t5-6\n";
  const Machine m = detect_in(image);
  EXPECT_FALSE(m.numa(m.find("NUMA0")).allowed);
  EXPECT_TRUE(m.numa(m.find("NUMA1")).allowed);
  EXPECT_THAT(m.numa(m.find("NUMA1")).cpus, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(finding(m, "cpuset").text, HasSubstr("2 of 8 CPUs: 5,6"));
}

TEST(Detect, OfflineCpusAreLeftOut) {
  SystemImage image = server();
  image.files["/sys/devices/system/cpu/online"] = "0-2,4-7\n";
  EXPECT_THAT(detect_in(image).numa(0).cpus, ElementsAre(0, 1, 2));
  image.files.erase("/sys/devices/system/cpu/online");
  image.files["/sys/devices/system/cpu/cpu1/online"] = "0\n";
  EXPECT_THAT(detect_in(image).numa(0).cpus, ElementsAre(0, 2, 3));
}

TEST(Detect, VirtualBridgesOfOneSlowLane) {
  SystemImage image = server();
  for (const std::string bridge : {"/", "/0000:12:00.0/", "root port"}) {
    const std::string folder = bridge == "root port" ? "/sys/devices/pci0000:10/0000:10:01.0/" : left(bridge);
    for (const char* file : {"current_link_speed", "max_link_speed"})
      image.files[folder + file] = "2.5 GT/s PCIe\n";
    for (const char* file : {"current_link_width", "max_link_width"}) image.files[folder + file] = "1\n";
  }
  const Machine m = detect_in(image);
  EXPECT_THAT(ids(m), ElementsAre("implausible-pci-link"));
  EXPECT_THAT(finding(m, "implausible-pci-link").text, HasSubstr("2.5 GT/s x1"));
  const Path path = paths_from(m, m.find("GPU0"))[static_cast<size_t>(m.find("NUMA0"))];
  EXPECT_DOUBLE_EQ(path.rate.gb_per_s, 12);
  EXPECT_EQ(path.rate.source, Source::assumed);
}

TEST(Detect, LinksWithoutSpeed) {
  for (const char* nothing : {"Unknown", "Unknown speed", "", "0.0 GT/s"}) {
    SystemImage image = server();
    for (const char* file : {"current_link_speed", "max_link_speed"})
      for (const std::string device : {"gpu", "/", "/0000:12:00.0/"})
        image.files[left(device) + file] = nothing;
    for (const char* file : {"current_link_width", "max_link_width"})
      for (const std::string device : {"gpu", "/", "/0000:12:00.0/"})
        image.files[left(device) + file] = "255\n";
    const Machine m = detect_in(image);
    EXPECT_THAT(ids(m), IsEmpty());
    const Rate rate = m.links[static_cast<size_t>(m.up_link(m.find("GPU0")))].rate;
    EXPECT_DOUBLE_EQ(rate.gb_per_s, 12);
    EXPECT_EQ(rate.source, Source::assumed);
  }
}

TEST(Detect, LinksThatAreNarrowOrSlow) {
  SystemImage image = server();
  image.files[left("gpu") + "current_link_width"] = "8\n";
  Machine m = detect_in(image);
  EXPECT_EQ(finding(m, "degraded-pci-link").severity, Severity::warning);
  EXPECT_EQ(finding(m, "degraded-pci-link").where, "0000:13:00.0");
  EXPECT_THAT(finding(m, "degraded-pci-link").text, HasSubstr("8 of 16 PCI lanes"));
  EXPECT_DOUBLE_EQ(m.links[static_cast<size_t>(m.up_link(m.find("GPU0")))].rate.gb_per_s, 24);

  image = server();  // an idle GPU saves power
  image.files[left("gpu") + "current_link_speed"] = "2.5 GT/s PCIe\n";
  m = detect_in(image);
  EXPECT_EQ(finding(m, "degraded-pci-link").severity, Severity::note);
  EXPECT_DOUBLE_EQ(m.links[static_cast<size_t>(m.up_link(m.find("GPU0")))].rate.gb_per_s, 48);

  image = server();
  image.files[left("nic") + "current_link_speed"] = "16.0 GT/s PCIe\n";
  EXPECT_EQ(finding(detect_in(image), "degraded-pci-link").severity, Severity::warning);

  image = server();  // a slot that can't do more is not degraded
  for (const char* file : {"current_link_speed", "max_link_speed"})
    image.files[left("/0000:12:00.0/") + file] = "16.0 GT/s PCIe\n";
  image.files[left("gpu") + "current_link_speed"] = "16.0 GT/s PCIe\n";
  m = detect_in(image);
  EXPECT_THAT(ids(m), IsEmpty());
  EXPECT_DOUBLE_EQ(m.links[static_cast<size_t>(m.up_link(m.find("GPU0")))].rate.gb_per_s, 24);
}

TEST(Detect, NetworkDevicesOfOtherKinds) {
  SystemImage image = server();
  for (int i = 0; i < 61; ++i) image.add_net("veth" + std::to_string(i), "", "10000");
  image.add_net("enx1", "pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0", "100");
  image.files["/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/x"] = "";
  image.files["/sys/class/net/bonding_masters"] = "bond0\n";
  // a virtual machine's card, which is no network controller by its class
  image.add_pci("pci0000:00/0000:00:03.0", "0xffff00", "0x1af4", "0x1041", "-1");
  image.files["/sys/devices/pci0000:00/0000:00:03.0/virtio1/x"] = "";
  image.add_net("eth5", "pci0000:00/0000:00:03.0/virtio1", "-1", "down");
  // one that isn't on the PCI
  image.files["/sys/devices/vmbus/1234/numa_node"] = "1\n";
  image.add_net("eth6", "vmbus/1234", "50000");
  // Amazon's
  image.add_pci("pci0000:00/0000:00:06.0", "0x020000", "0x1d0f", "0xefa2", "1");
  image.add_rdma("rdmap6s0", "pci0000:00/0000:00:06.0", "Unspecified", "100 Gb/sec (4X EDR)");
  // a spare virtual function
  image.add_pci("pci0000:00/0000:00:07.0", "0x020000", "0x15b3", "0x101e", "0");
  image.files["/sys/devices/pci0000:00/0000:00:07.0/physfn/x"] = "";
  const Machine m = detect_in(image);
  EXPECT_THAT(finding(m, "interfaces-left-out").text, HasSubstr("62 network interfaces"));
  EXPECT_EQ(m.port(m.find("eth5")).up, Answer3::no);
  EXPECT_EQ(m.port(m.find("eth5")).gbit_per_s, 0);
  EXPECT_EQ(m[m.nic_of(m.find("eth5"))].name, "0000:00:03.0");
  EXPECT_EQ(numa_name(m, "eth6"), "NUMA1");
  EXPECT_EQ(m.port(m.find("eth6")).gbit_per_s, 50);
  EXPECT_EQ(m.port(m.find("rdmap6s0")).network, Network::efa);
  EXPECT_EQ(m.find("0000:00:07.0"), kNone);
  EXPECT_EQ(m.all(Kind::port).size(), 6u);
}

TEST(Detect, CardsOfTwoPorts) {
  SystemImage image = server();
  image.files["/sys/class/infiniband/mlx5_0/ports/2/state"] = "1: DOWN\n";
  image.files["/sys/class/infiniband/mlx5_0/ports/2/gid_attrs/ndevs/0"] = "ib1\n";
  const Machine m = detect_in(image);
  const Port& second = m.port(m.find("mlx5_0:2"));
  EXPECT_EQ(second.number, 2);
  EXPECT_EQ(second.up, Answer3::no);
  EXPECT_EQ(second.interface, "ib1");
  EXPECT_EQ(m.nic_of(m.find("mlx5_0:2")), m.nic_of(m.find("mlx5_0")));
}

// A copy of /sys made without links: buses say what is behind which bridge.
TEST(Detect, PciTreeWithoutLinks) {
  SystemImage image = server();
  for (const auto& [path, to] : std::map(image.links)) {
    if (!path.starts_with("/sys/bus/pci/")) continue;
    for (const auto& [file, text] : std::map(image.files))
      if (file.starts_with(to + "/") && file.find('/', to.size() + 1) == file.npos)
        image.files[path + file.substr(to.size())] = text;
    image.links.erase(path);
  }
  for (const auto& [bridge, bus] : {std::pair{"0000:10:01.0", "17"},
                                    {"0000:11:00.0", "18"},
                                    {"0000:12:00.0", "19"},
                                    {"0000:12:01.0", "20"}})
    image.files["/sys/bus/pci/devices/" + std::string(bridge) + "/secondary_bus_number"] = bus;
  const Machine m = detect_in(image);
  EXPECT_EQ(m[m[m.find("GPU0")].parent].name, "0000:11:00.0");
  EXPECT_EQ(m[m[m[m.find("GPU0")].parent].parent].name, "pci0000:10");
  // A circle of bridges is cut.
  image.files["/sys/bus/pci/devices/0000:12:00.0/secondary_bus_number"] = "16";
  validate(detect_in(image));
}

TEST(DetectHere, ThisMachine) {
  const Machine m = detect();
  validate(m);
  EXPECT_FALSE(m.name.empty());
  std::set<int> cpus;
  bool allowed = false;
  for (const int n : m.all(Kind::numa)) {
    cpus.insert(m.numa(n).cpus.begin(), m.numa(n).cpus.end());
    allowed = allowed || m.numa(n).allowed;
  }
  for (const int c : allowed_cpus()) EXPECT_TRUE(cpus.contains(c)) << c;
  EXPECT_TRUE(allowed);
  EXPECT_FALSE(ids(m).contains("hwloc-disagrees")) << finding(m, "hwloc-disagrees").text;
  if (const auto hwloc = look_by_hwloc()) {
    std::set<int> same;
    for (const Numa& n : hwloc->cpus.numas) same.insert(n.cpus.begin(), n.cpus.end());
    EXPECT_EQ(cpus, same);
  }
}

TEST(DetectHere, CpusOfAThreadThatMayUseOne) {
  const std::vector<int> all = allowed_cpus();
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(all.back(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    const Machine m = detect();
    std::set<int> cpus;
    for (const int n : m.all(Kind::numa)) {
      cpus.insert(m.numa(n).cpus.begin(), m.numa(n).cpus.end());
      const bool here = std::count(m.numa(n).cpus.begin(), m.numa(n).cpus.end(), all.back()) > 0;
      EXPECT_EQ(m.numa(n).allowed, here || m.numa(n).cpus.empty());
    }
    for (const int c : all) EXPECT_TRUE(cpus.contains(c)) << c;
  }).join();
}

}  // namespace
}  // namespace muster::topology
