// A made-up /sys and /proc in a temporary folder.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace muster::test {

// What a system shows: files with their texts, and links with where they lead. Written to a folder by
// FakeSystem.
struct SystemImage {
  std::map<std::string, std::string> files, links;

  // A PCI function: `path` below /sys/devices ends with its address, and is what the bus's list links to.
  void add_pci(const std::string& path, const std::string& class_code, const std::string& vendor,
               const std::string& device, const std::string& numa_node,
               const std::string& speed = "32.0 GT/s PCIe", const std::string& width = "16") {
    const std::string address = path.substr(path.rfind('/') + 1), folder = "/sys/devices/" + path + "/";
    files[folder + "class"] = class_code + "\n";
    files[folder + "vendor"] = vendor + "\n";
    files[folder + "device"] = device + "\n";
    files[folder + "numa_node"] = numa_node + "\n";
    files[folder + "current_link_speed"] = files[folder + "max_link_speed"] = speed + "\n";
    files[folder + "current_link_width"] = files[folder + "max_link_width"] = width + "\n";
    links["/sys/bus/pci/devices/" + address] = "/sys/devices/" + path;
  }
  void add_node(int number, const std::string& cpus, const std::string& kib) {
    const std::string folder = "/sys/devices/system/node/node" + std::to_string(number) + "/";
    files[folder + "cpulist"] = cpus + "\n";
    files[folder + "meminfo"] = "Node " + std::to_string(number) + " MemTotal:       " + kib + " kB\n";
  }
  void add_cpus(int first, int last, int package) {
    for (int c = first; c <= last; ++c)
      files["/sys/devices/system/cpu/cpu" + std::to_string(c) + "/topology/physical_package_id"] =
          std::to_string(package) + "\n";
  }
  void add_rdma(const std::string& name, const std::string& device, const std::string& link_layer,
                const std::string& rate, const std::string& state = "4: ACTIVE") {
    const std::string folder = "/sys/class/infiniband/" + name + "/";
    links[folder + "device"] = "/sys/devices/" + device;
    files[folder + "node_guid"] = files[folder + "sys_image_guid"] =
        "a088:c203:0009:" + std::to_string(1000 + files.size() % 9000) + "\n";
    files[folder + "ports/1/state"] = state + "\n";
    files[folder + "ports/1/rate"] = rate + "\n";
    files[folder + "ports/1/link_layer"] = link_layer + "\n";
  }
  void add_net(const std::string& name, const std::string& device, const std::string& speed,
               const std::string& state = "up") {
    const std::string folder = "/sys/class/net/" + name + "/";
    if (!device.empty()) links[folder + "device"] = "/sys/devices/" + device;
    files[folder + "speed"] = speed + "\n";
    files[folder + "operstate"] = state + "\n";
    files[folder + "type"] = "1\n";
  }
};

class FakeSystem {
 public:
  explicit FakeSystem(const SystemImage& image) {
    namespace fs = std::filesystem;
    // In memory where that is possible: it is some hundred files.
    std::string pattern = (fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
                          "muster-system-XXXXXX";
    if (!mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
    root_ = pattern;
    for (const auto& [path, text] : image.files) {
      fs::create_directories(fs::path(root_ + path).parent_path());
      std::ofstream(root_ + path, std::ios::binary) << text;
    }
    for (const auto& [path, to] : image.links) {
      const fs::path from = fs::path(root_ + path).parent_path();
      fs::create_directories(from);
      fs::create_symlink(fs::path(root_ + to).lexically_relative(from), root_ + path);
    }
  }
  ~FakeSystem() { std::filesystem::remove_all(root_); }
  FakeSystem(const FakeSystem&) = delete;
  FakeSystem& operator=(const FakeSystem&) = delete;
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

}  // namespace muster::test
