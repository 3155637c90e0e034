// One run of the simulator's event loop (simulator.h says what it models). Events of one time are taken
// together, then shares are worked out once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/event_queue.h"
#include "plan/fair_shares.h"
#include "plan/flat_programs.h"
#include "plan/simulator.h"

namespace muster {

// One run of the event loop over all tiles up to `tiles` per loop.
class SimulationRun {
 public:
  // Where a channel is.
  struct ChannelState {
    uint32_t loop = 0, at = 0, last = 0;  // at: in sequence; last: the end of its loop there
    uint32_t step = UINT32_MAX;           // its next one or the one that runs; UINT32_MAX: it is done
    uint32_t blocked = UINT32_MAX;        // the connection that its step waits for
    uint64_t tile = 0;
    uint64_t begun = 0, bytes = 0;
    uint32_t outstanding = 0;  // flows and timers of the step that runs
    bool busy = false;
    uint64_t finish = 0;
  };

  SimulationRun(const FlatPrograms& programs, const SimCall& call, const Network& network,
                const SimCosts& costs, const SimOptions& options, uint64_t tiles)
      : p_(programs), call_(call), network_(network), costs_(costs), options_(options), tiles_(tiles) {
    lay_out();
  }

  // False if the programs got stuck.
  bool run();
  // The first channel that isn't done: its number, or -1.
  int stuck() const;
  const ChannelState& state(int channel) const { return channels_[static_cast<size_t>(channel)]; }
  std::string waits_for(int channel) const;
  Simulation result() const;

 private:
  enum class What : uint32_t { launch, begin, timer, flow_end, arrival, credit };

  struct Occurrence {
    What what;
    uint32_t number;  // of a channel, group of flows or connection
  };
  struct ConnectionState {
    int32_t full = 0, free = 0;
    uint64_t latency = 0;
    uint32_t flow = UINT32_MAX;  // UINT32_MAX: nothing is in between
    uint32_t sender = 0, receiver = 0;
    bool by_proxy = false;
  };

  void lay_out();
  uint32_t add_flow(std::vector<uint32_t> route, uint32_t owner);
  void try_start(uint32_t channel);
  void find_step(uint32_t channel);
  void wake(uint32_t channel, uint32_t connection) {
    if (channels_[channel].blocked == connection) ready_.push_back(channel);
  }
  void begin(uint32_t channel);
  void end(uint32_t channel);
  void part_done(uint32_t channel) {
    if (--channels_[channel].outstanding == 0) end(channel);
  }
  void start_flow(uint32_t flow, double bytes, double most);
  void flow_ended(uint32_t flow);
  void flows_end(uint32_t group);
  void go_on(uint32_t group);
  void plan_end(uint32_t group);
  void share();
  void send_next(uint32_t connection);
  void launch();
  void take(const Occurrence& o);
  const FlatStep& step(const ChannelState& s) const { return p_.steps[s.step]; }
  uint64_t tiles_of(const FlatLoop& l) const { return std::min(l.tiles, tiles_); }

  const FlatPrograms& p_;
  const SimCall& call_;
  const Network& network_;
  const SimCosts& costs_;
  const SimOptions& options_;
  uint64_t tiles_;

  std::vector<ChannelState> channels_;
  std::vector<ConnectionState> connections_;
  // By connection, bytes of messages that a proxy has still to send; the first is on its way.
  std::vector<std::vector<uint64_t>> queues_;
  EventQueue<Occurrence> events_;
  std::vector<uint32_t> ready_;  // channels that may be able to start

  // Flows: of connections, of windows, and of channels' work.
  struct Flow {
    uint32_t owner = 0;  // the channel whose step it belongs to; of a proxy's flow its connection
    bool by_proxy = false;
    double carried = 0;  // bytes, in all
  };
  // Those of a group (fair_shares.h) have the same rate, so a common count of bytes tells when each ends.
  struct Ending {
    double served;  // the group's count then
    uint32_t flow;
    // Of a heap whose top is what ends first.
    friend bool operator<(const Ending& a, const Ending& b) {
      return a.served != b.served ? a.served > b.served : a.flow > b.flow;
    }
  };
  struct Group {
    double served = 0;  // bytes of each flow, at `since`
    double rate = 0;
    uint64_t since = 0, end = UINT64_MAX;  // end: of the first flow to end, as far as it is known
    bool touched = false;
    std::vector<Ending> endings;  // a heap
  };
  std::vector<Flow> flows_;
  std::vector<Group> groups_;
  std::vector<uint32_t> touched_;  // groups whose next end is to be planned
  std::vector<uint32_t> ended_;    // flows
  std::vector<std::vector<uint32_t>> routes_;
  std::vector<uint32_t> work_flow_;    // by channel; UINT32_MAX: none
  std::vector<uint32_t> window_flow_;  // by window path
  std::vector<double> capacities_;     // network's resources, then ranks' own
  std::optional<FairShares> shares_;   // made when all flows are known

  uint64_t steps_ = 0;
  std::vector<StepRecord> log_;
};

}  // namespace muster
