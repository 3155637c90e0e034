// How GPUs of a cluster's hosts reach each other: which ports, how many switches, what rate and latency.
//
// Rules. A GPU is served by the port nearest to it (nearest_ports.h). On a fabric with rails the sender takes
// its port on the receiver's rail, where NVLink brings it near that (PXN), so that traffic stays on one rail.
// One switch joins ports of one leaf (with rails: of the same rail at one leaf); everything else takes three:
// leaf, spine, leaf. Hosts of one NVLink domain reach each other through its NVSwitches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "topology/cluster.h"
#include "topology/paths.h"

namespace muster::topology {

struct HostPath {
  PathClass path_class =
      PathClass::dis;  // net between hosts, nvl within an NVLink domain; inside a host that of the GPUs
  Network network = Network::unknown;      // where path_class is net
  int from_port = kNone, to_port = kNone;  // nodes of the hosts' machines, where path_class is net
  int switches = 0;                        // of the network, or 1 for an NVLink domain's
  bool same_rail = false;                  // both ports have the same place in their hosts
  Rate rate;                               // of its narrowest part, when nothing else goes on
  Rate rate_when_all;     // when every GPU of both hosts does the same: ports shared, uplinks oversubscribed
  double latency_us = 0;  // one way: links, ports and switches

  bool operator==(const HostPath&) const;
};

// How two hosts lie to each other. With rails a leaf is one leaf switch per rail.
enum class Neighbourhood : uint8_t { host, nvlink_domain, leaf, spine };

// Paths that are alike: from GPU number `gpu` of a host of one shape to that of another host.
struct HostPathKind {
  int from_shape = 0, to_shape = 0;
  Neighbourhood hosts = Neighbourhood::host;
  int gpu = 0;         // counted as Machine::all(Kind::gpu)
  uint64_t paths = 0;  // ordered pairs of hosts
  HostPath path;
};

// Made in O(hosts + shapes * GPUs^2 * ports), with as much memory; from then on a path is a few look-ups.
class HostPaths {
 public:
  explicit HostPaths(const Cluster& cluster);
  ~HostPaths();
  HostPaths(HostPaths&&) noexcept;

  // GPUs are counted as Machine::all(Kind::gpu) does. Throws invalid_argument for hosts and GPUs that aren't
  // there.
  HostPath between(int from_host, int from_gpu, int to_host, int to_gpu) const;
  Neighbourhood neighbourhood(int from_host, int to_host) const;

  // The parts of these paths: what a host's machine has of them. Hosts and GPUs as above.
  const Path& inside(int host, int from_gpu, int to_gpu) const;
  const Path& to_port(int host, int gpu, int port) const;  // `port`: a node of the machine; dis: no way there
  const std::vector<int>& ports(int host) const;           // on the fabric; a port's place here is its rail
  Rate port_rate(int host, int port) const;                // `port`: a node; what the fabric leaves of it
  int leaf_of(int host) const { return host / hosts_per_leaf_; }

  // From each GPU of each host to the GPU of the same number of each other host, where it has one: all
  // ordered pairs of hosts, counted by kind. O(hosts + shapes^2 * GPUs).
  std::vector<HostPathKind> peers() const;

 private:
  struct Shape;
  const Shape& shape_of(int host) const;
  HostPath path(const Shape& a, int from_gpu, const Shape& b, int to_gpu, Neighbourhood n) const;
  Neighbourhood between_places(int from_host, int to_host) const;

  Fabric fabric_;
  std::vector<Shape> shapes_;
  std::vector<int> shape_of_;  // of each host
  int hosts_per_leaf_ = 1;
};

// The same for one question. Answering many this way costs as much as making HostPaths each time.
HostPath path_between(const Cluster& c, int from_host, int from_gpu, int to_host, int to_gpu);

}  // namespace muster::topology
