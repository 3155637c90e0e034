// all_gather_perf: every rank's share, all of them on every rank.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

Collective all_gather() {
  return {
      .name = "all_gather",
      .traffic = Traffic::share,
      .planned_as = "all_gather",
      .layout =
          [](size_t bytes, size_t element, int rank, int nranks) {
            const size_t count = share(bytes, element, nranks);
            return Layout{.count = count,
                          .send = count,
                          .recv = count * static_cast<size_t>(nranks),
                          .in_place_send = count * static_cast<size_t>(rank)};
          },
      .sent = [](const Layout& l, const Place& p) { return Contents{{.source = p.rank, .count = l.count}}; },
      .expected = [](const Layout& l, const Place& p) { return of_each_rank(p.nranks, 0, l.count); },
      .call = [](Communicator& communicator,
                 const Call& c) { communicator.all_gather(c.send, c.recv, c.count, c.type, c.stream); }};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, all_gather()); }
