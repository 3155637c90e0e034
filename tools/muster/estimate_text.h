// What `muster estimate` says, for people, for programs, and as a picture.
#pragma once

#include <string>
#include <vector>

#include "parallel/layout_search.h"

namespace muster::tool {

struct EstimateReport {
  Transformer model;
  GpuSpec gpu;
  std::string cluster;                      // "2048 hosts with 8 NVIDIA H100 each, InfiniBand"
  std::vector<std::string> notes;           // placement and the like
  std::vector<TrainingEstimate> estimates;  // one, or those of a search, the fastest first
  bool search = false;
  int64_t possible = 0, fit = 0;  // of a search
};

std::string estimate_text(const EstimateReport& report);
std::string estimate_json(const EstimateReport& report);
// Bars of memory and time of each estimate: SVG 1.1, no scripts.
std::string estimate_svg(const EstimateReport& report);

}  // namespace muster::tool
