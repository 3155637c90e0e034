// Logarithmically many messages for any number of ranks, each of several chunks. Chunks are numbered modulo
// the rank count, so the ranges below may pass the end.
#include <algorithm>
#include <bit>

#include "algorithms/families.h"

namespace muster {

namespace {
// The largest power of two below n; 0 for n == 1.
int longest_distance(int n) { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(n)) / 2); }
}  // namespace

// Before the exchange at distance d a rank has the d chunks from its own on; it hands them to the rank d
// before it.
Program bruck_all_gather(const Shape& s) {
  Builder b = start("bruck", Coll::all_gather, s);
  const int n = s.nranks, me = s.rank;
  b.step(chunk_of(me, s), {input(0)}, {output(chunk_of(me, s))});
  for (int d = 1; d < n; d *= 2) {
    const auto count = static_cast<uint32_t>(std::min(d, n - d));
    const uint32_t theirs = chunk_of(me + d, s);
    b.step(chunk_of(me, s), {output(chunk_of(me, s))}, {slot(wrap(me - d, n))}, count);
    b.step(theirs, {slot(wrap(me + d, n))}, {output(theirs)}, count);
  }
  return fuse(b.done());
}

// The all-gather backwards: where it received chunks, partial sums of those chunks are sent, and added where
// it sent them. Partial sums lie in scratch: `summed` chunks from this rank's own on; of the others only this
// rank's part is in.
Program bruck_reduce_scatter(const Shape& s) {
  Builder b = start("bruck", Coll::reduce_scatter, s);
  const int n = s.nranks, me = s.rank;
  if (n == 1) {
    b.finish(0, {contribution(0)}, {output(0)});
    return b.done();
  }
  b.use_scratch(static_cast<uint32_t>(n));
  int summed = 0;
  const auto part = [&](int i) {  // what I have of chunk me + i
    const uint32_t c = chunk_of(me + i, s);
    return i < summed ? scratch(c) : contribution(c);
  };
  for (int d = longest_distance(n); d >= 1; d /= 2) {
    const Ref to = slot(wrap(me + d, n)), from = slot(wrap(me - d, n));
    const int count = std::min(d, n - d);
    // A message is read from one place and added in one place: it ends where either would change.
    for (int first = 0, last; first < count; first = last) {
      last = count;
      for (int edge : {summed, summed - d})
        if (first < edge && edge < last) last = edge;
      const auto pieces = static_cast<uint32_t>(last - first);
      b.step(chunk_of(me + d + first, s), {part(d + first)}, {to}, pieces);
      if (d > 1) {
        b.step(chunk_of(me + first, s), {from, part(first)}, {scratch(chunk_of(me + first, s))}, pieces);
      } else {
        b.finish(chunk_of_me(s), {from, part(0)}, {output(0)});
      }
    }
    summed = std::max(summed, count);
  }
  return b.done();
}

Program bruck_all_reduce(const Shape& s) {
  return all_reduce_of(bruck_reduce_scatter(s), bruck_all_gather(s));
}

}  // namespace muster
