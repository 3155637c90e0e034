// NCCL's tuner plugins as they are compiled: what versions 2 to 5 of their interface look like in memory. A
// plugin shows one object per version that it has, called ncclTunerPlugin_v2 and so on. Facts from NCCL's
// headers (src/include/plugin).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/plugin_library.h"

namespace muster::tuner_abi {

using Result = int;  // ncclResult_t; 0: success

enum Function : int {
  kBroadcast = 0,
  kReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kAllReduce = 4
};  // ncclFunc_t

// Rows and columns of the cost table. Versions 2 to 4 were made for fewer rows too; they are told how many
// there are.
enum Algorithm : int { kTree = 0, kRing = 1, kAlgorithms = 7 };
enum Protocol : int { kLl = 0, kLl128 = 1, kSimple = 2, kProtocols = 3 };
// Microseconds; entries of what can't be had.
using CostTable = float[kAlgorithms][kProtocols];
constexpr float kIgnore = -1.0f;

struct NvlDomains {
  int domains;
  int least_ranks, most_ranks;  // of one domain
};
// Terms of NCCL's cost model that a plugin may change when it begins.
struct Constants {
  static constexpr int kLinks = 3, kGpuGenerations = 4, kScales = 3;
  double base_latencies[kAlgorithms][kProtocols];
  double hop_latencies[kLinks][kAlgorithms][kProtocols];
  double ll_most[kGpuGenerations][kScales];
  double ring_ll128_most[kGpuGenerations][kScales];
  double tree_ll128_most[kGpuGenerations][kScales];
  double tree_most[kGpuGenerations][kScales];
  double nvls_tree_most[kGpuGenerations][kScales];
};

// `table`: a CostTable, whatever its type says.
struct V2 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, PluginLog log, void** context);
  Result (*choose)(void* context, Function function, size_t bytes, int collnet, int nvls, int operations,
                   int* algorithm, int* protocol, int* channels);
  Result (*destroy)(void* context);
};
struct V3 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, PluginLog log, void** context);
  Result (*choose)(void* context, Function function, size_t bytes, int operations, float** table,
                   int algorithms, int protocols, int* channels);
  Result (*destroy)(void* context);
};
struct V4 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, PluginLog log, void** context);
  Result (*choose)(void* context, Function function, size_t bytes, int operations, float** table,
                   int algorithms, int protocols, int registered, int* channels);
  Result (*destroy)(void* context);
};
struct V5 {
  const char* name;
  Result (*init)(void** context, uint64_t communicator, size_t ranks, size_t nodes, PluginLog log,
                 NvlDomains* domains, Constants* constants);
  Result (*choose)(void* context, Function function, size_t bytes, int operations, float** table,
                   int algorithms, int protocols, int registered, int* channels);
  Result (*destroy)(void* context);
};

static_assert(sizeof(V2) == 4 * sizeof(void*) && sizeof(V3) == sizeof(V2) && sizeof(V4) == sizeof(V2) &&
              sizeof(V5) == sizeof(V2));
static_assert(offsetof(V2, choose) == 2 * sizeof(void*) && offsetof(V5, destroy) == 3 * sizeof(void*));
static_assert(sizeof(CostTable) == 84 && sizeof(NvlDomains) == 12);
static_assert(offsetof(Constants, hop_latencies) == 168 && offsetof(Constants, ll_most) == 672 &&
              sizeof(Constants) == 1152);

}  // namespace muster::tuner_abi
