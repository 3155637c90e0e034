// How long a collective takes on machines that needn't be there: the programs of all ranks, run event by
// event.
//
// The model. Channels of a rank run independently of each other, the steps of one in order, its loops once
// per tile. A step begins when its source slots are full and its destination slots free; after
// SimCosts::step_us it makes its result, with
//   work = result bytes * (destinations - 1 + (1 source: 1; n sources: (n - 1) * combine_work))       [bytes
//   as if copied]
// at channel_gb_per_s at most, and the work of all channels of a rank shares rank_gb_per_s and
// SimulatedNetwork::work. Meanwhile its messages, and what it loads from and stores to windows, flow over
// their routes, none faster than the work allows. When all is done, it hands over: messages arrive, and slots
// are free again, one latency later (the route's + the link class's). Where LinkCosts::by_proxy is set, a
// message leaves only then, and the channel goes on meanwhile; messages of a connection leave one after the
// other. Flows that go at a time share what they go over max-min fairly (fair_shares.h).
//
// Times are whole picoseconds and nothing depends on addresses or threads: the same call gives the same
// numbers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "plan/simulated_network.h"
#include "program/program.h"

namespace muster {

// What a cost model knows. Microseconds; GB/s = 1e9 bytes per second.
struct LinkCosts {
  double latency_us = 0;  // of a message, beside its route's
  bool by_proxy = false;  // another thread or a card sends it while the channel goes on
};
struct SimCosts {
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  std::array<LinkCosts, 8> links;        // by topology::LinkClass
  double launch_us = 0;                  // before a rank's first step
  double step_us = 0;                    // before each step's data moves
  double channel_gb_per_s = kUnlimited;  // what a channel copies
  double rank_gb_per_s = kUnlimited;     // what all channels of a rank copy together
  double combine_work = 1;               // combining one source more, in copies of as many bytes
  int slots = 2;                         // messages that a connection holds
};

struct SimCall {
  uint64_t count = 0;  // elements, as CallShape::count; in send_recv of each message
  size_t element_bytes = 4;
  size_t tile_bytes = 0;  // of one chunk, in one message
  // Each channel of the programs stands for so many, alike, as replicate() makes them (parts are taken to be
  // as long as the longest).
  int channels = 1;
};

struct SimOptions {
  bool log = false;  // keep a record of each step; else ranks that do alike are run once (symmetry.h)
  // Loops of more tiles are run with so many, and with half of these, and the rest is taken to go on alike:
  // an extrapolation, exact where the pipeline has filled by then. 0: all tiles are run. Else 2 or more.
  uint64_t most_tiles = 0;
  // The last chunk, if shorter than the others but not empty, is taken to be as long:
  // else each rank has it at another step, and none does as another does. The others wait for longer ones
  // anyway, so time hardly changes (symmetry_test: below 0.3 %).
  bool even_chunks = false;
};

// A step of one tile, in microseconds.
struct StepRecord {
  double begin_us = 0, end_us = 0;
  int rank = 0, channel = 0, loop = 0, step = 0;
  uint64_t tile = 0;
  uint64_t bytes = 0;  // of its result
};

struct Simulation {
  double time_us = 0;             // until the last rank has finished
  double algbw = 0, busbw = 0;    // GB/s: bandwidth.h
  std::vector<double> finish_us;  // of each rank
  struct Use {
    Resource resource;
    double bytes = 0;
    double utilisation = 0;  // of what it could have carried in time_us: 0..1
  };
  std::vector<Use> uses;  // of what carried something, by number of the resource; then ranks' own
  int busiest = -1;       // of `uses`: what bounds the time where its utilisation is near 1; -1: none
  uint64_t steps = 0;     // of all ranks, as far as tiles were run
  bool extrapolated = false;
  std::vector<StepRecord> log;  // by end
};

using ProgramMaker = std::function<Program(int rank)>;

// programs[r] is rank r's. Throws invalid_argument for what doesn't fit together, and internal_error, naming
// rank, channel and step, for programs that wait for ever.
Simulation simulate(std::span<const Program> programs, const SimCall& call, const SimulatedNetwork& network,
                    const SimCosts& costs, const SimOptions& options = {});
// The same without ever holding the programs of all ranks. `maker` is asked for network.ranks() of them.
Simulation simulate(const ProgramMaker& maker, const SimCall& call, const SimulatedNetwork& network,
                    const SimCosts& costs, const SimOptions& options = {});

}  // namespace muster
