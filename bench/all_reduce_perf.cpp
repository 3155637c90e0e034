// all_reduce_perf: every rank's elements combined, the result on every rank.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

Layout layout(size_t bytes, size_t element, int, int) {
  const size_t count = bytes / element;
  return {.count = count, .send = count, .recv = count};
}

std::vector<Content> sent(const Layout& l, int rank, int, int) {
  return {{.source = rank, .count = l.count}};
}

std::vector<Content> expected(const Layout& l, int, int, int) {
  return {{.source = Content::kReduced, .count = l.count}};
}

void call(Communicator& communicator, const Call& c) {
  communicator.all_reduce(c.send, c.recv, c.count, c.type, c.op, c.stream);
}

}  // namespace

int main(int argc, char** argv) {
  return run_perf(argc, argv,
                  {.name = "all_reduce",
                   .traffic = Traffic::all_reduce,
                   .reduces = true,
                   .rooted = false,
                   .in_place = true,
                   .layout = layout,
                   .sent = sent,
                   .expected = expected,
                   .call = call});
}
