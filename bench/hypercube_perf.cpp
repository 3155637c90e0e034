// hypercube_perf: an all-gather of sends and receives. In round k a rank exchanges all it has with the rank
// whose number differs in bit k.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "perf/collective.h"

namespace {

using namespace muster;
using namespace muster::perf;

constexpr auto hypercube_round = [](auto& rank, const Call& c) {
  const size_t me = static_cast<size_t>(rank.rank()), distance = size_t{1} << c.round;
  const size_t bytes = c.count * size_of(c.type), mine = me & ~(distance - 1), theirs = mine ^ distance;
  auto* const recv = static_cast<std::byte*>(c.recv);
  open_group(rank);
  if (c.round == 0 && c.send != recv + me * bytes) {  // my own share's way into my result
    rank.send(c.send, c.count, c.type, rank.rank(), c.stream);
    rank.recv(recv + me * bytes, c.count, c.type, rank.rank(), c.stream);
  }
  if (rank.size() > 1) {
    const int peer = static_cast<int>(me ^ distance);
    rank.send(c.round == 0 ? c.send : recv + mine * bytes, c.count * distance, c.type, peer, c.stream);
    rank.recv(recv + theirs * bytes, c.count * distance, c.type, peer, c.stream);
  }
  close_group(rank);
};

Collective hypercube() {
  return {.name = "hypercube",
          .traffic = Traffic::hypercube,
          .layout = gathered_shares,
          .sent = own_elements,
          .expected = [](const Layout& l, const Place& p) { return of_each_rank(p.nranks, 0, l.count); },
          .call = hypercube_round,
          .gpu_call = hypercube_round,
          .rounds =
              [](int nranks) {
                return std::max(1, static_cast<int>(std::bit_width(static_cast<unsigned>(nranks))) - 1);
              },
          .prepare =
              [](const Args&, int nranks) {
                return std::has_single_bit(static_cast<unsigned>(nranks))
                           ? std::string()
                           : fmt::format("a hypercube needs 1, 2, 4, 8 ... ranks, and there are {}", nranks);
              }};
}

}  // namespace

int main(int argc, char** argv) { return run_perf(argc, argv, hypercube()); }
