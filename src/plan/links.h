// What joins the GPUs of a job, in the few numbers that prices are made of.
#pragma once

#include <span>
#include <string>

#include "plan/constants.h"
#include "plan/rings.h"
#include "plan/work.h"
#include "topology/cluster.h"
#include "topology/paths.h"

namespace muster {

// What the hops inside hosts go over: the farthest decides.
enum class Near : uint8_t { nvlink, pcie, cpu };
const char* name_of(Near n);

struct Links {
  Spread spread;
  Near near = Near::nvlink;
  int sm = 0;             // the oldest GPU's; 0: unknown
  bool switched = false;  // NVSwitches join all GPUs of each host
  int near_channels = 1;  // rings that one host's links carry
  int port_count = 0;     // of a host, that its ranks use: channels take them in turn
  // GB/s in one direction, of the weakest host: what rings inside a host carry together, and what a GPU
  // exchanges with all others of its host at once, as the topology says (rates.h); what collectives reach of
  // all ports that the host's ranks use.
  double rings = 0, exchange = 0, ports = 0;
  topology::Network network = topology::Network::unknown;
  // Of what a leaf's ports carry its uplinks carry one in so many; 1 where all hosts are at one leaf. A ring
  // goes up once per leaf only.
  double oversubscription = 1;
  int hosts_per_leaf = 1;
};

// Hosts that NVSwitches join count as one. O(distinct hosts * search + hosts). Throws invalid_argument for
// places that aren't there or have no GPU, and where nothing joins the hosts.
Links links_of(const topology::Cluster& cluster, std::span<const RankPlace> ranks,
               const Constants& constants = Constants::built_in());

// One rank per GPU, in the order of hosts and GPUs.
std::vector<RankPlace> all_gpus(const topology::Cluster& cluster);

}  // namespace muster
