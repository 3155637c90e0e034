// alltoall_perf: a share from every rank to every rank.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

constexpr auto alltoall_call = [](auto& rank, const Call& c) {
  rank.all_to_all(c.send, c.recv, c.count, c.type, c.stream);
};

Collective alltoall() {
  return {.name = "alltoall",
          .traffic = Traffic::share,
          .planned_as = "all_to_all",
          .in_place = false,
          .layout =
              [](size_t bytes, size_t element, int, int nranks) {
                const size_t count = share(bytes, element, nranks), all = count * static_cast<size_t>(nranks);
                return Layout{.count = count, .send = all, .recv = all};
              },
          .sent = own_elements,
          .expected =
              [](const Layout& l, const Place& p) {
                return of_each_rank(p.nranks, l.count * static_cast<size_t>(p.rank), l.count);
              },
          .call = alltoall_call,
          .gpu_call = alltoall_call};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, alltoall()); }
