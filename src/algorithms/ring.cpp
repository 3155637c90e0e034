// Each rank receives from the one before and sends to the one after; every link carries the same load. The order is that of
// the placement's ring of this channel; without one it is by rank.
#include <algorithm>

#include "algorithms/families.h"

namespace muster {

namespace {

// The ranks as one of them sees them along the ring.
class Ring {
 public:
  explicit Ring(const Shape& s) : me_(s.rank), n_(s.nranks) {
    if (!s.placement || s.placement->rings.empty()) return;
    const auto& rings = s.placement->rings;
    order_ = &rings[static_cast<size_t>(s.channel) % rings.size()];
    me_ = position(s.rank);
  }
  // The rank `distance` places after this one (before it, if negative).
  int at(int distance) const {
    const int p = wrap(me_ + distance, n_);
    return order_ ? (*order_)[static_cast<size_t>(p)] : p;
  }
  Ref previous() const { return slot(at(-1)); }
  Ref next() const { return slot(at(1)); }

 private:
  int position(int rank) const {
    const auto it = std::find(order_->begin(), order_->end(), rank);
    if (it == order_->end() || order_->size() != static_cast<size_t>(n_))
      fail(Result::internal_error, "a ring of {} ranks that should have all {}: rank {} is not in its place", order_->size(), n_, rank);
    return static_cast<int>(it - order_->begin());
  }
  int me_, n_;
  const std::vector<int>* order_ = nullptr;  // null: by rank
};

}  // namespace

// Partial sums travel once round the ring; each rank adds its own part as they pass. A rank's chunk starts at the one after it.
Program ring_reduce_scatter(const Shape& s) {
  Builder b = start("ring", Coll::reduce_scatter, s);
  const Ring ring(s);
  const int n = s.nranks;
  if (n == 1) {
    b.finish(0, {contribution(0)}, {output(0)});
    return b.done();
  }
  const uint32_t first = chunk_of(ring.at(-1), s);
  b.step(first, {contribution(first)}, {ring.next()});
  for (int i = 2; i < n; ++i) {
    const uint32_t c = chunk_of(ring.at(-i), s);
    b.step(c, {ring.previous(), contribution(c)}, {ring.next()});
  }
  b.finish(chunk_of_me(s), {ring.previous(), contribution(chunk_of_me(s))}, {output(0)});
  return b.done();
}

// Each rank's chunk travels round the ring; each rank keeps a copy as it passes.
Program ring_all_gather(const Shape& s) {
  Builder b = start("ring", Coll::all_gather, s);
  const Ring ring(s);
  const int n = s.nranks;
  b.step(chunk_of_me(s), {input(0)}, n == 1 ? Refs{output(0)} : Refs{output(chunk_of_me(s)), ring.next()});
  for (int i = 1; i < n; ++i) {
    const uint32_t c = chunk_of(ring.at(-i), s);
    b.step(c, {ring.previous()}, i == n - 1 ? Refs{output(c)} : Refs{output(c), ring.next()});
  }
  return b.done();
}

Program ring_all_reduce(const Shape& s) { return all_reduce_of(ring_reduce_scatter(s), ring_all_gather(s)); }

// From the root along the ring. Each rank passes tiles on while the next ones arrive.
Program chain_broadcast(const Shape& s) {
  Builder b = start("chain", Coll::broadcast, s);
  const Ring ring(s);
  Refs to = {output(0)};
  if (ring.at(1) != s.root) to.push_back(ring.next());
  b.step(0, {s.rank == s.root ? input(0) : ring.previous()}, to);
  return b.done();
}

// Along the ring to the root, from the one after it on. Each rank adds its own part to the sum that passes.
Program chain_reduce(const Shape& s) {
  Builder b = start("chain", Coll::reduce, s);
  const Ring ring(s);
  Refs from = {contribution(0)};
  if (ring.at(-1) != s.root) from.insert(from.begin(), ring.previous());
  if (s.rank == s.root) {
    b.finish(0, from, {output(0)});
  } else {
    b.step(0, from, {ring.next()});
  }
  return b.done();
}

}  // namespace muster
