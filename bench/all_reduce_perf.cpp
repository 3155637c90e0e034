// all_reduce_perf: every rank's elements combined, the result on every rank.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

Collective all_reduce() {
  return {
      .name = "all_reduce",
      .traffic = Traffic::all_reduce,
      .planned_as = "all_reduce",
      .reduces = true,
      .layout =
          [](size_t bytes, size_t element, int, int) {
            const size_t count = bytes / element;
            return Layout{.count = count, .send = count, .recv = count};
          },
      .sent = [](const Layout& l, const Place& p) { return Contents{{.source = p.rank, .count = l.count}}; },
      .expected = [](const Layout& l,
                     const Place&) { return Contents{{.source = Content::kReduced, .count = l.count}}; },
      .call =
          [](Communicator& communicator, const Call& c) {
            communicator.all_reduce(c.send, c.recv, c.count, c.type, c.op, c.stream);
          }};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, all_reduce()); }
