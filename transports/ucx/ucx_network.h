// Connections by UCX: TCP everywhere, RDMA where there is some.
#pragma once

#include <memory>

#include "transports/network.h"

namespace muster {

// Throws system_error where UCX isn't installed, or finds no device.
std::unique_ptr<Network> make_ucx_network(const NetworkSetup& setup);

}  // namespace muster
