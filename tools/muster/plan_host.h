// `muster plan` for ranks on host memory, this machine's or a cluster's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/planner.h"
#include "topology/cluster.h"

namespace muster::tool {

struct HostPlanRequest {
  CallShape call;               // but its count
  std::vector<uint64_t> sizes;  // bytes, as nccl-tests counts them
  // 0: on this machine as many as this process may use cores; of a cluster one per host. Hosts get as many as each
  // other, the first ones one more where there is a rest.
  int ranks = 0;
  std::string algorithm;        // only this one; empty: all
  bool json = false;
  const topology::Cluster* cluster = nullptr;  // null: this machine
};

// What is chosen, what it takes, and what the others would: for one size in detail, for several a table.
std::string host_plan(const HostPlanRequest& request);

}  // namespace muster::tool
