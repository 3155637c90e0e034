// NCCL_ALGO in Muster's terms.
#pragma once

#include <string>

namespace muster {

struct NcclAlgo {
  std::string algorithm;  // forced; empty: none
  bool trees = true;      // false: excluded
  std::string unmet;      // why it can't be met as a whole; empty: it is
};
// Throws invalid_usage for a word that NCCL doesn't know.
NcclAlgo read_nccl_algo(const std::string& text);

}  // namespace muster
