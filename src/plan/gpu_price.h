// What a collective costs on GPUs: t = launch + latency + transfer + ramp, in microseconds.
//
//   launch    for each GPU that one thread launches for
//   latency   base of the protocol + rounds inside hosts * a message's latency there + rounds among hosts *
//   the same there transfer  bytes inside hosts / what links there reach; bytes among hosts / what ports
//   reach: the slower of both where the
//             messages are one flow, else one after the other
//   ramp      c * sqrt(transfer): channels don't end together; what is missing at the sizes between latency
//   and bandwidth
//
// The form of latency and transfer is that of NCCL's model (graph/tuning.cc), the usual alpha-beta model with
// constants by protocol. Launch and ramp are ours, found in measurements (docs/validation.md). Numbers:
// constants.tsv.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plan/constants.h"
#include "plan/links.h"
#include "plan/protocol.h"
#include "plan/simulator.h"
#include "plan/work.h"

namespace muster {

enum class Bound : uint8_t { launch, latency, near_links, ports, channels, memory };

struct Price {
  double launch_us = 0, latency_us = 0, transfer_us = 0, ramp_us = 0;
  double near_gbytes_per_s = 0, far_gbytes_per_s = 0;  // what is reached; far: of a host
  Bound bound = Bound::latency;                        // the largest part
  double us() const { return launch_us + latency_us + transfer_us + ramp_us; }
};

// Whose constants serve GPUs of this compute capability: "sm80"; those of the newest generation known that
// isn't newer, and of the oldest known where that is unknown.
std::string_view generation(int sm);

// Why a protocol doesn't serve there; empty: it does.
std::string obstacle(Protocol p, const Links& links);

// `per_thread`: GPUs that one thread of the program launches for.
Price gpu_price(const Work& work, const Links& links, Protocol protocol, const Constants& constants,
                int per_thread = 1);

// The same numbers for the simulator.
SimCosts sim_costs(const Links& links, Protocol protocol, const Constants& constants, int per_thread = 1);

// Of a single rank, whose result is its own input: a copy in the GPU's memory.
Price copy_price(const Links& links, double data, const Constants& constants, int per_thread = 1);

// An all-reduce whose sums are made in the NVSwitches (NVLS), with trees among hosts. Muster has no such
// algorithm; this is what it would take. Possible from compute capability 9.0, on hosts whose GPUs NVSwitches
// join.
bool can_reduce_in_switch(const Links& links);
Price in_switch_price(const Links& links, double data, const Constants& constants, int per_thread = 1);

}  // namespace muster
