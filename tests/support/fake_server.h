// A made-up server, and what tests ask of a machine that was detected in it.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "support/fake_system.h"
#include "topology/detect.h"
#include "topology/paths.h"

namespace muster::topology {

inline constexpr const char* kLeft = "pci0000:10/0000:10:01.0/0000:11:00.0";
inline constexpr const char* kRight = "pci0000:80/0000:80:01.0/0000:81:00.0";

// Two sockets, each with a switch that has an H100 and a ConnectX-7; the left one InfiniBand, the right one
// Ethernet.
inline test::SystemImage server() {
  test::SystemImage s;
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

inline std::string left(const std::string& device) {
  return "/sys/devices/" + std::string(kLeft) +
         (device == "gpu"   ? "/0000:12:00.0/0000:13:00.0/"
          : device == "nic" ? "/0000:12:01.0/0000:14:00.0/"
                            : device);
}
inline std::string right(const std::string& device) {
  return "/sys/devices/" + std::string(kRight) +
         (device == "gpu"   ? "/0000:82:00.0/0000:83:00.0/"
          : device == "nic" ? "/0000:82:01.0/0000:84:00.0/"
                            : device);
}

inline Machine detect_in(const test::SystemImage& image) {
  const test::FakeSystem system(image);
  return detect({.root = system.root()});
}

inline std::set<std::string> ids(const Machine& m) {
  std::set<std::string> r;
  for (const Finding& f : m.findings) r.insert(f.id);
  r.erase("nvlink-unknown");  // H100s without a driver to ask
  return r;
}

inline const Finding& finding(const Machine& m, std::string_view id) {
  static const Finding none;
  for (const Finding& f : m.findings)
    if (f.id == id) return f;
  ADD_FAILURE() << "no finding " << id;
  return none;
}

inline std::string_view class_between(const Machine& m, std::string_view a, std::string_view b) {
  const int from = m.find(a), to = m.find(b);
  if (from == kNone || to == kNone) return "?";
  return name_of(paths_from(m, from)[static_cast<size_t>(to)].path_class);
}

inline std::string_view numa_name(const Machine& m, std::string_view node) {
  return m[m.numa_of(m.find(node))].name;
}

}  // namespace muster::topology
