#include "topology/environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace muster::topology {
namespace {


bool is_rdma(const Port& p) {
  return p.network == Network::infiniband || p.network == Network::roce || p.network == Network::efa;
}

// The first few of many.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMost)));
  return fmt::format("{}{}", fmt::join(first, ", "),
                     names.size() > kMost ? fmt::format(" and {} more", names.size() - kMost) : "");
}

// The control register of the Access Control Services capability (PCI Express base specification, 7.7.11).
// Nothing where there is none; *readable: whether that could be told.
std::optional<uint16_t> acs_control(const std::string& config, bool* readable) {
  constexpr size_t kExtended = 0x100, kSize = 4096;
  constexpr uint32_t kAcs = 0x000d;
  *readable = config.size() > kExtended ||
              config.size() == kExtended;  // 256 bytes: conventional PCI, without the rest
  const auto word = [&](size_t at) {
    return static_cast<uint32_t>(static_cast<uint8_t>(config[at])) |
           static_cast<uint32_t>(static_cast<uint8_t>(config[at + 1])) << 8;
  };
  size_t at = kExtended;
  for (int steps = 0; steps < 64 && at >= kExtended && at + 8 <= std::min(config.size(), kSize); ++steps) {
    const uint32_t id = word(at), next = word(at + 2) >> 4 & 0xffc;
    if (id == 0xffff) break;
    if (id == kAcs) return static_cast<uint16_t>(word(at + 6));
    at = next;
  }
  return std::nullopt;
}

class EnvironmentExaminer {
 public:
  EnvironmentExaminer(Machine& m, const SystemFiles& system, std::span<const SystemFunction> functions)
      : m_(m), system_(system), functions_(functions) {}

  void examine() {
    const std::vector<int> gpus = m_.all(Kind::gpu);
    nvidia_ = std::any_of(gpus.begin(), gpus.end(),
                          [&](int g) { return m_[g].pci && m_[g].pci->vendor == kNvidia; });
    for (const int p : m_.all(Kind::port)) rdma_ = rdma_ || is_rdma(m_.port(p));
    if (!gpus.empty()) {
      find_acs();
      find_iommu();
    }
    if (nvidia_ && rdma_) find_gpudirect();
    if (rdma_) find_memlock();
  }

 private:
  void find(Severity severity, std::string id, std::string where, std::string text, std::string remedy) {
    m_.findings.push_back({severity, std::move(id), std::move(where), std::move(text), std::move(remedy)});
  }

  void find_acs() {
    constexpr uint16_t kRedirects = 0x0004 | 0x0008;  // P2P requests and completions
    std::vector<std::string> on, unreadable;
    std::vector<bool> seen(functions_.size(), false);
    for (const SystemFunction& gpu : functions_) {
      if (gpu.function.role != PciRole::gpu) continue;
      for (int up = gpu.function.parent; up != kNone && !seen[static_cast<size_t>(up)];
           up = functions_[static_cast<size_t>(up)].function.parent) {
        seen[static_cast<size_t>(up)] = true;
        const SystemFunction& bridge = functions_[static_cast<size_t>(up)];
        bool readable = false;
        const auto control = acs_control(system_.bytes(bridge.folder + "/config", 4096), &readable);
        if (!readable) unreadable.push_back(bridge.function.pci.address.text());
        if (control && (*control & kRedirects) != 0) on.push_back(bridge.function.pci.address.text());
      }
    }
    if (!on.empty())
      find(Severity::warning, "acs-enabled", on.front(),
           fmt::format("{} bridges above GPUs send traffic between devices by way of the CPU (Access Control "
                       "Services): {}",
                       on.size(), some_of(on)),
           "Disable ACS in the firmware, or for each bridge as root: setpci -s BRIDGE ECAP_ACS+6.w=0000 "
           "(virtual machines with passed-through devices need it)");
    if (!unreadable.empty())
      find(Severity::note, "acs-unreadable", unreadable.front(),
           fmt::format(
               "whether {} bridges above GPUs redirect traffic between devices (ACS) is shown to root only",
               unreadable.size()),
           "Run it as root to know");
  }

  void find_iommu() {
    if (system_.list("/sys/class/iommu").empty()) return;
    std::vector<std::string> translated;
    bool told = false;
    for (const SystemFunction& f : functions_) {
      if (f.function.role != PciRole::gpu) continue;
      const auto type = system_.text(f.folder + "/iommu_group/type");
      if (!type) continue;
      told = true;
      if (type->starts_with("DMA")) translated.push_back(f.function.pci.address.text());
    }
    const std::string remedy =
        "Start the kernel with iommu=pt, or disable the IOMMU in the firmware if no virtual machine needs it";
    if (!translated.empty()) {
      find(Severity::warning, "iommu-translates", translated.front(),
           fmt::format(
               "the IOMMU translates what {} GPUs read and write, which slows traffic between devices: {}",
               translated.size(), some_of(translated)),
           remedy);
      return;
    }
    const std::string command = system_.text("/proc/cmdline").value_or("");
    const auto words = split(command, ' ');
    const auto says = [&](std::string_view word) {
      return std::find(words.begin(), words.end(), word) != words.end();
    };
    if (!told && !says("iommu=pt") && !says("iommu.passthrough=1"))
      find(Severity::note, "iommu-on", "",
           "there is an IOMMU, and the system doesn't tell whether it translates what GPUs read and write",
           remedy);
  }

