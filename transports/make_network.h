// Which network joins the hosts of a job.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transports/network.h"

namespace muster {

// A network that NCCL_NET, NCCL_NET_PLUGIN and NCCL_IB_DISABLE allow.
struct NetworkOffer {
  std::string name;
  std::string problem;  // why this process can't use it; empty: it can
};
// Best first: a network plugin of NCCL's ("plugin NAME"), if there is one, "verbs" where there are RDMA devices, "ucx" where UCX
// is installed, "tcp" always; "ucx" comes before "tcp" where it has RDMA. Throws invalid_usage where NCCL_NET names none.
std::vector<NetworkOffer> network_offers(const Options& options);
// Names of those that can be used.
std::vector<std::string> offered_networks(const Options& options);
// Why there are none, or not more: for people.
std::string missing_networks(const Options& options);
// What all ranks use, of what each of them offers, one rank at least: the first of rank 0's that all have.
std::optional<std::string> common_network(std::span<const std::vector<std::string>> offers);

// By its name. Throws system_error if it can't be used after all, saying why.
std::unique_ptr<Network> make_network(const std::string& name, const NetworkSetup& setup);
// The best that this process offers. Throws system_error if it offers none, saying why.
std::unique_ptr<Network> make_network(const NetworkSetup& setup);

}  // namespace muster
