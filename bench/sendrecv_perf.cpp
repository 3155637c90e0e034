// sendrecv_perf: every rank sends to the next one and receives from the one before, round a ring.
#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

Collective sendrecv() {
  return {
      .name = "sendrecv",
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
      .call =
          [](Communicator& communicator, const Call& c) {
            const int n = communicator.size(), rank = communicator.rank();
            group_start();
            communicator.send(c.send, c.count, c.type, (rank + 1) % n, c.stream);
            communicator.recv(c.recv, c.count, c.type, (rank + n - 1) % n, c.stream);
            group_end();
          }};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, sendrecv()); }
