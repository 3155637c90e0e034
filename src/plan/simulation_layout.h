// What the simulator's event loop moves data over: connections with their latencies, and flows with what they
// go over. Times are in ticks: whole picoseconds.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "plan/flat_programs.h"
#include "plan/simulator.h"

namespace muster {

constexpr double kTicksPerUs = 1e6;
inline uint64_t ticks(double us) { return static_cast<uint64_t>(std::llround(us * kTicksPerUs)); }
inline double microseconds(uint64_t t) { return static_cast<double>(t) / kTicksPerUs; }

struct SimulationLayout {
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Connection {
    uint64_t latency = 0;
    uint32_t flow = kNone;  // none: nothing is in between
    uint32_t sender = 0, receiver = 0;
    bool by_proxy = false;
  };
  // Of a connection, of a window, or of a channel's work.
  struct Flow {
    uint32_t owner = 0;  // the channel whose step it belongs to; of a proxy's flow its connection
    bool by_proxy = false;
  };

  SimulationLayout(const FlatPrograms& programs, const SimCall& call, const SimulatedNetwork& network,
                   const SimCosts& costs);

  std::vector<Connection> connections;  // by number
  std::vector<Flow> flows;
  std::vector<std::vector<uint32_t>> routes;  // by flow: resources
  std::vector<std::vector<uint32_t>> counts;  // fair_shares.h; empty: each flow is one
  std::vector<uint32_t> work_flow;            // by channel
  std::vector<uint32_t> window_flow;          // by window path
  std::vector<double> capacities;             // the network's resources, then ranks' own

 private:
  uint32_t add_flow(std::vector<uint32_t> route, Flow flow);
};

}  // namespace muster
