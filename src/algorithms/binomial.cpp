// Trees in which a rank, counted from the root, has the parent that lacks its lowest bit: the subtree of rank
// v is v, v + 1, ..., v + lowest bit of v - 1, as far as there are ranks.
#include <algorithm>
#include <bit>

#include "algorithms/families.h"

namespace muster {

namespace {

struct Tree {
  struct Child {
    int rank;
    uint32_t offset;  // of its subtree's first rank from this one
    uint32_t size;    // ranks in its subtree
  };
  int parent = -1;              // rank; -1 at the root
  uint32_t size = 0;            // ranks in this subtree
  std::vector<Child> children;  // largest subtree first

  explicit Tree(const Shape& s) {
    const auto n = static_cast<uint32_t>(s.nranks);
    const auto v = static_cast<uint32_t>(wrap(s.rank - s.root, s.nranks));
    const uint32_t span = v == 0 ? std::bit_ceil(n) : v & (~v + 1);
    size = std::min(span, n - v);
    if (v != 0) parent = wrap(static_cast<int>(v & (v - 1)) + s.root, s.nranks);
    for (uint32_t bit = span / 2; bit >= 1; bit /= 2) {
      if (v + bit < n)
        children.push_back(
            {wrap(static_cast<int>(v + bit) + s.root, s.nranks), bit, std::min(bit, n - v - bit)});
    }
  }
  Refs slots_of_children() const {
    Refs refs;
    for (const Child& c : children) refs.push_back(slot(c.rank));
    return refs;
  }
};

}  // namespace

Program binomial_broadcast(const Shape& s) {
  Builder b = start("binomial", Coll::broadcast, s);
  const Tree t(s);
  b.step(0, {t.parent < 0 ? input(0) : slot(t.parent)}, with(t.slots_of_children(), output(0)));
  return b.done();
}

// Each rank adds its children's sums to its own part, nearest rank first, in one step.
Program binomial_reduce(const Shape& s) {
  Builder b = start("binomial", Coll::reduce, s);
  const Tree t(s);
  Refs from = t.slots_of_children();
  std::reverse(from.begin(), from.end());
  from = with(std::move(from), contribution(0));
  if (t.parent < 0) {
    b.finish(0, from, {output(0)});
  } else {
    b.step(0, from, {slot(t.parent)});
  }
  return b.done();
}

// A subtree's parts travel in one message.
Program binomial_gather(const Shape& s) {
  Builder b = start("binomial", Coll::gather, s);
  const Tree t(s);
  const uint32_t mine = chunk_of_me(s);
  if (t.parent < 0) {
    b.step(mine, {input(0)}, {output(mine)});
    for (const auto& c : t.children)
      b.step(chunk_of(c.rank, s), {slot(c.rank)}, {output(chunk_of(c.rank, s))}, c.size);
  } else if (t.children.empty()) {
    b.step(mine, {input(0)}, {slot(t.parent)});
  } else {
    b.use_scratch(t.size);
    b.step(mine, {input(0)}, {scratch(0)});
    for (const auto& c : t.children) b.step(chunk_of(c.rank, s), {slot(c.rank)}, {scratch(c.offset)}, c.size);
    b.step(mine, {scratch(0)}, {slot(t.parent)}, t.size);
  }
  return b.done();
}

Program binomial_scatter(const Shape& s) {
  Builder b = start("binomial", Coll::scatter, s);
  const Tree t(s);
  const uint32_t mine = chunk_of_me(s);
  if (t.parent < 0) {
    for (const auto& c : t.children)
      b.step(chunk_of(c.rank, s), {input(chunk_of(c.rank, s))}, {slot(c.rank)}, c.size);
    b.step(mine, {input(mine)}, {output(0)});
  } else if (t.children.empty()) {
    b.step(mine, {slot(t.parent)}, {output(0)});
  } else {
    b.use_scratch(t.size);
    b.step(mine, {slot(t.parent)}, {scratch(0)}, t.size);
    for (const auto& c : t.children) b.step(chunk_of(c.rank, s), {scratch(c.offset)}, {slot(c.rank)}, c.size);
    b.step(mine, {scratch(0)}, {output(0)});
  }
  return b.done();
}

}  // namespace muster
