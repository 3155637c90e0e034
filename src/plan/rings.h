// Rings found on the topology graph: for each channel of a ring algorithm an order of all ranks, such that
// all channels together move as much as the links can carry. docs/planner.md has the method and examples.
//
// Bandwidths are GB/s (10^9 bytes per second) in one direction; a link carries its rate in each of both at
// the same time. A pure function of its arguments: the same result on every rank, from any thread.
#pragma once

#include <span>
#include <vector>

#include "topology/cluster.h"
#include "topology/paths.h"

namespace muster {

// Where a rank is.
struct RankPlace {
  int host = 0;               // of the cluster, 0..host_count() - 1
  int gpu = topology::kNone;  // counted as Machine::all(Kind::gpu) does; kNone: host memory
};

// How a ring goes from one host to the next. Ports are nodes of the hosts' machines; kNone: none is known, or
// the hosts share an NVLink domain and its NVSwitches carry it.
struct Crossing {
  int from = 0, to = 0;  // ranks
  int from_port = topology::kNone, to_port = topology::kNone;
  int by_way_of = topology::kNone;  // rank whose GPU gets it by NVLink and hands it on (PXN); kNone: `from`
  friend bool operator==(const Crossing&, const Crossing&) = default;
};

struct RingChannel {
  std::vector<int> ranks;   // all, each sends to the next, the last to the first
  double gbytes_per_s = 0;  // while the others do the same; infinite where no link is between the ranks
  std::vector<Crossing> crossings;  // in the order of ranks, one per host; none on a single host
  friend bool operator==(const RingChannel&, const RingChannel&) = default;
};

struct RingSearch {
  int most_channels = 64;  // at least 1
  int least_channels = 1;  // where links ask for fewer, rings are repeated and share the bandwidth
  // May a ring leave a host by another port than it came in by? 0: no, 1: yes, 2: where that moves more
  // (NCCL_CROSS_NIC)
  int cross_nic = 2;
};

struct Rings {
  std::vector<RingChannel> channels;  // each as fast as the others; at least one, and none only without ranks
  topology::PathClass inside = topology::PathClass::loc;   // of the farthest hop within hosts
  topology::PathClass outside = topology::PathClass::loc;  // of the farthest way to a port; loc on one host
  bool cross_nic = false;                                  // rings leave by another port than they came in by
  bool fallback = false;  // no ring could be found: order of ranks, host by host

  double gbytes_per_s() const {
    return channels.empty() ? 0 : channels.front().gbytes_per_s * static_cast<double>(channels.size());
  }
};

// Ranks are given by their numbers. The search is bounded: milliseconds per distinct host (shape and
// members), then O(hosts + ranks * channels). It always has a result: where it finds no ring it is the ranks
// host by host, with the bandwidth that their paths give, 0 if nothing joins them. Throws invalid_argument
// for places that aren't there.
Rings find_rings(const topology::Cluster& cluster, std::span<const RankPlace> ranks,
                 const RingSearch& search = {});

// Those that a program of so many channels goes along, one channel each, again from the first on where there are
// more channels: what a placement has as its rings (algorithms/placement.h).
Rings rings_of_channels(const topology::Cluster& cluster, std::span<const RankPlace> ranks, int channels,
                        int cross_nic = RingSearch().cross_nic);
std::vector<std::vector<int>> orders_of(const Rings& rings);

}  // namespace muster
