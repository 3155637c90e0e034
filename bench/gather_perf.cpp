// gather_perf: every rank's share, all of them on the root.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

constexpr auto gather_call = [](auto& rank, const Call& c) {
  rank.gather(c.send, c.recv, c.count, c.type, c.root, c.stream);
};

Collective gather() {
  return {.name = "gather",
          .traffic = Traffic::share,
          .planned_as = "gather",
          .rooted = true,
          .layout = gathered_shares,
          .sent = own_elements,
          .expected =
              [](const Layout& l, const Place& p) {
                Contents all = of_each_rank(p.nranks, 0, l.count);
                for (Content& c : all)
                  if (p.rank != p.root && !(p.in_place && c.source == p.rank)) c.source = Content::kUntouched;
                return all;
              },
          .call = gather_call,
          .gpu_call = gather_call};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, gather()); }
