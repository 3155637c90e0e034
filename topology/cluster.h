// Hosts and the network between them. Memory goes with the number of distinct hosts, not with that of all.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "topology/machine.h"

namespace muster::topology {

// Hosts of one shape, one after the other in the order of ranks.
struct HostGroup {
  int shape = 0;     // index in Cluster::shapes
  int count = 1;
  std::string name;  // of the only host, or what the names of all begin with ("node" for node0, node1, ...)
};

// A network of leaf switches below a spine. A rail is the leaf switches that hold port i of every host; without rails all
// ports of a host are at one leaf.
struct Fabric {
  Network network = Network::unknown;
  bool rails = false;
  int hosts_per_leaf = 0;      // 0: all hosts are at one leaf (or one per rail)
  double oversubscription = 1;  // of the leaf's uplinks: 2 = half of what goes in can go up
  double gbit_per_s = 0;       // per port; 0: what the hosts' ports say
  double latency_us = 0;       // of one switch, one way; 0: unknown
  int hosts_per_nvlink_domain = 1;  // NVSwitches that join GPUs of several hosts (72 GPUs: 18 hosts of 4)
  Source source = Source::assumed;
};

struct Cluster {
  std::string name;
  std::vector<std::shared_ptr<const Machine>> shapes;
  std::vector<HostGroup> hosts;  // empty groups don't occur
  Fabric fabric;
  std::vector<Finding> findings;  // about the cluster; those of hosts are with their machines

  int host_count() const;
  int gpu_count() const;
  const Machine& machine_of(int host) const;  // O(groups)
  std::string host_name(int host) const;
};

// A cluster of one host.
Cluster cluster_of(Machine m);

}  // namespace muster::topology
