// reduce_perf: every rank's elements combined, the result on the root.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

constexpr auto reduce_call = [](auto& rank, const Call& c) {
  rank.reduce(c.send, c.recv, c.count, c.type, c.op, c.root, c.stream);
};

Collective reduce() {
  return {
      .name = "reduce",
      .traffic = Traffic::whole,
      .planned_as = "reduce",
      .reduces = true,
      .rooted = true,
      .layout = whole_buffers,
      .sent = own_elements,
      .expected =
          [](const Layout& l, const Place& p) {
            const int elsewhere = p.in_place ? p.rank : Content::kUntouched;
            return Contents{{.source = p.rank == p.root ? Content::kReduced : elsewhere, .count = l.count}};
          },
      .call = reduce_call,
      .gpu_call = reduce_call};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, reduce()); }
