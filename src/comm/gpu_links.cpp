#include "comm/gpu_links.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"
#include "topology/cluster.h"
#include "topology/pci.h"
#include "topology/rates.h"

namespace muster {
namespace {

// Their places among the machine's GPUs, each once; none where it doesn't know one.
std::vector<RankPlace> places_of(const topology::Machine& m, const std::vector<std::string>& buses) {
  const std::vector<int> gpus = m.all(topology::Kind::gpu);
  std::set<int> used;
  for (const std::string& bus : buses) {
    const auto address = topology::PciAddress::parse(bus);
    const int node = address ? m.find(*address) : topology::kNone;
    const auto at = std::find(gpus.begin(), gpus.end(), node);
    if (at == gpus.end()) return {};
    used.insert(static_cast<int>(at - gpus.begin()));
  }
  std::vector<RankPlace> places;
  for (const int gpu : used) places.push_back({0, gpu});
  return places;
}

}  // namespace

Links far_links(int ranks) {
  Links l;
  l.spread = {ranks, 1, ranks};
  l.near = Near::cpu;
  l.rings = l.exchange = topology::cpu_interconnect_rate(topology::CpuArch::unknown, {}, 0, 0).gb_per_s;
  return l;
}

Links links_between(const topology::Machine& m, const std::vector<std::string>& buses) {
  const int ranks = static_cast<int>(buses.size());
  const bool one = std::set(buses.begin(), buses.end()).size() == 1;
  Links l;
  if (one) {
    l.rings = l.exchange = std::numeric_limits<double>::infinity();
  } else {
    const std::vector<RankPlace> places = places_of(m, buses);
    if (places.empty()) return far_links(ranks);
    l = links_of(topology::cluster_of(m), places);
    if (!(l.rings > 0) || !(l.exchange > 0)) return far_links(ranks);
  }
  l.spread = {ranks, 1, ranks};
  return l;
}

}  // namespace muster
