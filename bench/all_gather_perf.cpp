// all_gather_perf: every rank's share, all of them on every rank.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

constexpr auto all_gather_call = [](auto& rank, const Call& c) {
  rank.all_gather(c.send, c.recv, c.count, c.type, c.stream);
};

Collective all_gather() {
  return {.name = "all_gather",
          .traffic = Traffic::share,
          .planned_as = "all_gather",
          .layout = gathered_shares,
          .sent = own_elements,
          .expected = [](const Layout& l, const Place& p) { return of_each_rank(p.nranks, 0, l.count); },
          .call = all_gather_call,
          .gpu_call = all_gather_call};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, all_gather()); }
