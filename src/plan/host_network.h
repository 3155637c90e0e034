// The network between hosts whose ranks have their data in host memory.
#pragma once

#include <cstdint>

namespace muster {

namespace topology {
struct Cluster;
}

struct HostNetwork {
  enum class Kind : uint8_t {
    tcp,   // the kernel's: a core copies each byte
    rdma,  // cards that read and write memory: InfiniBand, RoCE, Slingshot, EFA
  };
  Kind kind = Kind::tcp;
  double gbytes_per_s = 0;  // of a host's ports together, in one direction; 0: unknown
};

const char* name_of(HostNetwork::Kind kind);

// What the weakest host has. RDMA only if every host has a port for it, and it is allowed; then all of a host's ports of
// that kind count, else the fastest of Ethernet. Ports that are known to be down don't.
HostNetwork network_between(const topology::Cluster& cluster, bool rdma_allowed = true);

}  // namespace muster
