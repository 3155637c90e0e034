// The root's data is cut into one slice per rank, so that the root's links and arithmetic aren't the only
// ones at work.
#include "algorithms/families.h"

namespace muster {

// The root scatters the slices, then all ranks but the root gather them from each other.
Program sliced_broadcast(const Shape& s) {
  Builder b = start("scatter_gather", Coll::broadcast, s, static_cast<uint32_t>(s.nranks));
  const uint32_t mine = chunk_of_me(s);
  if (s.rank == s.root) {
    for (const Ref& to : slots_of_others(s)) {
      const auto c = static_cast<uint32_t>(to.peer);
      b.step(c, {input(c)}, {output(c), to});
    }
    b.step(mine, {input(mine)}, with(slots_of_others(s), output(mine)));
    return b.done();
  }
  Refs to = slots_of_others(s);
  std::erase(to, slot(s.root));
  b.step(mine, {slot(s.root)}, with(std::move(to), output(mine)));
  for (int i = 1; i < s.nranks; ++i) {
    const int from = peer_behind(s, i);
    const auto c = static_cast<uint32_t>(from);
    b.step(c, {slot(from)}, {output(c)});
  }
  return b.done();
}

// Each rank combines one slice in rank order; the root gathers the results.
Program sliced_reduce(const Shape& s) {
  Builder b = start("scatter_gather", Coll::reduce, s, static_cast<uint32_t>(s.nranks));
  const uint32_t mine = chunk_of_me(s);
  for (const Ref& to : slots_of_others(s)) {
    const auto c = static_cast<uint32_t>(to.peer);
    b.step(c, {contribution(c)}, {to});
  }
  b.finish(mine, by_rank(s, contribution(mine)), {s.rank == s.root ? output(mine) : slot(s.root)});
  if (s.rank == s.root) {
    for (const Ref& from : slots_of_others(s)) {
      const auto c = static_cast<uint32_t>(from.peer);
      b.step(c, {from}, {output(c)});
    }
  }
  return b.done();
}

}  // namespace muster
