#include "topology/shape.h"

namespace muster::topology {

Machine shape_of(Machine m) {
  m.name.clear();
  m.host_hash = 0;
  m.findings.clear();
  for (Node& n : m.nodes) {
    n.hidden = false;
    if (auto* gpu = std::get_if<Gpu>(&n.detail)) {
      gpu->uuid.clear();
      gpu->rank = kNone;
    } else if (auto* nic = std::get_if<Nic>(&n.detail)) {
      nic->guid.clear();
    } else if (auto* port = std::get_if<Port>(&n.detail)) {
      port->guid.clear();
    } else if (auto* numa = std::get_if<Numa>(&n.detail)) {
      numa->allowed = true;
    }
  }
  return m;
}

}  // namespace muster::topology
