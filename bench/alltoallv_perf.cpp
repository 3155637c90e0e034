// alltoallv_perf: from every rank to every rank, as much as a pattern says.
#include <memory>

#include "perf/collective.h"
#include "perf/pattern.h"

namespace {

using namespace muster;
using namespace muster::perf;

constexpr auto alltoallv_call = [](auto& rank, const Call& c) {
  rank.all_to_all_v(c.send, c.sends, {}, c.recv, c.recvs, {}, c.type, c.stream);
};

Collective alltoallv() {
  const auto pattern = std::make_shared<Pattern>();
  return {.name = "alltoallv",
          .traffic = Traffic::share,
          .in_place = false,
          .layout = [pattern](size_t bytes, size_t element, int rank,
                              int nranks) { return pattern->layout(bytes, element, rank, nranks); },
          .sent = [pattern](const Layout& l, const Place& p) { return pattern->sent(l, p); },
          .expected = [pattern](const Layout& l, const Place& p) { return pattern->expected(l, p); },
          .call = alltoallv_call,
          .gpu_call = alltoallv_call,
          .prepare =
              [pattern](const Args& args, int nranks) {
                *pattern = Pattern::from_environment();
                pattern->check(args, nranks);
                return "";
              },
          .summary = [pattern](size_t bytes, size_t element, int nranks,
                               double seconds) { return pattern->summary(bytes, element, nranks, seconds); }};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, alltoallv()); }
