// `muster plan` for ranks on this machine's memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/planner.h"

namespace muster::tool {

struct HostPlanRequest {
  CallShape call;               // but its count
  std::vector<uint64_t> sizes;  // bytes, as nccl-tests counts them
  int ranks = 0;                // 0: as many as this process may use cores
  std::string algorithm;        // only this one; empty: all
  bool json = false;
};

// What is chosen, what it takes, and what the others would: for one size in detail, for several a table.
std::string host_plan(const HostPlanRequest& request);

}  // namespace muster::tool
