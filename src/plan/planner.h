// Chooses how a collective runs: algorithm, channels, tile. A pure function of the call and of inputs that all ranks
// exchanged at init, so every rank chooses alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithms.h"
#include "muster/types.h"
#include "plan/custom_programs.h"
#include "plan/host_network.h"

namespace muster {

class Constants;

// What identifies a call's plan. Equal shapes share one compiled plan.
struct CallShape {
  Coll coll = Coll::all_reduce;
  DataType type = DataType::float32;
  RedOp op = RedOp::sum;
  int32_t root = 0;
  uint64_t count = 0;  // elements, as the caller gave it; of a V-variant what stands for its counts (signature_of), 1 if pairwise
  uint16_t allowed = 0;  // algorithms that this call may use (selection.h); 0: all
  uint8_t channels = 0;  // that this call must use; 0: as the planner chooses
  friend bool operator==(const CallShape&, const CallShape&) = default;
};

struct PlanInputs {
  int nranks = 1;
  int cores = 1;              // cores that the ranks of this host may use together
  int lanes = 1;              // connections between two ranks, per direction
  size_t slot_bytes = 0;
  size_t message_bytes = 0;   // the same of point-to-point messages
  size_t cache_bytes = 0;     // last-level cache
  bool windows = false;       // every rank can map every other rank's mem_alloc memory
  bool host_windows = false;  // every rank can map the mem_alloc memory of all ranks of its host
  bool same_process = false;  // all ranks are threads of one process: all memory is a window
  bool reproducible = false;
  std::shared_ptr<const Placement> placement;  // null: all ranks are on one host
  HostNetwork network;        // between hosts
  bool trees = true;          // false: "tree" runs only where it is forced
  std::string algorithm;      // forced; empty = free choice
  std::string forced_by;      // the option that was set, for people: "NCCL_ALGO"
  int channels = 0;           // forced; 0 = free choice
  std::shared_ptr<const Constants> tuned;  // measured here: what is cheapest by them is chosen. Null: by
                                          // thresholds on one host, by the built-in constants on several
  // What the user brought. Of those that are for a call, the first runs it, unless another algorithm is forced.
  std::vector<std::shared_ptr<const CustomProgram>> custom;
  int most_channels = 0;      // bound of a free choice; 0 = none
};

struct Choice {
  const Algorithm* algorithm = nullptr;
  std::shared_ptr<const CustomProgram> custom;  // whose that is; null: a built-in one
  int channels = 1;
  size_t tile_bytes = 0;       // of one chunk, per channel
  bool streamed = false;       // outputs are written with non-temporal stores
  // Slot messages of this many bytes or more may be, too, so that their lines come from memory instead of out of the
  // other core's cache.
  size_t stream_slots = SIZE_MAX;
  std::string reason;
};

// A window step is cut into tiles only so that an abort is noticed.
inline constexpr size_t kWindowTile = 4 << 20;
inline constexpr int kMostChannels = 16;

// How point-to-point messages run.
Choice choose_messages(const PlanInputs& inputs);
// Of a call whose algorithm can have any number of them.
int channels_of(const CallShape& call, const PlanInputs& inputs);
// Whether the call could run so through slots: nothing that options, the call or the algorithm itself demand
// is against it.
bool can_run(const Algorithm& algorithm, const CallShape& call, const PlanInputs& inputs);
// How the call runs through slots. Throws invalid_usage when a forced algorithm can't do it, invalid_argument when none of
// those that it allows can; the options go before what it allows.
Choice choose(const CallShape& call, const PlanInputs& inputs);
// How it runs when all buffers turn out to be windows; algorithm is null where slots are as good.
Choice choose_windows(const CallShape& call, const PlanInputs& inputs);

// The chosen program of one rank.
Program program_of(const Choice& choice, const Shape& shape);

// Both for a V-variant.
struct UnevenChoice {
  CallShape alike;  // what is planned instead: the collective of equal counts
  CallShape average;  // what the call takes is what this one takes: the parts are as long as they are on average
  Choice slots, windows;
};
// `elements`: of all parts together.
UnevenChoice choose_uneven(const CallShape& call, uint64_t elements, const PlanInputs& inputs);

}  // namespace muster
