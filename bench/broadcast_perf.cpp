// broadcast_perf: the root's elements on every rank.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

constexpr auto broadcast_call = [](auto& rank, const Call& c) {
  rank.broadcast(c.send, c.recv, c.count, c.type, c.root, c.stream);
};

Collective broadcast() {
  return {.name = "broadcast",
          .traffic = Traffic::whole,
          .planned_as = "broadcast",
          .rooted = true,
          .layout = whole_buffers,
          .sent =
              [](const Layout& l, const Place& p) {
                const int source = p.rank == p.root ? p.root : Content::kUntouched;
                return Contents{{.source = source, .count = l.count}};
              },
          .expected = [](const Layout& l,
                         const Place& p) { return Contents{{.source = p.root, .count = l.count}}; },
          .call = broadcast_call,
          .gpu_call = broadcast_call};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, broadcast()); }
