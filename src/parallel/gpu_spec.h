// What training estimates need to know of a GPU.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace muster {

struct GpuSpec {
  std::string name;        // as in the models that topologies have: "H100"
  double peak_tflops = 0;  // 16-bit, dense, fp32 sums: the data sheet's
  double memory_gib = 0;   // the data sheet's "80 GB" are 80 GiB
  double memory_gb_per_s = 0;
  double share = 0;          // of the peak that layers reach while they compute
  std::string share_source;  // what was measured

  double memory_bytes() const { return memory_gib * 1024 * 1024 * 1024; }
};

std::span<const GpuSpec> gpu_specs();
// The one whose name is in this model ("NVIDIA H100 80GB HBM3"). Throws invalid_argument with those that are
// known.
const GpuSpec& gpu_spec(std::string_view model);

}  // namespace muster
