// reduce_scatter_perf: every rank's elements combined, one share of the result on each rank.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

constexpr auto reduce_scatter_call = [](auto& rank, const Call& c) {
  rank.reduce_scatter(c.send, c.recv, c.count, c.type, c.op, c.stream);
};

Collective reduce_scatter() {
  return {.name = "reduce_scatter",
          .traffic = Traffic::share,
          .planned_as = "reduce_scatter",
          .reduces = true,
          .layout = scattered_shares,
          .sent = own_elements,
          .expected =
              [](const Layout& l, const Place& p) {
                const size_t mine = l.count * static_cast<size_t>(p.rank), next = mine + l.count;
                const Content result = {.source = Content::kReduced, .first = mine, .count = l.count};
                if (!p.in_place) return Contents{result};
                return Contents{{.source = p.rank, .count = mine},
                                result,
                                {.source = p.rank, .first = next, .count = l.send - next}};
              },
          .call = reduce_scatter_call,
          .gpu_call = reduce_scatter_call};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, reduce_scatter()); }
