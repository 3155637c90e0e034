#include "comm/cuda/gpu_facts.h"

#include <algorithm>
#include <climits>
#include <map>
#include <utility>

#include "base/error.h"
#include "comm/gpu_links.h"
#include "device/cuda/runtime.h"
#include "exec/cuda/kernel_plan.h"
#include "exec/cuda/residency.h"
#include "plan/gpu_price.h"

namespace muster::cuda {

GpuFacts facts_of(int device) {
  GpuFacts f{};
  const std::string bus = bus_id(device);
  bus.copy(f.bus, sizeof f.bus - 1);
  f.sm = compute_capability(device);
  f.blocks = load_kernels(device);
  return f;
}

int blocks_of_rank(std::span<const GpuFacts> gpus, const std::string& communicator) {
  struct Shared {
    int ranks = 0, blocks = INT_MAX;
  };
  std::map<std::pair<int32_t, std::string>, Shared> all;  // by host and bus
  for (const GpuFacts& f : gpus) {
    Shared& gpu = all[{f.host, f.bus}];
    ++gpu.ranks;
    gpu.blocks = std::min(gpu.blocks, f.blocks);
  }
  int least = INT_MAX;
  for (const auto& [place, gpu] : all) {
    if (gpu.blocks < gpu.ranks)
      fail(Result::invalid_usage,
           "communicator {}: {} ranks share the GPU at {}, which holds {} blocks of {} threads at once. "
           "Their kernels wait "
           "for each other, so each rank needs one: spread ranks over more GPUs",
           communicator, gpu.ranks, place.second, gpu.blocks, kMostKernelThreads);
    least = std::min(least, gpu.blocks / gpu.ranks);
  }
  return least;
}

Links links_of_gpus(Links l, std::span<const GpuFacts> gpus, bool detours) {
  const double by_host = far_links(static_cast<int>(gpus.size())).rings;
  l.switched = l.switched && !detours;
  if (detours) l.near = Near::cpu;
  l.sm = 0;
  for (const GpuFacts& f : gpus) l.sm = l.sm == 0 ? f.sm : std::min(l.sm, static_cast<int>(f.sm));
  const double most = detours ? by_host : Constants::built_in()(fmt::format("gpu.copy.{}", generation(l.sm)));
  l.rings = std::min(l.rings, most);
  l.exchange = std::min(l.exchange, most);
  return l;
}

}  // namespace muster::cuda
