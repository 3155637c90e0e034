// sendrecv_perf: every rank sends to the next one and receives from the one before, round a ring.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

constexpr auto sendrecv_call = [](auto& rank, const Call& c) {
  const int n = rank.size(), me = rank.rank();
  open_group(rank);
  rank.send(c.send, c.count, c.type, (me + 1) % n, c.stream);
  rank.recv(c.recv, c.count, c.type, (me + n - 1) % n, c.stream);
  close_group(rank);
};

Collective sendrecv() {
  return {.name = "sendrecv",
          .traffic = Traffic::whole,
          .in_place = false,
          .layout =
              [](size_t bytes, size_t element, int, int) {
                const size_t count = bytes / element;
                return Layout{.count = count, .send = count, .recv = count, .in_place_recv = count};
              },
          .sent = own_elements,
          .expected =
              [](const Layout& l, const Place& p) {
                return Contents{{.source = (p.rank + p.nranks - 1) % p.nranks, .count = l.count}};
              },
          .call = sendrecv_call,
          .gpu_call = sendrecv_call};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, sendrecv()); }
