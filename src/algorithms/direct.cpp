// Everybody talks to everybody. Two message delays at most, and each result is combined in one step in rank
// order: it is rounded once, and its bits don't depend on who owns it.
#include "algorithms/families.h"

namespace muster {

// Each rank sends all it has to all others and combines everything itself.
Program one_shot_all_reduce(const Shape& s) {
  Builder b = start("one_shot", Coll::all_reduce, s);
  b.step(0, {contribution(0)}, slots_of_others(s));
  b.finish(0, by_rank(s, contribution(0)), {output(0)});
  return b.done();
}

// Chunk c goes to its owner, rank c.
Program direct_reduce_scatter(const Shape& s) {
  Builder b = start("direct", Coll::reduce_scatter, s);
  for (const Ref& to : slots_of_others(s)) {
    const auto c = static_cast<uint32_t>(to.peer);
    b.step(c, {contribution(c)}, {to});
  }
  b.finish(chunk_of_me(s), by_rank(s, contribution(chunk_of_me(s))), {output(0)});
  return b.done();
}

Program direct_all_gather(const Shape& s) {
  Builder b = start("direct", Coll::all_gather, s);
  b.step(chunk_of_me(s), {input(0)}, with(slots_of_others(s), output(chunk_of_me(s))));
  for (int i = 1; i < s.nranks; ++i) {
    const int from = peer_behind(s, i);  // in the order in which the others send
    const auto c = static_cast<uint32_t>(from);
    b.step(c, {slot(from)}, {output(c)});
  }
  return b.done();
}

Program direct_all_reduce(const Shape& s) {
  return all_reduce_of(direct_reduce_scatter(s), direct_all_gather(s));
}

Program direct_broadcast(const Shape& s) {
  Builder b = start("direct", Coll::broadcast, s);
  if (s.rank == s.root) {
    b.step(0, {input(0)}, with(slots_of_others(s), output(0)));
  } else {
    b.step(0, {slot(s.root)}, {output(0)});
  }
  return b.done();
}

Program direct_reduce(const Shape& s) {
  Builder b = start("direct", Coll::reduce, s);
  if (s.rank == s.root) {
    b.finish(0, by_rank(s, contribution(0)), {output(0)});
  } else {
    b.step(0, {contribution(0)}, {slot(s.root)});
  }
  return b.done();
}

Program direct_gather(const Shape& s) {
  Builder b = start("direct", Coll::gather, s);
  if (s.rank == s.root) {
    b.step(chunk_of_me(s), {input(0)}, {output(chunk_of_me(s))});
    for (const Ref& from : slots_of_others(s)) {
      const auto c = static_cast<uint32_t>(from.peer);
      b.step(c, {from}, {output(c)});
    }
  } else {
    b.step(chunk_of_me(s), {input(0)}, {slot(s.root)});
  }
  return b.done();
}

Program direct_scatter(const Shape& s) {
  Builder b = start("direct", Coll::scatter, s);
  if (s.rank == s.root) {
    for (const Ref& to : slots_of_others(s)) {
      const auto c = static_cast<uint32_t>(to.peer);
      b.step(c, {input(c)}, {to});
    }
    b.step(chunk_of_me(s), {input(chunk_of_me(s))}, {output(0)});
  } else {
    b.step(chunk_of_me(s), {slot(s.root)}, {output(0)});
  }
  return b.done();
}

// All sends come before the first receive, so no order of ranks can block, and in place nothing is
// overwritten unsent.
Program pairwise_all_to_all(const Shape& s) {
  Builder b = start("pairwise", Coll::all_to_all, s);
  for (const Ref& to : slots_of_others(s))
    b.step(chunk_between(s.rank, to.peer, s), {input(static_cast<uint32_t>(to.peer))}, {to});
  b.step(chunk_between(s.rank, s.rank, s), {input(chunk_of_me(s))}, {output(chunk_of_me(s))});
  for (int i = 1; i < s.nranks; ++i) {
    const int from = peer_behind(s, i);
    b.step(chunk_between(from, s.rank, s), {slot(from)}, {output(static_cast<uint32_t>(from))});
  }
  return b.done();
}

// Rank r's shard of the reduce-scatter is chunk r of the result, and what the all-gather starts from.
Program all_reduce_of(Program reduce_scatter, Program all_gather) {
  const auto shard = static_cast<uint32_t>(reduce_scatter.rank);
  Program p = append(rename_buffer(std::move(reduce_scatter), kOutput, kOutput, shard),
                     rename_buffer(std::move(all_gather), kInput, kOutput, shard));
  p.coll = Coll::all_reduce;
  set_chunks(p, static_cast<uint32_t>(p.nranks));
  return fuse(std::move(p));
}

}  // namespace muster
