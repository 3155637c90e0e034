// One run of the simulator's event loop (simulator.h says what it models). Events of one time are taken
// together, then shares are worked out once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/event_queue.h"
#include "plan/fair_shares.h"
#include "plan/flat_programs.h"
#include "plan/simulation_layout.h"
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

  SimulationRun(const FlatPrograms& programs, const SimulationLayout& layout, const SimCosts& costs,
                const SimOptions& options, uint64_t tiles);

  // False if the programs got stuck.
  bool run();
  // The first channel that isn't done: its number, or -1.
  int stuck() const;
  const ChannelState& state(int channel) const { return channels_[static_cast<size_t>(channel)]; }
  std::string waits_for(int channel) const;

  double finish_us(uint32_t channel) const { return microseconds(channels_[channel].finish); }
  double carried(uint32_t flow) const { return flows_[flow].carried; }  // bytes, in all
  uint64_t steps() const { return steps_; }                             // of all channels
  const std::vector<StepRecord>& log() const { return log_; }

 private:
  enum class What : uint32_t { launch, begin, timer, flow_end, arrival, credit };

  struct Occurrence {
    What what;
    uint32_t number;  // of a channel, group of flows or connection
  };
  struct ConnectionState : SimulationLayout::Connection {
    int32_t full = 0, free = 0;  // slots
  };

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
  const SimulationLayout& layout_;
  const SimCosts& costs_;
  const SimOptions& options_;
  uint64_t tiles_;

  std::vector<ChannelState> channels_;
  std::vector<ConnectionState> connections_;
  // By connection, bytes of messages that a proxy has still to send; the first is on its way.
  std::vector<std::vector<uint64_t>> queues_;
  EventQueue<Occurrence> events_;
  std::vector<uint32_t> ready_;  // channels that may be able to start

  struct Flow : SimulationLayout::Flow {
    double carried = 0;
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
  FairShares shares_;

  uint64_t steps_ = 0;
  std::vector<StepRecord> log_;
};

}  // namespace muster
