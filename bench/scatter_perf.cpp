// scatter_perf: a share of the root's elements on each rank.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

constexpr auto scatter_call = [](auto& rank, const Call& c) {
  rank.scatter(c.send, c.recv, c.count, c.type, c.root, c.stream);
};

Collective scatter() {
  return {.name = "scatter",
          .traffic = Traffic::share,
          .planned_as = "scatter",
          .rooted = true,
          .layout = scattered_shares,
          .sent =
              [](const Layout& l, const Place& p) {
                const int source = p.rank == p.root ? p.root : Content::kUntouched;
                return Contents{{.source = source, .count = l.send}};
              },
          .expected =
              [](const Layout& l, const Place& p) {
                const size_t mine = l.count * static_cast<size_t>(p.rank), next = mine + l.count;
                const Content received = {.source = p.root, .first = mine, .count = l.count};
                if (!p.in_place) return Contents{received};
                const int around = p.rank == p.root ? p.root : Content::kUntouched;
                return Contents{{.source = around, .count = mine},
                                received,
                                {.source = around, .first = next, .count = l.send - next}};
              },
          .call = scatter_call,
          .gpu_call = scatter_call};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, scatter()); }
