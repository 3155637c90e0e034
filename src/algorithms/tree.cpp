// Two binary trees, each for half of the data. Every rank but the root has children in one of them at most, so that it
// sends and receives the data once each way, while a single tree leaves half of the ranks with nothing to pass on:
// P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
// Computing 35 (2009).
#include <algorithm>
#include <array>
#include <bit>

#include "algorithms/families.h"

namespace muster {

namespace {

struct Node {
  uint32_t half;    // the chunk that its tree carries
  Ref parent;       // none at the root
  Refs children;    // two at most
};

// Ranks are numbered from the root, which is 0. The others form a tree in which odd numbers are leaves and a parent's lowest
// bit is one higher than its children's; where it would be out of range the lowest bit is cleared instead. The root has
// one child. In the second tree the others are numbered backwards if they are even in number, else one farther.
class Trees {
 public:
  explicit Trees(const Shape& s) : s_(s), n_(static_cast<uint32_t>(s.nranks)) {}

  bool is_root() const { return s_.rank == s_.root; }
  // This rank's node of each tree: first where it is a leaf. What a leaf sends up waits for nobody, and so nobody waits in
  // a circle.
  std::array<Node, 2> leaf_first() const {
    std::array<Node, 2> nodes = {node(0), node(1)};
    std::ranges::stable_sort(nodes, {}, [](const Node& x) { return x.children.size(); });
    return nodes;
  }
  // The other way about: what comes down is passed on first.
  std::array<Node, 2> leaf_last() const {
    std::array<Node, 2> nodes = {node(0), node(1)};
    std::ranges::stable_sort(nodes, std::ranges::greater(), [](const Node& x) { return x.children.size(); });
    return nodes;
  }

 private:
  Node node(uint32_t tree) const {
    const uint32_t v = place(static_cast<uint32_t>(wrap(s_.rank - s_.root, s_.nranks)), tree);
    Node x{tree, {}, {}};
    const auto slot_of = [&](uint32_t place) { return slot(wrap(static_cast<int>(number(place, tree)) + s_.root, s_.nranks)); };
    if (v == 0) {
      if (n_ > 1) x.children.push_back(slot_of(std::bit_floor(n_ - 1)));
      return x;
    }
    const uint32_t low = v & (~v + 1), up = (v ^ low) | low << 1;
    x.parent = slot_of(up < n_ ? up : v ^ low);
    if (low > 1) x.children.push_back(slot_of(v - low / 2));
    for (uint32_t down = low / 2; down > 0; down /= 2) {
      if (v + down >= n_) continue;
      x.children.push_back(slot_of(v + down));
      break;
    }
    return x;
  }
  uint32_t place(uint32_t number, uint32_t tree) const {
    if (tree == 0 || number == 0) return number;
    return n_ % 2 ? n_ - number : number % (n_ - 1) + 1;
  }
  uint32_t number(uint32_t place, uint32_t tree) const {
    if (tree == 0 || place == 0) return place;
    return n_ % 2 ? n_ - place : (place + n_ - 3) % (n_ - 1) + 1;
  }

  const Shape s_;
  uint32_t n_;
};

Refs sum_of(const Node& x) { return with(x.children, contribution(x.half)); }

}  // namespace

Program double_tree_broadcast(const Shape& s) {
  Builder b = start("tree", Coll::broadcast, s, 2);
  const Trees trees(s);
  for (const Node& x : trees.leaf_last())
    b.step(x.half, {trees.is_root() ? input(x.half) : x.parent}, with(x.children, output(x.half)));
  return b.done();
}

Program double_tree_reduce(const Shape& s) {
  Builder b = start("tree", Coll::reduce, s, 2);
  const Trees trees(s);
  for (const Node& x : trees.leaf_first()) {
    if (trees.is_root())
      b.finish(x.half, sum_of(x), {output(x.half)});
    else
      b.step(x.half, sum_of(x), {x.parent});
  }
  return b.done();
}

// Sums go up to the root, here rank 0, and results down again.
Program double_tree_all_reduce(const Shape& s) {
  Builder b = start("tree", Coll::all_reduce, s, 2);
  const Trees trees({s.nranks, s.rank, 0});
  if (s.rank == 0) {
    for (const Node& x : trees.leaf_first()) b.finish(x.half, sum_of(x), with(x.children, output(x.half)));
    return b.done();
  }
  for (const Node& x : trees.leaf_first()) b.step(x.half, sum_of(x), {x.parent});
  for (const Node& x : trees.leaf_last()) b.step(x.half, {x.parent}, with(x.children, output(x.half)));
  return b.done();
}

}  // namespace muster
