// NCCL_ALGO and NCCL_PROTO, "list;function:list;...", in Muster's terms. All throw invalid_usage for a word
// that NCCL doesn't know.
#pragma once

#include <string>

#include "program/collective.h"

namespace muster {

struct NcclAlgo {
  std::string algorithm;  // forced; empty: none
  bool trees = true;      // false: excluded
  std::string unmet;      // why it can't be met as a whole; empty: it is
};
// Of NCCL_ALGO what a communicator can do, which has one choice for all collectives.
NcclAlgo read_nccl_algo(const std::string& text);

// The list that counts for one collective, as it is written ("ring,tree", "^LL128"): the last of those that
// are for it or for all. Empty: none is.
std::string nccl_algorithms_for(Coll coll, const std::string& text);
std::string nccl_protocols_for(Coll coll, const std::string& text);

}  // namespace muster
