// reduce_perf: every rank's elements combined, the result on the root.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

Collective reduce() {
  return {
      .name = "reduce",
      .traffic = Traffic::whole,
      .planned_as = "reduce",
      .reduces = true,
      .rooted = true,
      .layout =
          [](size_t bytes, size_t element, int, int) {
            const size_t count = bytes / element;
            return Layout{.count = count, .send = count, .recv = count};
          },
      .sent = [](const Layout& l, const Place& p) { return Contents{{.source = p.rank, .count = l.count}}; },
      .expected =
          [](const Layout& l, const Place& p) {
            const int elsewhere = p.in_place ? p.rank : Content::kUntouched;
            return Contents{{.source = p.rank == p.root ? Content::kReduced : elsewhere, .count = l.count}};
          },
      .call =
          [](Communicator& communicator, const Call& c) {
            communicator.reduce(c.send, c.recv, c.count, c.type, c.op, c.root, c.stream);
          }};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, reduce()); }
