// Detection: made-up systems in a temporary folder, and the machine that the test runs on.
#include "topology/detect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <thread>

#include "support/fake_system.h"
#include "topology/allowed_cpus.h"
#include "topology/detect_cpus.h"
#include "topology/paths.h"

namespace muster::topology {
namespace {

namespace fs = std::filesystem;
using test::FakeSystem;
using test::SystemImage;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kLeft = "pci0000:10/0000:10:01.0/0000:11:00.0";
constexpr const char* kRight = "pci0000:80/0000:80:01.0/0000:81:00.0";

// Two sockets, each with a switch that has an H100 and a ConnectX-7; the left one InfiniBand, the right one
// Ethernet.
SystemImage server() {
  SystemImage s;
  s.files["/sys/devices/system/cpu/online"] = "0-7\n";
  s.add_cpus(0, 3, 0);
  s.add_cpus(4, 7, 1);
  s.add_node(0, "0-3", "67108864");
  s.add_node(1, "4-7", "67108864");
  s.files["/proc/cpuinfo"] =
      "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: "
      "Xeon\n\nprocessor\t: 1\n";
  s.files["/proc/self/status"] = "Name:\ttest\nCpus_allowed_list:\t0-7\n";
  s.files["/proc/self/limits"] =
      "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory     "
      "    unlimited            unlimited            bytes     \n";
  s.files["/proc/sys/kernel/osrelease"] = "5.15.0-100-generic\n";
  s.files["/proc/sys/kernel/hostname"] = "node7\n";
  s.files["/proc/driver/nvidia/version"] =
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86\n";
  s.files["/proc/cmdline"] = "quiet\n";
  for (const auto& [path, numa, bus] : {std::tuple{kLeft, "0", "1"}, {kRight, "1", "8"}}) {
    const std::string up = path, b = bus;
    s.add_pci(up.substr(0, up.rfind('/')), "0x060400", "0x8086", "0x352a", numa);
    s.add_pci(up, "0x060400", "0x1000", "0xc030", numa);
    s.add_pci(up + "/0000:" + b + "2:00.0", "0x060400", "0x1000", "0xc030", numa);
    s.add_pci(up + "/0000:" + b + "2:01.0", "0x060400", "0x1000", "0xc030", numa);
    s.add_pci(up + "/0000:" + b + "2:00.0/0000:" + b + "3:00.0", "0x030200", "0x10de", "0x2330", numa);
    s.add_pci(up + "/0000:" + b + "2:01.0/0000:" + b + "4:00.0", b == "1" ? "0x020700" : "0x020000", "0x15b3",
              "0x1021", numa);
    for (const char* bridge : {"", "/0000:X2:00.0", "/0000:X2:01.0"}) {
      std::string config = "/sys/devices/" + up + bridge + "/config";
      if (const size_t x = config.find('X'); x != config.npos) config[x] = b[0];
      s.files[config] = std::string(4096, '\0');
    }
    s.files["/sys/devices/" + up.substr(0, up.rfind('/')) + "/config"] = std::string(4096, '\0');
  }
  s.add_pci("pci0000:00/0000:00:1f.6", "0x020000", "0x8086", "0x1533", "0", "2.5 GT/s PCIe", "1");
  s.add_rdma("mlx5_0", std::string(kLeft) + "/0000:12:01.0/0000:14:00.0", "InfiniBand",
             "400 Gb/sec (4X NDR)");
  s.add_rdma("mlx5_1", std::string(kRight) + "/0000:82:01.0/0000:84:00.0", "Ethernet", "200 Gb/sec (4X HDR)");
  s.add_net("ib0", std::string(kLeft) + "/0000:12:01.0/0000:14:00.0", "400000");
  s.add_net("eth1", std::string(kRight) + "/0000:82:01.0/0000:84:00.0", "200000");
  s.add_net("eth0", "pci0000:00/0000:00:1f.6", "1000");
  s.add_net("lo", "", "");
  return s;
}

std::string left(const std::string& device) {
  return "/sys/devices/" + std::string(kLeft) +
         (device == "gpu"   ? "/0000:12:00.0/0000:13:00.0/"
          : device == "nic" ? "/0000:12:01.0/0000:14:00.0/"
                            : device);
}
std::string right(const std::string& device) {
  return "/sys/devices/" + std::string(kRight) +
         (device == "gpu"   ? "/0000:82:00.0/0000:83:00.0/"
          : device == "nic" ? "/0000:82:01.0/0000:84:00.0/"
                            : device);
}

Machine detect_in(const SystemImage& image) {
  const FakeSystem system(image);
  return detect({.root = system.root()});
}

std::set<std::string> ids(const Machine& m) {
  std::set<std::string> r;
  for (const Finding& f : m.findings) r.insert(f.id);
  r.erase("nvlink-unknown");  // H100s without a driver to ask
  return r;
}

const Finding& finding(const Machine& m, std::string_view id) {
  static const Finding none;
  for (const Finding& f : m.findings)
    if (f.id == id) return f;
  ADD_FAILURE() << "no finding " << id;
  return none;
}

std::string_view class_between(const Machine& m, std::string_view a, std::string_view b) {
  const int from = m.find(a), to = m.find(b);
  if (from == kNone || to == kNone) return "?";
  return name_of(paths_from(m, from)[static_cast<size_t>(to)].path_class);
}

std::string_view numa_name(const Machine& m, std::string_view node) {
  return m[m.numa_of(m.find(node))].name;
}

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

TEST(Detect, AcsOnBridgesAboveGpus) {
  SystemImage image = server();
  std::string& config = image.files[left("/0000:12:00.0/config")];
  config[0x100] = 0x01;  // advanced error reporting first, whose next is at 0x148
  config[0x102] = 0x01, config[0x103] = 0x14;
  config.replace(0x102, 2, std::string("\x81\x14", 2));  // version 1, next 0x148
  config[0x148] = 0x0d;
  config[0x14a] = 0x01;
  config[0x14e] = 0x1d;  // source validation, request and completion redirect, upstream forwarding
  const Machine m = detect_in(image);
  EXPECT_THAT(ids(m), ElementsAre("acs-enabled"));
  EXPECT_THAT(finding(m, "acs-enabled").text, HasSubstr("0000:12:00.0"));
  EXPECT_THAT(finding(m, "acs-enabled").remedy, HasSubstr("setpci"));
  config[0x14e] = 0x01;  // source validation alone redirects nothing
  EXPECT_THAT(ids(detect_in(image)), IsEmpty());
  config[0x148] = config[0x14a] = 0;
  config[0x14b] = static_cast<char>(0x14);  // a list that goes in circles
  config[0x14a] = static_cast<char>(0x81);
  EXPECT_THAT(ids(detect_in(image)), IsEmpty());
  config.resize(64);  // what others than root see
  EXPECT_THAT(ids(detect_in(image)), ElementsAre("acs-unreadable"));
  // A bridge that has no GPU below is of no interest.
  config = std::string(4096, '\0');
  image.files[left("/0000:12:01.0/config")].resize(64);
  EXPECT_THAT(ids(detect_in(image)), IsEmpty());
}

TEST(Detect, Iommu) {
  SystemImage image = server();
  image.files["/sys/class/iommu/dmar0/x"] = "";
  EXPECT_THAT(ids(detect_in(image)), ElementsAre("iommu-on"));
  image.files["/proc/cmdline"] = "quiet iommu=pt intel_iommu=on\n";
  EXPECT_THAT(ids(detect_in(image)), IsEmpty());
  image.files[left("gpu") + "iommu_group/type"] = "DMA-FQ\n";
  const Machine m = detect_in(image);
  EXPECT_THAT(ids(m), ElementsAre("iommu-translates"));
  EXPECT_THAT(finding(m, "iommu-translates").text, HasSubstr("1 GPUs"));
  image.files[left("gpu") + "iommu_group/type"] = "identity\n";
  image.files["/proc/cmdline"] = "quiet\n";
  EXPECT_THAT(ids(detect_in(image)), IsEmpty());
}

TEST(Detect, GpuDirectNeedsAModuleOrDmaBuf) {
  SystemImage image = server();
  const auto gpudirect = [&] {
    const Machine m = detect_in(image);
    return std::pair(m.port(m.find("mlx5_0")).gpudirect, ids(m));
  };
  image.files["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1\n";
  EXPECT_EQ(gpudirect(), std::pair(Answer3::no, std::set<std::string>{"gpudirect-missing"}));
  EXPECT_EQ(detect_in(image).port(detect_in(image).find("eth0")).gpudirect, Answer3::unknown);
  image.files["/sys/module/nvidia_peermem/initstate"] = "live\n";
  EXPECT_EQ(gpudirect(), std::pair(Answer3::yes, std::set<std::string>{}));
  image.files.erase("/sys/module/nvidia_peermem/initstate");
  image.files["/proc/driver/nvidia/version"] =
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86\n";
  image.files["/proc/sys/kernel/osrelease"] = "5.4.0-1\n";
  EXPECT_EQ(gpudirect(), std::pair(Answer3::no, std::set<std::string>{"gpudirect-missing"}));
  for (const char* recent : {"5.12.0", "5.15.0-100-generic", "6.8", "10.0"}) {
    image.files["/proc/sys/kernel/osrelease"] = recent;
    EXPECT_EQ(gpudirect().first, Answer3::yes) << recent;
  }
  image.files.erase("/proc/driver/nvidia/version");
  EXPECT_EQ(gpudirect(), std::pair(Answer3::unknown, std::set<std::string>{"gpudirect-unknown"}));
}

TEST(Detect, LowLimitOfLockedMemory) {
  SystemImage image = server();
  image.files["/proc/self/limits"] =
      "Max locked memory         8388608              8388608              bytes     \n";
  const Machine m = detect_in(image);
  EXPECT_THAT(ids(m), ElementsAre("memlock-low"));
  EXPECT_THAT(finding(m, "memlock-low").text, HasSubstr("8192 KiB"));
  EXPECT_THAT(finding(m, "memlock-low").remedy, HasSubstr("ulimit -l unlimited"));
  std::erase_if(image.links, [](const auto& l) { return l.first.starts_with("/sys/class/infiniband"); });
  std::erase_if(image.files, [](const auto& f) { return f.first.starts_with("/sys/class/infiniband"); });
  EXPECT_THAT(ids(detect_in(image)), IsEmpty()) << "nothing here is locked";
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

class WithNvml : public testing::Test {
 protected:
  Machine detect_with(const SystemImage& image, const std::string& driver,
                      std::optional<std::string> visible = std::nullopt) {
    SystemImage both = image;
    both.files["/nvml"] = driver;
    const FakeSystem system(both);
    setenv("MUSTER_TEST_NVML", (system.root() + "/nvml").c_str(), 1);
    Machine m = detect({.root = system.root(), .nvml = FAKE_NVML, .visible_gpus = std::move(visible)});
    unsetenv("MUSTER_TEST_NVML");
    return m;
  }
  static std::string repeat(const std::string& line, int n) {
    std::string r;
    for (int i = 0; i < n; ++i) r += line + "\n";
    return r;
  }
  const std::string first_ = "gpu 00000000:13:00.0 9 0 GPU-aaaa NVIDIA H100 80GB HBM3\n",
                    second_ = "gpu 00000000:83:00.0 9 0 GPU-bbbb NVIDIA H100 80GB HBM3\n";
};

TEST_F(WithNvml, LinksBetweenGpus) {
  const Machine m = detect_with(server(), first_ + repeat("link 0 00000000:83:00.0", 6) + second_ +
                                              repeat("link 0 00000000:13:00.0", 6));
  EXPECT_THAT(ids(m), IsEmpty());
  EXPECT_EQ(class_between(m, "GPU0", "GPU1"), "NVL");
  EXPECT_EQ(nvlinks_of(m, m.find("GPU0")).links, 6);
  EXPECT_NEAR(nvlinks_of(m, m.find("GPU0")).rate.gb_per_s, 6 * 20.6, 1e-9);
  EXPECT_EQ(m.gpu(m.find("GPU1")).model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(m.gpu(m.find("GPU1")).uuid, "GPU-bbbb");
  EXPECT_EQ(m.all(Kind::gpu).size(), 2u);
}

TEST_F(WithNvml, NumbersAreTheDrivers) {
  const Machine m = detect_with(server(), second_ + first_);
  EXPECT_EQ(m[m.find("GPU0")].pci->address.text(), "0000:83:00.0");
  EXPECT_EQ(m[m.find("GPU1")].pci->address.text(), "0000:13:00.0");
}

TEST_F(WithNvml, SwitchesAlsoWhereTheyCanNotBeRead) {
  // 4 NVSwitches: links to them by 5, 4, 4, 5, as in a DGX H100; the second GPU as a virtual machine sees it.
  std::string links;
  for (const auto& [address, n] : {std::pair{"00000000:05:00.0", 5},
                                   {"00000000:06:00.0", 4},
                                   {"00000000:07:00.0", 4},
                                   {"00000000:08:00.0", 5}})
    links += repeat("link 2 " + std::string(address), n);
  const Machine m = detect_with(
      server(), first_ + links + second_ + repeat("link 255 fffffff:ffff:ff", 10) + repeat("link 255 -", 8));
  EXPECT_THAT(ids(m), IsEmpty());
  EXPECT_EQ(class_between(m, "GPU0", "GPU1"), "NVL");
  for (const char* gpu : {"GPU0", "GPU1"}) {
    EXPECT_EQ(nvlinks_of(m, m.find(gpu)).links, 18);
    EXPECT_NEAR(nvlinks_of(m, m.find(gpu)).rate.gb_per_s, 370.8, 1e-9);
  }
  ASSERT_EQ(m.all(Kind::nvswitch).size(), 1u);
  EXPECT_EQ(std::get<NvSwitch>(m[m.all(Kind::nvswitch)[0]].detail).count, 4);
}

TEST_F(WithNvml, LinksThatAreDown) {
  Machine m = detect_with(
      server(), first_ + repeat("link 2 -", 16) + repeat("down", 2) + second_ + repeat("link 2 -", 18));
  EXPECT_EQ(finding(m, "nvlink-down").where, "GPU0");
  EXPECT_THAT(finding(m, "nvlink-down").text, HasSubstr("2 of 18"));
  // Cards of which none is connected are no cause for alarm.
  m = detect_with(server(), first_ + repeat("down", 12) + second_ + repeat("down", 12));
  EXPECT_FALSE(ids(m).contains("nvlink-down"));
  EXPECT_EQ(class_between(m, "GPU0", "GPU1"), "SYS");
}

TEST_F(WithNvml, GpusThatOnlyOneOfThemShows) {
  Machine m = detect_with(server(), first_);
  EXPECT_EQ(m.all(Kind::gpu).size(), 2u);
  EXPECT_FALSE(m[m.find("GPU0")].hidden);
  EXPECT_TRUE(m[m.find("GPU1")].hidden);
  EXPECT_THAT(finding(m, "gpu-hidden").text, HasSubstr("1 GPUs"));

  m = detect_with(server(), first_ + second_ + "gpu 00000000:99:00.0 9 0 GPU-cccc NVIDIA H100\n");
  EXPECT_EQ(m.all(Kind::gpu).size(), 3u);
  EXPECT_EQ(numa_name(m, "GPU2"), "NUMA0");
  EXPECT_EQ(finding(m, "gpu-not-in-sysfs").where, "GPU2");

  m = detect_with(
      {}, first_ + repeat("link 0 00000000:83:00.0", 4) + second_ + repeat("link 0 00000000:13:00.0", 4));
  EXPECT_EQ(class_between(m, "GPU0", "GPU1"), "NVL");
}

TEST_F(WithNvml, ADriverThatFailsHidesNothing) {
  const Machine m = detect_with(server(), "init 9\n");
  EXPECT_THAT(finding(m, "nvml-fails").text, HasSubstr("Driver Not Loaded"));
  for (const int g : m.all(Kind::gpu)) EXPECT_FALSE(m[g].hidden);
  EXPECT_THAT(ids(detect({.root = "/nowhere", .nvml = "/no/such/library.so"})), ElementsAre("numa-unknown"));
}

TEST_F(WithNvml, C2cToTheCpu) {
  const Machine m = detect_with(server(), first_ + "c2c 10 45000\n" + second_ + "c2c 10 0\n");
  const auto c2c = [&](const char* gpu) {
    for (const Link& l : m.links)
      if (l.kind == LinkKind::c2c && (l.a == m.find(gpu) || l.b == m.find(gpu))) return l;
    return Link{};
  };
  EXPECT_NEAR(c2c("GPU0").rate.gb_per_s, 450, 1e-9);  // Grace Hopper: 450 GB/s in each direction
  EXPECT_EQ(c2c("GPU0").rate.source, Source::read);
  EXPECT_EQ(c2c("GPU1").rate.source, Source::assumed);
  EXPECT_EQ(class_between(m, "GPU0", "NUMA0"), "C2C");
}

TEST_F(WithNvml, VisibleDevices) {
  const auto shown = [&](const std::string& visible) {
    const Machine m = detect_with(server(), first_ + second_, visible);
    std::string r;
    for (const int g : m.all(Kind::gpu))
      if (!m[g].hidden) r += m[g].name + " ";
    return r;
  };
  EXPECT_EQ(shown("0,1"), "GPU0 GPU1 ");
  EXPECT_EQ(shown("1"), "GPU1 ");
  EXPECT_EQ(shown("GPU-bb"), "GPU1 ");
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("-1"), "");
  EXPECT_EQ(shown("1,7,0"), "GPU1 ");  // CUDA stops at what isn't there
  EXPECT_EQ(shown("NoDevFiles"), "");
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
  if (const auto hwloc = read_cpus_by_hwloc()) {
    std::set<int> same;
    for (const Numa& n : hwloc->numas) same.insert(n.cpus.begin(), n.cpus.end());
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
