// NCCL's graph files (NCCL_GRAPH_FILE, NCCL_GRAPH_DUMP_FILE): the rings and trees that its search found or is
// to use.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/finding.h"
#include "topology/paths.h"

namespace muster::topology {

// By NCCL's numbers.
enum class GraphPattern : uint8_t {
  unknown = 0,
  balanced_tree = 1,
  split_tree = 2,
  tree = 3,
  ring = 4,
  nvls = 5,
  collnet_direct = 6
};
std::string_view name_of(GraphPattern p);  // "ring"

struct GraphHop {
  bool net = false;    // a network port, else a GPU
  int64_t device = 0;  // its number: of the GPU in its machine, of the port for the network plugin
  auto operator<=>(const GraphHop&) const = default;
};
using GraphChannel =
    std::vector<GraphHop>;  // a ring ends where it begins; between hosts it enters and leaves by a port

struct ChannelGraph {
  int id = 0;              // 0 ring, 1 tree, 2 collnet chain, 3 NVLS, 4 collnet direct
  int pattern_number = 0;  // as written, also where it isn't known
  GraphPattern pattern = GraphPattern::unknown;
  int cross_nic = 0;
  bool same_channels = false;
  double gb_per_s_intra = 0, gb_per_s_inter = 0;  // of each channel, inside a host and between hosts
  double latency_inter_us = 0;                    // files before NCCL 2.13 don't have it
  PathClass type_intra = PathClass::loc, type_inter = PathClass::loc;
  std::vector<GraphChannel> channels;
};

struct ChannelGraphs {
  std::vector<ChannelGraph> graphs;
  std::vector<Finding> findings;  // what contradicts itself
};

// Throws invalid_argument with file, line and column for what is no such file.
ChannelGraphs read_nccl_graph(std::string_view text, const std::string& name);

// For a person, a paragraph for each graph with channels, the same channels together:
//   ring (graph 0): 12 channels of 30 GB/s by NVL
//     0-11: GPU 0 > 1 > 2 > 3 > 0
std::string describe(const ChannelGraphs& g);

}  // namespace muster::topology