  // Whether network cards can reach the memory of NVIDIA's GPUs: a module of the driver, or dma-buf, which
  // the open kernel modules have, from Linux 5.12 on.
  void find_gpudirect() {
    const bool peermem =
        system_.exists("/sys/module/nvidia_peermem") || system_.exists("/sys/module/nv_peer_mem");
    const std::string driver = system_.text("/proc/driver/nvidia/version").value_or("");
    const bool open = driver.find("Open Kernel Module") != driver.npos;
    const std::string release = system_.text("/proc/sys/kernel/osrelease").value_or("");
    int major = 0, minor = 0;
    const char* end = release.data() + release.size();
    if (const auto [dot, error] = std::from_chars(release.data(), end, major);
        error == std::errc() && dot != end && *dot == '.')
      std::from_chars(dot + 1, end, minor);
    const bool recent = major > 5 || (major == 5 && minor >= 12);
    Answer3 answer = Answer3::no;
    if (peermem || (open && recent))
      answer = Answer3::yes;
    else if (driver.empty())
      answer = Answer3::unknown;  // not shown in this container, or there is no driver
    for (const int p : m_.all(Kind::port))
      if (Port& port = std::get<Port>(m_[p].detail); is_rdma(port) && port.gpudirect == Answer3::unknown)
        port.gpudirect = answer;
    const std::string remedy =
        "Load it (modprobe nvidia_peermem), or use the driver's open kernel modules with Linux 5.12 or newer "
        "(dma-buf)";
    if (answer == Answer3::no)
      find(Severity::warning, "gpudirect-missing", "",
           fmt::format("network cards can't read GPU memory: nvidia_peermem is not loaded, and there is no "
                       "dma-buf ({} kernel modules, Linux {})",
                       open ? "open" : "proprietary",
                       release.empty() ? "of an unknown version" : printable(release, 40)),
           remedy);
    if (answer == Answer3::unknown)
      find(Severity::note, "gpudirect-unknown", "",
           "nvidia_peermem is not loaded, and whether the driver has dma-buf isn't shown: network cards may "
           "not be able to read GPU memory",
           remedy);
  }

  // Whoever holds CAP_IPC_LOCK may lock any amount; in a user namespace of its own it is held in name only.
  bool may_lock_all() const {
    constexpr int kIpcLock = 14;
    const std::string status = system_.text("/proc/self/status").value_or(""), users = system_.text("/proc/self/uid_map").value_or("");
    constexpr std::string_view key = "CapEff:";
    const size_t at = status.find(key);
    if (at == status.npos || (!users.empty() && users.find("4294967295") == users.npos)) return false;
    const std::string_view value = trim(std::string_view(status).substr(at + key.size(), status.find('\n', at) - at - key.size()));
    uint64_t held = 0;
    std::from_chars(value.data(), value.data() + value.size(), held, 16);
    return held >> kIpcLock & 1;
  }

  void find_memlock() {
    if (may_lock_all()) return;
    constexpr uint64_t kEnough = uint64_t{1} << 30;
    const std::string limits = system_.text("/proc/self/limits").value_or("");
    for (const std::string_view line : split(limits, '\n')) {
      constexpr std::string_view key = "Max locked memory";
      if (!line.starts_with(key)) continue;
      const std::string_view value = trim(line.substr(key.size()));
      uint64_t bytes = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), bytes);
      if (error == std::errc() && bytes < kEnough)
        find(Severity::warning, "memlock-low", "",
             fmt::format("this process may lock {} KiB of memory; what RDMA cards read and write is locked, "
                         "some 10 MB for each connection",
                         bytes / 1024),
             "ulimit -l unlimited; in /etc/security/limits.conf: * - memlock unlimited; containers: --ulimit "
             "memlock=-1; systemd: LimitMEMLOCK=infinity");
    }
  }

  Machine& m_;
  const SystemFiles& system_;
  std::span<const SystemFunction> functions_;
  bool nvidia_ = false, rdma_ = false;
};

}  // namespace

void examine_environment(Machine& m, const SystemFiles& system, std::span<const SystemFunction> functions) {
  EnvironmentExaminer(m, system, functions).examine();
}

}  // namespace muster::topology
