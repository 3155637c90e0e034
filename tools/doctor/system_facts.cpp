// What files of the system say.
#include <arpa/inet.h>
#include <fmt/format.h>

#include "base/text.h"
#include "facts.h"
#include "topology/detect_network.h"

namespace muster::doctor {

using topology::SystemFiles;

namespace {

// "max", and what version 1 writes for it, are no limit.
int64_t group_number(const SystemFiles& system, const std::string& path) {
  const auto n = system.integer(path);
  return n && *n >= 0 && *n < int64_t{1} << 60 ? *n : kNoLimit;
}

struct Controller {
  const char* name;                    // as /proc/self/cgroup lists it
  const char *max1, *used1;            // files of version 1
  const char *max2, *used2;            // of version 2
  const char *reclaimable1, *reclaimable2;  // lines of memory.stat: used, and given back when needed
};

int64_t reclaimable(const SystemFiles& system, const std::string& folder, const char* line_name) {
  if (!line_name) return 0;
  const std::string stat = system.text(folder + "/memory.stat").value_or("");
  for (const std::string_view line : split(stat, '\n'))
    if (line.starts_with(line_name) && line.size() > std::string_view(line_name).size())
      return parse_c_integer(line.substr(std::string_view(line_name).size())).value_or(0);
  return 0;
}

GroupLimit group_limit(const SystemFiles& system, const Controller& c) {
  GroupLimit least;
  const std::string groups = system.text("/proc/self/cgroup").value_or("");
  for (const std::string_view line : split(groups, '\n')) {  // "NUMBER:CONTROLLERS:PATH"
    const size_t a = line.find(':'), b = a == line.npos ? a : line.find(':', a + 1);
    if (b == line.npos) continue;
    const std::string controllers(line.substr(a + 1, b - a - 1));
    std::string path(line.substr(b + 1));
    const bool v2 = controllers.empty();
    if (!v2 && fmt::format(",{},", controllers).find(fmt::format(",{},", c.name)) == std::string::npos) continue;
    if (!path.starts_with('/')) continue;
    for (;; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      const std::string folder = v2 ? "/sys/fs/cgroup" + path : fmt::format("/sys/fs/cgroup/{}{}", c.name, path);
      GroupLimit here;
      here.limit = group_number(system, fmt::format("{}/{}", folder, v2 ? c.max2 : c.max1));
      if (here.limit != kNoLimit) {
        here.used = std::max<int64_t>(0, group_number(system, fmt::format("{}/{}", folder, v2 ? c.used2 : c.used1)));
        here.used = std::max<int64_t>(0, here.used - reclaimable(system, folder, v2 ? c.reclaimable2 : c.reclaimable1));
        if (least.limit == kNoLimit || here.room() < least.room()) least = here;
      }
      if (path.empty()) break;
    }
  }
  return least;
}

// "0000:0000:0000:0000:0000:ffff:0a00:0001" in short; empty for one of zeros.
std::string gid_text(const std::string& text) {
  in6_addr a{};
  char out[INET6_ADDRSTRLEN];
  if (inet_pton(AF_INET6, text.c_str(), &a) != 1 || IN6_IS_ADDR_UNSPECIFIED(&a)) return {};
  // An InfiniBand port's has its prefix alone until a subnet manager has been there.
  return inet_ntop(AF_INET6, &a, out, sizeof out) ? out : std::string{};
}

}  // namespace

GroupLimit group_memory_limit(const SystemFiles& system) {
  return group_limit(system, {"memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max", "memory.current",
                              "total_inactive_file ", "inactive_file "});
}

GroupLimit group_process_limit(const SystemFiles& system) {
  return group_limit(system, {"pids", "pids.max", "pids.current", "pids.max", "pids.current", nullptr, nullptr});
}

std::vector<RdmaPortFacts> rdma_ports(const SystemFiles& system) {
  constexpr size_t kMostGids = 64;
  std::vector<RdmaPortFacts> ports;
  for (const topology::RdmaDevice& d : topology::read_network_devices(system).rdma)
    for (const topology::RdmaPort& p : d.ports) {
      RdmaPortFacts f{d.name, p.number, p.up == topology::Answer3::yes, p.link_layer == "Ethernet", p.gbit_per_s, {}};
      const std::string folder = fmt::format("/sys/class/infiniband/{}/ports/{}", d.name, p.number);
      for (const std::string& number : system.list(folder + "/gids")) {
        const auto index = parse_c_integer(number);
        const std::string address = gid_text(system.text(fmt::format("{}/gids/{}", folder, number)).value_or(""));
        if (!index || address.empty() || f.gids.size() == kMostGids) continue;
        f.gids.push_back({static_cast<int>(*index), address,
                          printable(system.text(fmt::format("{}/gid_attrs/types/{}", folder, number)).value_or(""), 32),
                          printable(system.text(fmt::format("{}/gid_attrs/ndevs/{}", folder, number)).value_or(""), 32)});
      }
      std::sort(f.gids.begin(), f.gids.end(), [](const GidFacts& a, const GidFacts& b) { return a.index < b.index; });
      ports.push_back(std::move(f));
    }
  return ports;
}

}  // namespace muster::doctor
