#include "parallel/gpu_spec.h"

#include <fmt/ranges.h>

#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace muster {
namespace {

// Of a published table that has both GPUs: hardware utilisation where communication is hidden (fully sharded
// data parallelism), layers are large, and all are recomputed.
constexpr double kA100Share = 0.711, kH100Share = 0.5676;
constexpr const char* kA100Source =
    "llm-foundry, scripts/train/benchmarking: MPT-70B, sequence 2048, 64 A100 80GB, bf16: 71.1 % of the peak";
constexpr const char* kH100Source =
    "llm-foundry, scripts/train/benchmarking: MPT-70B, sequence 2048, 64 H100 80GB, bf16: 56.76 % of the "
    "peak";

// Peaks are dense ones with float32 sums, of NVIDIA's data sheets (SXM where there is a choice); Blackwell's
// are those of HGX B200 and GB200 NVL72, whose memory is what MLPerf's descriptions of systems say of a GPU
// (180 and 186 GB).
//
// The longer names first: "GB200" has "B200" in it. Of GPUs that the table hasn't, the share of the nearer
// generation.
const std::vector<GpuSpec>& specs() {
  static const std::vector<GpuSpec> all = {
      {"V100", 125, 32, 900, kA100Share, kA100Source},
      {"A100", 312, 80, 2039, kA100Share, kA100Source},
      {"GH200", 989.4, 96, 4000, kH100Share, kH100Source},
      {"H100", 989.4, 80, 3350, kH100Share, kH100Source},
      {"H200", 989.4, 141, 4800, kH100Share, kH100Source},
      {"GB200", 2500, 186, 8000, kH100Share, kH100Source},
      {"B200", 2250, 180, 7700, kH100Share, kH100Source},
      {"L40S", 362, 48, 864, kH100Share, kH100Source},
      {"A6000", 154.8, 48, 768, kA100Share, kA100Source},
      {"RTX 4090", 165.2, 24, 1008, kH100Share, kH100Source},
  };
  return all;
}

}  // namespace

std::span<const GpuSpec> gpu_specs() { return specs(); }

const GpuSpec& gpu_spec(std::string_view model) {
  std::vector<std::string_view> names;
  const std::string wanted = lower(model);
  for (const GpuSpec& g : specs()) {
    if (wanted.find(lower(g.name)) != std::string::npos) return g;
    names.push_back(g.name);
  }
  fail(Result::invalid_argument,
       "of GPU '{}' peak and memory aren't known. Known are {}; or give all of its numbers",
       printable(model, 60), fmt::join(names, ", "));
}

}  // namespace muster
