// all_reduce_perf: every rank's elements combined, the result on every rank.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

constexpr auto all_reduce_call = [](auto& rank, const Call& c) {
  rank.all_reduce(c.send, c.recv, c.count, c.type, c.op, c.stream);
};

Collective all_reduce() {
  return {.name = "all_reduce",
          .traffic = Traffic::all_reduce,
          .planned_as = "all_reduce",
          .reduces = true,
          .layout = whole_buffers,
          .sent = own_elements,
          .expected = [](const Layout& l,
                         const Place&) { return Contents{{.source = Content::kReduced, .count = l.count}}; },
          .call = all_reduce_call,
          .gpu_call = all_reduce_call};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, all_reduce()); }
