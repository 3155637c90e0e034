// alltoallv_perf: from every rank to every rank, as much as a pattern says.
#include <memory>

#include "perf/collective.h"
#include "perf/pattern.h"

namespace {

using namespace muster;
using namespace muster::perf;

void send_and_receive(Communicator& communicator, const Call& c) {
  const auto* send = static_cast<const std::byte*>(c.send);
  auto* recv = static_cast<std::byte*>(c.recv);
  group_start();
  for (size_t peer = 0; peer < c.sends.size(); ++peer) {
    if (c.sends[peer]) communicator.send(send, c.sends[peer], c.type, static_cast<int>(peer), c.stream);
    if (c.recvs[peer]) communicator.recv(recv, c.recvs[peer], c.type, static_cast<int>(peer), c.stream);
    send += c.sends[peer] * size_of(c.type);
    recv += c.recvs[peer] * size_of(c.type);
  }
  group_end();
}

Collective alltoallv() {
  const auto pattern = std::make_shared<Pattern>();
  return {.name = "alltoallv",
          .traffic = Traffic::share,
          .in_place = false,
          .layout = [pattern](size_t bytes, size_t element, int rank,
                              int nranks) { return pattern->layout(bytes, element, rank, nranks); },
          .sent = [pattern](const Layout& l, const Place& p) { return pattern->sent(l, p); },
          .expected = [pattern](const Layout& l, const Place& p) { return pattern->expected(l, p); },
          .call = send_and_receive,
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
