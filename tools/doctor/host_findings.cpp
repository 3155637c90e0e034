// Findings about one host and one process.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "findings.h"

namespace muster::doctor {
namespace {

constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;

constexpr int64_t kFewFiles = 1024;        // what Linux gives by default; each peer of another host takes one or more
constexpr int64_t kFewPorts = 1024;        // each process listens at one, and each connection that it makes takes one
constexpr int64_t kRoomForProcesses = 64;  // a rank has a helper thread, and one for each stream and non-blocking call
constexpr int64_t kDockerShm = 64 * kMiB;  // what Docker and Kubernetes give by default
constexpr int64_t kLittleMemory = 256 * kMiB;  // a handful of communicators with long messages

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [&](std::string_view b) { return text.starts_with(b); });
}

std::string_view host_part(std::string_view address) { return address.substr(0, address.rfind('/')); }

// The network of "10.1.2.3/16"; nothing for what isn't IPv4, is a single address, or fits all.
std::string ipv4_network(std::string_view text) {
  const size_t slash = text.rfind('/');
  const auto parts = split(host_part(text), '.');
  if (slash == text.npos || parts.size() != 4) return {};
  uint32_t address = 0;
  for (const std::string_view p : parts) {
    const auto n = parse_c_integer(p);
    if (!n || *n < 0 || *n > 255) return {};
    address = address << 8 | static_cast<uint32_t>(*n);
  }
  const auto bits = parse_c_integer(text.substr(slash + 1));
  if (!bits || *bits < 1 || *bits > 30) return {};
  const uint32_t network = address & ~uint32_t{0} << (32 - *bits);
  return fmt::format("{}.{}.{}.{}/{}", network >> 24, network >> 16 & 255, network >> 8 & 255, network & 255, *bits);
}

class HostExaminer {
 public:
  explicit HostExaminer(const Facts& f) : f_(f), found_(f.findings) {}
  std::vector<Finding> examine() {
    shared_memory();
    same_networks();
    gids();
    kernel_settings();
    return std::move(found_);
  }

 private:
  void add(Severity s, std::string id, std::string where, std::string text, std::string remedy = {}) {
    found_.push_back({s, std::move(id), std::move(where), std::move(text), std::move(remedy)});
  }

  // Muster itself takes memfd, which has no limit of its own.
  void shared_memory() {
    const std::string others = "Muster doesn't use it (its memory is memfd's), but MPI, UCX inside a host, and PyTorch's data loaders do";
    const std::string remedy = "docker run --shm-size=1g or --ipc=host; Kubernetes: an emptyDir with medium Memory at /dev/shm";
    if (!f_.shm_problem.empty())
      add(Severity::note, "shm-unusable", "/dev/shm", fmt::format("/dev/shm can't be used: {}. {}", f_.shm_problem, others), remedy);
    else if (f_.shm_bytes != kNoLimit && f_.shm_bytes <= kDockerShm)
      add(Severity::note, "shm-small", "/dev/shm", fmt::format("/dev/shm holds {}. {}", bytes_text(f_.shm_bytes), others), remedy);
  }

  void same_networks() {
    std::map<std::string, std::vector<const InterfaceFacts*>> by_network;
    for (const InterfaceFacts& i : f_.interfaces)
      if (i.up && !i.loopback)
        for (const std::string& a : i.addresses)
          if (const std::string n = ipv4_network(a); !n.empty()) {
            auto& there = by_network[n];
            if (there.empty() || there.back() != &i) there.push_back(&i);
          }
    for (const auto& [network, there] : by_network) {
      if (there.size() < 2) continue;
      std::vector<std::string> names;
      bool strict = false;
      for (const InterfaceFacts* i : there) names.push_back(i->name), strict = strict || i->rp_filter == 1;
      add(strict ? Severity::warning : Severity::note, "same-network", names[0],
          fmt::format("{} are all in {}: the kernel may send by one of them what is meant for another{}",
                      fmt::join(names, ", "), network,
                      strict ? ", and with rp_filter=1 it drops what comes in where answers wouldn't go out" : ""),
          "Give each a network of its own, or as root: sysctl net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.all.arp_ignore=1 "
          "net.ipv4.conf.all.arp_announce=2, and a routing rule for each source address");
    }
  }

  // RoCE goes by IP addresses: a port is of use between hosts if one of its GIDs is version 2 and routable.
  void gids() {
    for (const RdmaPortFacts& p : f_.rdma) {
      if (!p.up || !p.ethernet) continue;
      const bool usable = std::any_of(p.gids.begin(), p.gids.end(), [](const GidFacts& g) {
        return g.type.find("v2") != g.type.npos && !g.address.starts_with("fe80:");
      });
      if (usable) continue;
      std::vector<std::string> there;
      for (const GidFacts& g : p.gids) there.push_back(fmt::format("{} {} ({})", g.index, g.address, g.type.empty() ? "?" : g.type));
      std::string interface;
      for (const GidFacts& g : p.gids)
        if (!g.interface.empty()) interface = g.interface;
      add(Severity::warning, "no-usable-gid", fmt::format("{} port {}", p.device, p.port),
          fmt::format("{} port {} is RoCE and has no GID of version 2 with an address that routers know; it has: {}", p.device,
                      p.port, there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", "))),
          fmt::format("Give its interface {} an IP address; in a container share the host's network, since GIDs belong to the "
                      "network namespace of their interface",
                      interface.empty() ? "(ibdev2netdev, rdma link)" : interface));
    }
  }

  void kernel_settings() {
    if (f_.local_ports != kNoLimit && f_.local_ports < kFewPorts)
      add(Severity::warning, "few-ports", "net.ipv4.ip_local_port_range",
          fmt::format("the kernel has {} TCP ports to give out; every process listens at one, and each connection that it "
                      "makes takes another",
                      f_.local_ports),
          "As root: sysctl net.ipv4.ip_local_port_range='32768 60999'");
  }

  const Facts& f_;
  std::vector<Finding> found_;
};

