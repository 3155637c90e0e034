// The rings that a communicator's programs on GPUs go along: those that `muster plan` shows, found on the topology
// that all ranks agreed on (plan/rings.h), so that all ranks have the same.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/planner.h"
#include "plan/rings.h"

namespace muster {

class GpuRings {
 public:
  // `places`: of the ranks' GPUs; empty: the cluster doesn't know them, so there are no rings to be found. `name`: of the
  // communicator, for the log.
  GpuRings(std::string name, std::shared_ptr<const topology::Cluster> cluster, std::vector<RankPlace> places);

  struct Found {
    Placement placement;  // with as many rings as differ among the channels
    std::string text;     // "6 rings found on the topology, 133.2 GB/s together"
  };
  // For what was chosen; null where that goes along no rings. The first time that so many channels are asked for they
  // are searched, and logged.
  const Found* of(const Choice& choice);

 private:
  Found find(int channels) const;

  std::string name_;
  std::shared_ptr<const topology::Cluster> cluster_;
  std::vector<RankPlace> places_;
  std::map<int, Found> found_;  // by channels
};

}  // namespace muster
