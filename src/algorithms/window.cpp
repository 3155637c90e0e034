// Ranks load and store each other's buffers; nothing passes through slots but tokens. The executor sees to it
// that all ranks have entered the call before; the tokens at the end see to it that no rank leaves while
// others use its buffers.
#include "algorithms/families.h"

namespace muster {

namespace {

// One reference per rank, by rank, to chunk `chunk` of its buffer: `mine` for this one.
Refs windows_by_rank(const Shape& s, uint16_t buffer, uint32_t chunk, const Ref& mine) {
  Refs refs;
  for (int r = 0; r < s.nranks; ++r) refs.push_back(r == s.rank ? mine : window(r, buffer, chunk));
  return refs;
}

Program all_leave_together(Builder b, const Shape& s) {
  b.tokens({}, slots_of_others(s));
  b.tokens(slots_of_others(s), {});
  return b.done();
}

// The root's buffers are used, the others' are not.
Program root_leaves_last(Builder b, const Shape& s) {
  if (s.rank == s.root) {
    b.tokens(slots_of_others(s), {});
  } else {
    b.tokens({}, {slot(s.root)});
  }
  return b.done();
}

}  // namespace

// The owner of a chunk reads it everywhere and writes the result everywhere.
Program window_all_reduce(const Shape& s) {
  Builder b = start("window", Coll::all_reduce, s, static_cast<uint32_t>(s.nranks));
  const uint32_t c = chunk_of_me(s);
  b.finish(c, windows_by_rank(s, kInput, c, contribution(c)), windows_by_rank(s, kOutput, c, output(c)));
  return all_leave_together(std::move(b), s);
}

Program window_reduce_scatter(const Shape& s) {
  Builder b = start("window", Coll::reduce_scatter, s);
  const uint32_t c = chunk_of_me(s);
  b.finish(c, windows_by_rank(s, kInput, c, contribution(c)), {output(0)});
  return all_leave_together(std::move(b), s);
}

Program window_all_gather(const Shape& s) {
  Builder b = start("window", Coll::all_gather, s);
  b.step(chunk_of_me(s), {input(0)}, {output(chunk_of_me(s))});
  for (const Ref& other : slots_of_others(s)) {
    const auto c = static_cast<uint32_t>(other.peer);
    b.step(c, {window(other.peer, kInput, 0)}, {output(c)});
  }
  return all_leave_together(std::move(b), s);
}

Program window_broadcast(const Shape& s) {
  Builder b = start("window", Coll::broadcast, s);
  b.step(0, {s.rank == s.root ? input(0) : window(s.root, kInput, 0)}, {output(0)});
  return root_leaves_last(std::move(b), s);
}

// The owner of a slice reads it everywhere and writes the result at the root.
Program window_reduce(const Shape& s) {
  Builder b = start("window", Coll::reduce, s, static_cast<uint32_t>(s.nranks));
  const uint32_t c = chunk_of_me(s);
  b.finish(c, windows_by_rank(s, kInput, c, contribution(c)),
           {s.rank == s.root ? output(c) : window(s.root, kOutput, c)});
  return all_leave_together(std::move(b), s);
}

// Not in place: a rank would overwrite what others have yet to read.
Program window_all_to_all(const Shape& s) {
  Builder b = start("window", Coll::all_to_all, s);
  b.step(chunk_between(s.rank, s.rank, s), {input(chunk_of_me(s))}, {output(chunk_of_me(s))});
  for (const Ref& other : slots_of_others(s))
    b.step(chunk_between(other.peer, s.rank, s), {window(other.peer, kInput, chunk_of_me(s))},
           {output(static_cast<uint32_t>(other.peer))});
  return all_leave_together(std::move(b), s);
}

Program window_gather(const Shape& s) {
  Builder b = start("window", Coll::gather, s);
  b.step(chunk_of_me(s), {input(0)},
         {s.rank == s.root ? output(chunk_of_me(s)) : window(s.root, kOutput, chunk_of_me(s))});
  return root_leaves_last(std::move(b), s);
}

Program window_scatter(const Shape& s) {
  Builder b = start("window", Coll::scatter, s);
  b.step(chunk_of_me(s), {s.rank == s.root ? input(chunk_of_me(s)) : window(s.root, kInput, chunk_of_me(s))},
         {output(0)});
  return root_leaves_last(std::move(b), s);
}

}  // namespace muster