class RankExaminer {
 public:
  explicit RankExaminer(const Facts& f) : f_(f) {}
  std::vector<Finding> examine() {
    options();
    network();
    memory();
    limits();
    return std::move(found_);
  }

 private:
  void add(Severity s, std::string id, std::string where, std::string text, std::string remedy = {}) {
    found_.push_back({s, std::move(id), std::move(where), std::move(text), std::move(remedy)});
  }

  void options() {
    if (!f_.options_problem.empty()) add(Severity::error, "option-unreadable", "", f_.options_problem, "muster doctor --options lists them all");
    for (const std::string& w : f_.warnings) add(Severity::warning, "option", "", w);
  }

  const InterfaceFacts* chosen() const {
    for (const InterfaceFacts& i : f_.interfaces)
      if (i.name == f_.interface) return &i;
    return nullptr;
  }

  void network() {
    if (!f_.no_address.empty()) return add(Severity::error, "no-interface", "", f_.no_address);
    if (f_.interfaces.empty()) return;  // a captured system
    if (f_.address.empty())
      return add(Severity::note, "no-network", "",
                 "no network interface is up and has an address, not even loopback: only ranks of this host and this network "
                 "namespace can meet",
                 "ip link set lo up; for several hosts an interface with an address");
    const InterfaceFacts* const mine = chosen();
    if (!mine) return;
    const InterfaceFacts* faster = nullptr;
    for (const InterfaceFacts& i : f_.interfaces)
      if (i.up && !i.loopback && !i.addresses.empty() && !starts_with_any(i.name, {"docker", "virbr"}) && mine->gbit_per_s > 0 &&
          i.gbit_per_s > (faster ? faster->gbit_per_s : mine->gbit_per_s))
        faster = &i;
    if (faster)
      add(Severity::warning, "slow-interface", mine->name,
          fmt::format("ranks meet over {} with {:g} Gbit/s, and {} has {:g} Gbit/s", mine->name, mine->gbit_per_s, faster->name,
                      faster->gbit_per_s),
          fmt::format("NCCL_SOCKET_IFNAME={}, if it leads to the other hosts", faster->name));
  }

  void memory() {
    if (!f_.memfd_problem.empty())
      add(Severity::error, "no-shared-memory", "", fmt::format("this process can't make shared memory: {}", f_.memfd_problem),
          "A seccomp profile that forbids it, or a limit of memory: ranks of one host can't communicate without");
    const GroupLimit& g = f_.group_memory;
    if (g.limit != kNoLimit && g.room() < kLittleMemory)
      add(Severity::warning, "memory-short", "",
          fmt::format("the control group may have {} of memory and has {} left; what ranks share counts, too: about 1 MiB for "
                      "each pair that exchanges long messages, and the buffers of mem_alloc",
                      bytes_text(g.limit), bytes_text(g.room())),
          "docker run --memory, Kubernetes resources.limits.memory, Slurm --mem, systemd MemoryMax");
  }

  void limits() {
    const GroupLimit& p = f_.group_processes;
    if (p.limit != kNoLimit && p.room() < kRoomForProcesses)
      add(Severity::warning, "processes-short", "",
          fmt::format("the control group may have {} processes and threads and has {} left", p.limit, p.room()),
          "docker run --pids-limit=-1, Kubernetes podPidsLimit, systemd TasksMax=infinity");
    if (f_.open_files != kNoLimit && f_.open_files < kFewFiles) {
      const bool may = f_.open_files_hard == kNoLimit || f_.open_files_hard > f_.open_files;
      add(Severity::warning, "few-files", "",
          fmt::format("this process may have {} files open (at most {}); every peer on another host takes one or more",
                      f_.open_files, f_.open_files_hard == kNoLimit ? "unlimited" : std::to_string(f_.open_files_hard)),
          fmt::format("{}in /etc/security/limits.conf: * - nofile 65536; docker run --ulimit nofile=65536; systemd: "
                      "LimitNOFILE=65536",
                      may ? "ulimit -n " + (f_.open_files_hard == kNoLimit ? "65536" : std::to_string(f_.open_files_hard)) + "; " : ""));
    }
    if (f_.allowed_cpus == 1 && f_.host_cpus > 1 && f_.cpu_quota == 0)
      add(Severity::note, "one-core", "",
          fmt::format("this process may use 1 of {} cores: its helper thread and streams share it with the rank", f_.host_cpus),
          "mpirun --bind-to none or --map-by slot:PE=2, srun --cpus-per-task=2");
  }

  const Facts& f_;
  std::vector<Finding> found_;
};

}  // namespace

std::string bytes_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= kGiB) return fmt::format("{:.4g} GiB", value / static_cast<double>(kGiB));
  if (bytes >= kMiB) return fmt::format("{:.4g} MiB", value / static_cast<double>(kMiB));
  return fmt::format("{:.4g} KiB", value / 1024);
}

std::vector<Finding> examine_host(const Facts& f) { return HostExaminer(f).examine(); }
std::vector<Finding> examine_rank(const Facts& f) { return RankExaminer(f).examine(); }

}  // namespace muster::doctor
