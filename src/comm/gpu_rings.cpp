#include "comm/gpu_rings.h"

#include <fmt/ranges.h>

#include <utility>

#include "base/log.h"

namespace muster {

GpuRings::GpuRings(std::string name, std::shared_ptr<const topology::Cluster> cluster, std::vector<RankPlace> places)
    : name_(std::move(name)), cluster_(std::move(cluster)), places_(std::move(places)) {}

GpuRings::Found GpuRings::find(int channels) const {
  const Rings rings = rings_of_channels(*cluster_, places_, channels);
  std::vector<int> hosts;
  for (const RankPlace& p : places_) hosts.push_back(p.host);
  Found f{placement_of(hosts), {}};
  f.placement.rings = orders_of(rings);
  const size_t n = f.placement.rings.size();
  f.text = rings.fallback ? "no ring was found on the topology: ranks host by host"
                          : fmt::format("{} ring{} found on the topology, {:.4g} GB/s together", n, n == 1 ? "" : "s",
                                        rings.gbytes_per_s());
  log_info(Topic::graph, "communicator {}, {} channels: {}", name_, channels, f.text);
  for (size_t i = 0; i < n; ++i)
    log_info(Topic::graph, "communicator {}: ring {}: {}", name_, i, fmt::join(f.placement.rings[i], " "));
  return f;
}

const GpuRings::Found* GpuRings::of(const Choice& choice) {
  if (places_.size() < 2 || choice.custom || !choice.algorithm->along_rings) return nullptr;
  const auto known = found_.find(choice.channels);
  return known != found_.end() ? &known->second
                               : &found_.emplace(choice.channels, find(choice.channels)).first->second;
}

}  // namespace muster
