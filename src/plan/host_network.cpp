#include "plan/host_network.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "topology/cluster.h"

namespace muster {
namespace {

constexpr double kGbitPerGbyte = 8;

struct PortRates {
  bool has_rdma = false, rdma_known = true;
  double rdma = 0, ethernet = 0;  // GB/s
};

PortRates rates_of(const topology::Machine& m, const topology::Fabric& fabric) {
  PortRates r;
  for (const int i : m.all(topology::Kind::port)) {
    const topology::Port& port = m.port(i);
    if (port.up == topology::Answer3::no) continue;
    const topology::Network network =
        fabric.network != topology::Network::unknown ? fabric.network : port.network;
    const double rate = (fabric.gbit_per_s > 0 ? fabric.gbit_per_s : port.gbit_per_s) / kGbitPerGbyte;
    switch (network) {
      case topology::Network::infiniband:
      case topology::Network::roce:
      case topology::Network::efa:
        r.has_rdma = true;
        r.rdma_known = r.rdma_known && rate > 0;
        r.rdma += rate;
        break;
      case topology::Network::ethernet:
      case topology::Network::unknown:
        r.ethernet = std::max(r.ethernet, rate);
        break;
    }
  }
  if (!r.rdma_known) r.rdma = 0;
  return r;
}

}  // namespace

const char* name_of(HostNetwork::Kind kind) { return kind == HostNetwork::Kind::rdma ? "RDMA" : "TCP"; }

HostNetwork network_between(const topology::Cluster& c, bool rdma_allowed) {
  std::vector<PortRates> each;
  for (const auto& shape : c.shapes) each.push_back(rates_of(*shape, c.fabric));
  const bool rdma =
      rdma_allowed && !each.empty() && std::all_of(each.begin(), each.end(), [](const PortRates& r) { return r.has_rdma; });
  double least = std::numeric_limits<double>::infinity();
  for (const PortRates& r : each) least = std::min(least, rdma ? r.rdma : r.ethernet);
  return {rdma ? HostNetwork::Kind::rdma : HostNetwork::Kind::tcp, each.empty() ? 0 : least};
}

}  // namespace muster
