#include "comm/gpu_links.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "topology/pci.h"
#include "topology/rates.h"

namespace muster {
namespace {

// Its number among the machine's GPUs; kNone: the machine doesn't know it.
int gpu_number(const topology::Machine& m, const std::string& bus) {
  const auto address = topology::PciAddress::parse(bus);
  const int node = address ? m.find(*address) : topology::kNone;
  const std::vector<int> gpus = m.all(topology::Kind::gpu);
  const auto at = std::find(gpus.begin(), gpus.end(), node);
  return at == gpus.end() ? topology::kNone : static_cast<int>(at - gpus.begin());
}

// Without repetitions.
std::vector<RankPlace> each_once(std::span<const RankPlace> places) {
  std::set<std::pair<int, int>> known;
  std::vector<RankPlace> once;
  for (const RankPlace& p : places)
    if (known.emplace(p.host, p.gpu).second) once.push_back(p);
  return once;
}

}  // namespace

std::vector<RankPlace> gpu_places(const topology::Cluster& cluster, std::span<const int> host_of,
                                  std::span<const std::string> buses) {
  std::vector<RankPlace> places;
  for (size_t r = 0; r < buses.size(); ++r) {
    if (host_of[r] >= cluster.host_count()) return {};
    const int gpu = gpu_number(cluster.machine_of(host_of[r]), buses[r]);
    if (gpu == topology::kNone) return {};
    places.push_back({host_of[r], gpu});
  }
  return places;
}

Links far_links(int ranks) {
  Links l;
  l.spread = {ranks, 1, ranks};
  l.near = Near::cpu;
  l.rings = l.exchange = topology::cpu_interconnect_rate(topology::CpuArch::unknown, {}, 0, 0).gb_per_s;
  return l;
}

Links links_between(const topology::Cluster& cluster, std::span<const int> host_of,
                    std::span<const std::string> buses) {
  const int ranks = static_cast<int>(buses.size());
  const bool one = std::set(buses.begin(), buses.end()).size() == 1;
  Links l;
  if (one) {
    l.rings = l.exchange = std::numeric_limits<double>::infinity();
  } else {
    const std::vector<RankPlace> places = each_once(gpu_places(cluster, host_of, buses));
    if (places.empty()) return far_links(ranks);
    l = links_of(cluster, places);
    if (!(l.rings > 0) || !(l.exchange > 0)) return far_links(ranks);
  }
  l.spread = {ranks, 1, ranks};
  return l;
}

}  // namespace muster
