// The ranks of a job on the hardware that they share: what each message between two ranks goes over.
//
// Rates and latencies are the topology's (GB/s = 1e9 bytes per second and direction; microseconds, one way);
// what software adds is the cost model's. Movable; const calls are safe from several threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/rings.h"
#include "topology/host_paths.h"

namespace muster {

struct Resource {
  enum class Kind : uint8_t { link, uplink, core, memory };
  Kind kind = Kind::link;
  topology::LinkKind link = topology::LinkKind::network;  // where kind is link
  std::string name;                                       // "node3: GPU2 -> NVSwitch0", "core 5"
  double gb_per_s = 0;
};

struct Route {
  std::vector<uint32_t> resources;  // numbers of what the message goes over, in order
  topology::LinkClass link_class = topology::LinkClass::none;
  double latency_us = 0;
};

// Ranks as threads or processes of one host, without GPUs. A message is copied by the sender's core and
// copied or combined by the receiver's; both take memory bandwidth.
struct HostMemory {
  std::vector<int> core_of;    // of each rank; ranks of one core share it
  double core_gb_per_s = 0;    // bytes that a core copies per second, > 0
  double memory_gb_per_s = 0;  // that all cores together copy; 0: no limit
  double latency_us = 0;       // until another core sees what one has written
};

class SimulatedNetwork {
 public:
  // One rank per GPU by default, in the order of hosts and GPUs. Memory and time O(hosts * ports + shapes *
  // GPUs^2 * ports) beside that. Throws invalid_argument for hosts and GPUs that aren't there.
  explicit SimulatedNetwork(topology::Cluster cluster, std::vector<RankPlace> places = {});
  explicit SimulatedNetwork(HostMemory memory);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }

  // Links of each host in both directions, then what leads up and down from the leaves of the fabric.
  uint32_t resources() const { return resources_; }
  Resource resource(uint32_t number) const;
  double gb_per_s(uint32_t number) const;

  // O(links). Throws invalid_argument where nothing joins the two.
  Route route(int from, int to) const;
  // What the rank's own copying and combining takes: its core and memory; nothing on GPUs.
  std::vector<uint32_t> work(int rank) const;

 private:
  struct Place {
    int host, local;  // number of a host and of a direction of one of its links; host < 0: local is that of
                      // an uplink
  };
  Place place_of(uint32_t number) const;
  void append(Route& r, int host, const topology::Path& path, bool reversed) const;
  uint32_t nvswitch_link(int host, int gpu, bool out) const;
  uint32_t uplink(int host, int port, bool up) const;
  double uplink_rate(int leaf, int rail) const;
  const topology::Machine& machine(int host) const;

  topology::Cluster cluster_;
  std::optional<topology::HostPaths> paths_;  // none on host memory
  std::vector<int> host_of_, gpu_of_;         // of each rank
  std::vector<int> shape_of_;                 // of each host
  std::vector<uint32_t> first_of_host_;       // resource; and where the uplinks begin
  int rails_ = 1;                             // leaf switches of a leaf
  std::vector<double> uplink_rates_;          // by leaf and rail
  HostMemory memory_;
  int cores_ = 0;
  uint32_t resources_ = 0;
};

}  // namespace muster
