// The programs of a candidate that `muster plan` shows, and what they take when they are simulated.
#pragma once

#include <span>
#include <vector>

#include "plan/prediction.h"
#include "plan/simulator.h"
#include "topology/cluster.h"

namespace muster::tool {

// How the candidate's programs are made: with rings found on the topology where it goes round rings.
class PlanRun {
 public:
  PlanRun(const topology::Cluster& cluster, std::span<const RankPlace> places, const Prediction& prediction,
          const Candidate& candidate);

  // All channels of one rank's program.
  Program program(int rank) const;
  // `trace`: keep each step's record. Messages of the candidate's size; at most `most_tiles` of a loop, then
  // extrapolated (0: all).
  Simulation simulate(const Constants& constants, int per_thread, bool trace, uint64_t most_tiles) const;

 private:
  const topology::Cluster& cluster_;
  std::vector<RankPlace> places_;
  const Prediction& prediction_;
  const Candidate& candidate_;
  Placement placement_;
  int distinct_ = 1;  // channels c and c + distinct_ differ in their part of the data only
};

}  // namespace muster::tool
