// What a collective would cost on the GPUs of a cluster, by each algorithm and protocol: what is best, and
// what the others would take. Needs no GPU, and no cluster but its description.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/bandwidth.h"
#include "plan/gpu_price.h"
#include "plan/planner.h"

namespace muster {

inline constexpr int kMostGpuChannels = 64;  // NCCL's MAXCHANNELS (2.19 and newer)

struct PredictOptions {
  int per_thread = 1;     // GPUs that one thread launches for
  std::string algorithm;  // only this one; empty: all
  std::string protocol;   // only these: "LL,simple"; "^LL128": all but this one; empty: all
  int least_channels = 1, most_channels = kMostGpuChannels;
  uint64_t simple_message_bytes = 0;  // of a message of protocol simple, at most; 0: as constants say
};

struct Candidate {
  std::string algorithm;
  const Algorithm* known = nullptr;  // nullptr: Muster has no such program
  Protocol protocol = Protocol::simple;
  int channels = 1;
  uint64_t chunk_bytes = 0;  // of one message, at most
  Price price;
  std::string obstacle;   // why it can't be chosen; empty: it can
  bool unwanted = false;  // something else was asked for
};

// What no algorithm exceeds, of messages of all ranks' programs.
struct Roof {
  double us = 0;
  std::string what;  // "8 ports of 45.5 GB/s together, each host sends 2(k-1)/k of the data"
};

struct Prediction {
  CallShape call;
  Links links;
  std::vector<Candidate> candidates;  // those that can be chosen by price, then the others by price
  Roof roof;
  double data_bytes = 0;  // as nccl-tests counts sizes

  const Candidate* best() const {
    return candidates.empty() || !candidates.front().obstacle.empty() ? nullptr : &candidates.front();
  }
  double algbw(double us) const { return us > 0 ? data_bytes / us / 1e3 : 0; }  // GB/s
  double busbw(double us) const;                                                // GB/s
};

// `call.count` as the C interface takes it. Of a single rank the one candidate is "copy": its result is its
// own input. Throws invalid_argument for names that there aren't, and where no protocol is left.
Prediction predict(const CallShape& call, const Links& links,
                   const Constants& constants = Constants::built_in(), const PredictOptions& options = {});

// Sizes at which the best choice changes, for sizes from `smallest` to `largest` bytes (as nccl-tests counts
// them), doubling.
struct SizeRow {
  uint64_t bytes = 0;
  Prediction prediction;
};
std::vector<SizeRow> predict_sizes(CallShape call, uint64_t smallest, uint64_t largest, const Links& links,
                                   const Constants& constants = Constants::built_in(),
                                   const PredictOptions& options = {});
// The count with which a call's data has this size, at least 1 element (of each rank).
uint64_t count_of(const CallShape& call, uint64_t bytes, int nranks);

}  // namespace muster
