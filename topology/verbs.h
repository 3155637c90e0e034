// What libibverbs says of RDMA devices. It is looked for at run time; only its header is needed to build.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/machine.h"

namespace muster::topology {

struct VerbsPort {
  int number = 1;
  Answer3 up = Answer3::unknown;
  double gbit_per_s = 0;         // lanes by speed; 0: not said
  bool could_be_faster = false;  // the speed is the highest that the library's interface can say
  std::string link_layer;        // "InfiniBand", "Ethernet"; empty: not said
  std::optional<int> gids;       // entries of its table of addresses
};

struct VerbsDevice {
  std::string name;     // "mlx5_0"
  int node_type = 0;    // as the kernel counts: 1 channel adapter, 4 iWARP card; 0: not said
  std::string guid;     // of the card, hexadecimal with 0x; empty: unknown
  std::string problem;  // why it couldn't be opened; empty: it could
  std::vector<VerbsPort> ports;
};

struct VerbsAnswer {
  bool asked = false;   // false: Muster was built without libibverbs's header
  bool found = false;   // there is such a library
  std::string problem;  // why it couldn't be asked; empty: it could
  std::vector<VerbsDevice> devices;
};

// `library`: as for dlopen. Opens each device and closes it again. Never throws for what the library does.
// Thread-safe.
VerbsAnswer ask_verbs(const std::string& library);

}  // namespace muster::topology
