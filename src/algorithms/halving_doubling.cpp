// Exchanges with partners at distances 1, 2, 4, ...: logarithmically many. They need a power of two of ranks;
// what is more is folded in: of the first ranks, each odd one hands its data to the even one before it and
// gets the result back.
#include <bit>

#include "algorithms/families.h"

namespace muster {

namespace {

// The ranks that take part, numbered 0..size-1.
struct Fold {
  int size;         // the largest power of two <= nranks
  int extra;        // ranks folded in: 1, 3, ..., 2 * extra - 1
  int id = -1;      // this rank's number; -1 if it is folded in
  int folded = -1;  // even rank with a rank folded into it: that one; folded rank: the one it is folded into

  explicit Fold(const Shape& s)
      : size(static_cast<int>(std::bit_floor(static_cast<unsigned>(s.nranks)))), extra(s.nranks - size) {
    if (s.rank >= 2 * extra) {
      id = s.rank - extra;
    } else {
      folded = s.rank ^ 1;
      if (s.rank % 2 == 0) id = s.rank / 2;
    }
  }
  int rank_of(int i) const { return i < extra ? 2 * i : i + extra; }
};

// Both partners write the sum in the same order, so they get the same bits.
Refs ordered(bool mine_first, const Ref& mine, const Ref& theirs) {
  return mine_first ? Refs{mine, theirs} : Refs{theirs, mine};
}

// Hands everything to the partner and takes the result from it.
Program folded_in(Builder b, const Fold& f, uint32_t chunks) {
  b.step(0, {contribution(0)}, {slot(f.folded)}, chunks);
  b.step(0, {slot(f.folded)}, {output(0)}, chunks);
  return b.done();
}

}  // namespace

// Partners exchange all they have and both add. Few, large messages: for small data.
Program doubling_all_reduce(const Shape& s) {
  Builder b = start("doubling", Coll::all_reduce, s);
  const Fold f(s);
  if (f.id < 0) return folded_in(std::move(b), f, 1);
  if (f.size == 1) {
    b.finish(0, {contribution(0)}, {output(0)});
    return b.done();
  }

  Ref sum = contribution(0);
  if (f.folded >= 0) {
    b.step(0, {contribution(0), slot(f.folded)}, {output(0)});
    sum = output(0);
  }
  for (int distance = 1; distance < f.size; distance *= 2) {
    const int other = f.id ^ distance;
    const Ref partner = slot(f.rank_of(other));
    b.step(0, {sum}, {partner});
    const Refs both = ordered(f.id < other, sum, partner);
    if (2 * distance == f.size) {
      b.finish(0, both, {output(0)});
    } else {
      b.step(0, both, {output(0)});
    }
    sum = output(0);
  }
  if (f.folded >= 0) b.step(0, {output(0)}, {slot(f.folded)});
  return fuse(b.done());
}

// Halving: partners split the range they share, each adds up one half. Doubling: the same exchanges
// backwards.
Program halving_doubling_all_reduce(const Shape& s) {
  const Fold f(s);
  const auto size = static_cast<uint32_t>(f.size);
  Builder b = start("halving_doubling", Coll::all_reduce, s, size);
  if (f.id < 0) return folded_in(std::move(b), f, size);
  if (size == 1) {
    b.finish(0, {contribution(0)}, {output(0)});
    return b.done();
  }

  const auto id = static_cast<uint32_t>(f.id);
  Ref (*sum)(uint32_t) = contribution;
  if (f.folded >= 0) {
    b.step(0, {contribution(0), slot(f.folded)}, {output(0)}, size);
    sum = output;
  }
  for (uint32_t half = size / 2; half >= 1; half /= 2) {
    const uint32_t keep = id & ~(half - 1), give = keep ^ half;  // first chunks of my half and of the other
    const Ref partner = slot(f.rank_of(static_cast<int>(id ^ half)));
    b.step(give, {sum(give)}, {partner}, half);
    const Refs both = ordered(keep < give, sum(keep), partner);
    if (half == 1) {
      b.finish(keep, both, {output(keep)}, half);
    } else {
      b.step(keep, both, {output(keep)}, half);
    }
    sum = output;
  }
  for (uint32_t half = 1; half < size; half *= 2) {
    const uint32_t have = id & ~(half - 1), get = have ^ half;
    const Ref partner = slot(f.rank_of(static_cast<int>(id ^ half)));
    b.step(have, {output(have)}, {partner}, half);
    b.step(get, {partner}, {output(get)}, half);
  }
  if (f.folded >= 0) b.step(0, {output(0)}, {slot(f.folded)}, size);
  return fuse(b.done());
}

}  // namespace muster
