// Looking at the machine that this process runs on.
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/falloc.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/fd.h"
#include "base/host.h"
#include "base/log_options.h"
#include "base/options.h"
#include "base/shared_library.h"
#include "base/text.h"
#include "bootstrap/host.h"
#include "bootstrap/interfaces.h"
#include "facts.h"
#include "muster/muster.h"
#include "topology/allowed_cpus.h"
#include "topology/cpu_set.h"
#include "topology/detect.h"
#include "topology/examine.h"
#include "topology/nvml.h"
#include "transports/make_network.h"

namespace muster::doctor {

using topology::SystemFiles;

namespace {

int64_t limit_of(rlim_t v) { return v == RLIM_INFINITY ? kNoLimit : static_cast<int64_t>(v); }

void look_at_limits(Facts& f) {
  rlimit l{};
  if (getrlimit(RLIMIT_NOFILE, &l) == 0) f.open_files = limit_of(l.rlim_cur), f.open_files_hard = limit_of(l.rlim_max);
  if (getrlimit(RLIMIT_NPROC, &l) == 0) f.processes = limit_of(l.rlim_cur);
  if (getrlimit(RLIMIT_MEMLOCK, &l) == 0) f.locked_bytes = limit_of(l.rlim_cur);
  f.cpus = allowed_cpus();
  f.allowed_cpus = static_cast<int64_t>(f.cpus.size());
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  if (cpus > 0) f.host_cpus = cpus;
}

void look_at_shared_memory(Facts& f) {
  struct statvfs s {};
  if (statvfs("/dev/shm", &s) != 0)
    f.shm_problem = describe_errno(errno);
  else if (s.f_flag & ST_RDONLY)
    f.shm_problem = "it is mounted read-only";
  else
    f.shm_bytes = static_cast<int64_t>(s.f_blocks * s.f_frsize);

  const Fd memory(memfd_create("muster-doctor", MFD_CLOEXEC));
  if (!memory)
    f.memfd_problem = "memfd_create: " + describe_errno(errno);
  else if (fallocate(memory.get(), 0, 0, sysconf(_SC_PAGESIZE)) != 0)
    f.memfd_problem = "fallocate: " + describe_errno(errno);
}

int prefix_of(const sockaddr* mask) {
  const Address a = Address::from_sockaddr(mask);
  int bits = 0;
  for (const uint8_t b : a.bytes) bits += std::popcount(b);
  return bits;
}

// Asked of the kernel, not of /sys: that may be another network namespace's.
int64_t mtu_of(const Fd& any_socket, const std::string& name) {
  ifreq r{};
  std::strncpy(r.ifr_name, name.c_str(), IFNAMSIZ - 1);
  return ioctl(any_socket.get(), SIOCGIFMTU, &r) == 0 ? r.ifr_mtu : kNoLimit;
}

std::vector<InterfaceFacts> look_at_interfaces(const SystemFiles& system) {
  std::vector<InterfaceFacts> r;
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) return r;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(head, freeifaddrs);
  const Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int64_t all = system.integer("/proc/sys/net/ipv4/conf/all/rp_filter").value_or(0);
  for (const ifaddrs* i = head; i; i = i->ifa_next) {
    const std::string name = i->ifa_name;
    auto at = std::find_if(r.begin(), r.end(), [&](const InterfaceFacts& k) { return k.name == name; });
    if (at == r.end()) {
      InterfaceFacts f;
      f.name = name;
      f.up = (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING);
      f.loopback = i->ifa_flags & IFF_LOOPBACK;
      f.mtu = mtu_of(any, name);
      const int64_t megabits = system.integer(fmt::format("/sys/class/net/{}/speed", name)).value_or(0);
      if (megabits > 0) f.gbit_per_s = static_cast<double>(megabits) / 1000;
      f.rp_filter = std::max(all, system.integer(fmt::format("/proc/sys/net/ipv4/conf/{}/rp_filter", name)).value_or(0));
      at = r.insert(at, f);
    }
    if (const Address a = Address::from_sockaddr(i->ifa_addr); a.kind != Address::Kind::none)
      at->addresses.push_back(fmt::format("{}/{}", a.host_text(), prefix_of(i->ifa_netmask)));
  }
  return r;
}

void choose_address(Facts& f, const Options& options) {
  try {
    const Source s = choose_sources(list_interfaces(), options.text("NCCL_SOCKET_IFNAME"), options.text("NCCL_SOCKET_FAMILY"))[0];
    if (s.address.kind == Address::Kind::local) return;
    f.interface = s.interface;
    f.address = s.address.host_text();
  } catch (const Error& e) {
    f.no_address = e.what();
  }
}

// "1.14.44.0" of "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0", to which the name that was asked for is a link.
std::string version_of_file(const SharedLibrary& library, const char* function) {
  Dl_info info{};
  const auto f = library.function<void()>(function);
  if (!f || dladdr(reinterpret_cast<const void*>(f), &info) == 0 || !info.dli_fname) return "?";
  std::error_code error;
  const std::string path = std::filesystem::canonical(info.dli_fname, error).string();
  const size_t so = path.rfind(".so.");
  return error || so == path.npos ? "?" : path.substr(so + 4);
}

void look_at_libraries(Facts& f) {
  if (const SharedLibrary ucx("libucp.so.0"); ucx) {
    const auto version = ucx.function<const char*()>("ucp_get_version_string");
    f.ucx = version ? printable(version(), 64) : "?";
  }
  if (const SharedLibrary verbs("libibverbs.so.1"); verbs) f.ibverbs = version_of_file(verbs, "ibv_get_device_list");
  if (const topology::NvmlAnswer nvml = topology::ask_nvml("libnvidia-ml.so.1"); nvml.found)
    f.nvidia = nvml.driver.empty() ? "?" : printable(nvml.driver, 64);
}

void look_at_networks(Facts& f, const Options& options) {
  f.network_wish = options.text("NCCL_NET");
  try {
    for (NetworkOffer& o : network_offers(options)) f.networks.push_back({std::move(o.name), std::move(o.problem)});
  } catch (const Error& e) {
    f.network_problem = e.what();
  }
}

void look_at_options(Facts& f, const Options& options) {
  f.agreement = options.agreement();
  f.options_problem = options.problem();
  f.port_range = options.text("MUSTER_PORT_RANGE");
  std::vector<OptionNote> notes = options.notes();
  try {
    if (f.options_problem.empty()) log_settings(options, notes);
  } catch (const Error& e) {
    f.options_problem = e.what();
  }
  for (const OptionNote& n : notes)
    if (n.warning) f.warnings.push_back(printable(n.text));
}

void look_at_files(Facts& f, const SystemFiles& system) {
  f.kernel = printable(system.text("/proc/sys/kernel/osrelease").value_or(""), 64);
  f.group_memory = group_memory_limit(system);
  f.group_processes = group_process_limit(system);
  f.listen_queue = system.integer("/proc/sys/net/core/somaxconn").value_or(kNoLimit);
  const std::string memory = system.text("/proc/meminfo").value_or("");
  for (const std::string_view line : split(memory, '\n'))
    if (line.starts_with("MemTotal:"))
      if (const auto kib = parse_c_integer(line.substr(9, line.find("kB") - 9))) f.memory_bytes = *kib * 1024;
  const std::string ports = system.text("/proc/sys/net/ipv4/ip_local_port_range").value_or("");
  if (const size_t gap = ports.find_first_of(" \t"); gap != ports.npos) {
    const auto low = parse_c_integer(std::string_view(ports).substr(0, gap)), high = parse_c_integer(std::string_view(ports).substr(gap));
    if (low && high && *low <= *high) f.local_ports = *high - *low + 1;
  }
  f.rdma = rdma_ports(system);
}

}  // namespace

Facts look(const LookOptions& o) {
  const SystemFiles system(o.root);
  Facts f;
  f.rank = o.rank;
  f.local_rank = o.local_rank;
  f.whole_host = o.whole_host;
  f.muster = version();
  look_at_files(f, system);
  f.cpu_quota = cpu_quota(o.root);
  const Options options = Options::inspect();
  look_at_options(f, options);
  if (o.root.empty()) {
    const Host host = this_host();
    f.host = host.name;
    f.pid = host.pid;
    f.place = host.place;
    f.identity = host_identity(options.text("NCCL_HOSTID"));
    look_at_limits(f);
    look_at_shared_memory(f);
    f.interfaces = look_at_interfaces(system);
    choose_address(f, options);
    look_at_networks(f, options);
    if (o.whole_host) look_at_libraries(f);
  } else {
    f.host = printable(system.text("/proc/sys/kernel/hostname").value_or("?"), 256);
  }
  if (o.whole_host) f.findings = topology::all_findings(topology::detect({.root = o.root}));
  return f;
}

}  // namespace muster::doctor
