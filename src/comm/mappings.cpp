#include "comm/mappings.h"

namespace muster {

Registry<Segment>& segments() {
  static auto* r = new Registry<Segment>;
  return *r;
}
Registry<PeerArena>& peer_arenas() {
  static auto* r = new Registry<PeerArena>;
  return *r;
}

}  // namespace muster
