// The programs of a candidate that `muster plan` shows, and what they take when they are simulated.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "plan/prediction.h"
#include "plan/simulator.h"
#include "topology/cluster.h"

namespace muster::tool {

inline constexpr int kMostExact = 1024;  // ranks; of more, small clusters of the same hosts are simulated
// Ranks that have chunks of their exact lengths; of more the last chunk is as long as the others, so that
// alike ranks can be run once.
inline constexpr int kMostUneven = 256;

// How the candidate's programs are made: with rings found on the topology where it goes round rings.
class PlanRun {
 public:
  PlanRun(const topology::Cluster& cluster, std::span<const RankPlace> places, const Prediction& prediction,
          const Candidate& candidate, int cross_nic = RingSearch().cross_nic);

  // All channels of one rank's program.
  Program program(int rank) const;
  // `trace`: keep each step's record. Messages of the candidate's size; at most `most_tiles` of a loop, then
  // extrapolated (0: all). Of more than kMostExact ranks by scaled_simulation.h, without a trace.
  Simulation simulate(const Constants& constants, int per_thread, bool trace, uint64_t most_tiles) const;

 private:
  struct Job {
    topology::Cluster cluster;
    std::vector<RankPlace> places;
    Placement placement;
  };
  Job job_on(topology::Cluster cluster, std::vector<RankPlace> places) const;
  // The first so many hosts of a cluster whose hosts are alike, with as many ranks on each.
  Job job_on_hosts(int hosts) const;
  Program program_of(const Job& job, int rank, int channels) const;
  int distinct_channels() const;

  const Prediction& prediction_;
  const Candidate& candidate_;
  int cross_nic_;
  Job whole_;
  int distinct_ = 1;  // channels c and c + distinct_ do the same with another part of the data
};

}  // namespace muster::tool
