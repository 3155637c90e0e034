// What the checker computes with instead of numbers: which ranks' contributions were combined, in which
// order. Equal expressions are the same node, so a program of many ranks needs few.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace muster {

class Symbols {
 public:
  using Node = uint32_t;
  static constexpr Node kNothing = UINT32_MAX;

  explicit Symbols(int nranks);

  Node plain(int rank) const { return static_cast<Node>(rank); }  // rank's data as it is
  Node weighted(int rank) const {
    return static_cast<Node>(nranks_ + rank);
  }  // pre_mul_sum's factor is applied

  // The operands combined left to right, or kNothing with the reason in `why`: each must be free of the
  // others' ranks, weighted, and not yet finished.
  Node combine(std::span<const Node> operands, std::string& why);
  // The complete result, or kNothing with the reason.
  Node finish(Node n, std::string& why);

  bool finished(Node n) const { return nodes_[n].finished; }
  bool is_plain(Node n) const { return n < static_cast<Node>(nranks_); }
  // The left fold by rank over ranks 0..n-1, all in it.
  bool in_rank_order(Node n) const { return nodes_[n].prefix == nranks_; }
  // "(0 + 1) + 2"; long ones are cut.
  std::string text(Node n) const;

 private:
  struct Expression {
    uint32_t first_child = 0, children = 0;  // in children_; a finished node has one: the unfinished one
    int count = 0;                           // contributions
    int prefix = 0;                          // k: it is the left fold of ranks 0..k-1; 0: it is not
    bool finished = false;
  };
  std::span<const Node> children(const Expression& e) const {
    return {children_.data() + e.first_child, e.children};
  }
  std::span<uint64_t> ranks(Node n) { return {ranks_.data() + size_t{n} * words_, words_}; }
  std::string missing(Node n);
  Node find(uint64_t hash, std::span<const Node> operands, bool finished) const;
  Node add(uint64_t hash, std::span<const Node> operands, bool finished);
  void write(Node n, bool nested, std::string& to) const;

  int nranks_;
  size_t words_;
  std::vector<Expression> nodes_;
  std::vector<Node> children_;
  std::vector<uint64_t> ranks_;  // words_ per node: which ranks are in it
  std::unordered_multimap<uint64_t, Node> by_hash_;
};

}  // namespace muster
