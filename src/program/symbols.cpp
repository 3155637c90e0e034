#include "program/symbols.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/math.h"

namespace muster {

Symbols::Symbols(int nranks) : nranks_(nranks), words_(ceil_div(static_cast<size_t>(nranks), 64)) {
  nodes_.resize(2 * static_cast<size_t>(nranks));
  ranks_.resize(nodes_.size() * words_);
  for (int r = 0; r < nranks; ++r) {
    for (const Node n : {plain(r), weighted(r)}) {
      nodes_[n].count = 1;
      nodes_[n].prefix = r == 0 ? 1 : 0;
      ranks(n)[static_cast<size_t>(r) / 64] |= uint64_t{1} << (r % 64);
    }
  }
}

Symbols::Node Symbols::find(uint64_t hash, std::span<const Node> operands, bool finished) const {
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto i = begin; i != end; ++i) {
    const Expression& e = nodes_[i->second];
    if (e.finished == finished && std::ranges::equal(children(e), operands)) return i->second;
  }
  return kNothing;
}

Symbols::Node Symbols::add(uint64_t hash, std::span<const Node> operands, bool finished) {
  Expression e;
  e.first_child = static_cast<uint32_t>(children_.size());
  e.children = static_cast<uint32_t>(operands.size());
  e.finished = finished;
  children_.insert(children_.end(), operands.begin(), operands.end());
  const auto n = static_cast<Node>(nodes_.size());
  nodes_.push_back(e);
  ranks_.resize(ranks_.size() + words_);
  by_hash_.emplace(hash, n);
  return n;
}

Symbols::Node Symbols::combine(std::span<const Node> operands, std::string& why) {
  if (operands.size() == 1) return operands[0];
  uint64_t hash = operands.size();
  for (const Node o : operands) hash = hash_combine(hash, o);
  if (const Node known = find(hash, operands, false); known != kNothing) return known;

  for (const Node o : operands) {
    if (nodes_[o].finished) {
      why = fmt::format("an operand that is not complete yet, found the complete result {}", text(o));
      return kNothing;
    }
    if (is_plain(o)) {
      why = fmt::format("rank {}'s contribution with its factor applied (raw), found it without", o);
      return kNothing;
    }
  }
  const Node n = add(hash, operands, false);
  int prefix = nodes_[operands[0]].prefix, count = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Node o = operands[i];
    count += nodes_[o].count;
    for (size_t w = 0; w < words_; ++w) {
      const uint64_t twice = ranks(n)[w] & ranks(o)[w];
      if (twice != 0) {
        why = fmt::format("each contribution once, found rank {}'s twice in {}",
                          w * 64 + static_cast<size_t>(__builtin_ctzll(twice)), text(n));
        return kNothing;
      }
      ranks(n)[w] |= ranks(o)[w];
    }
    if (i > 0) prefix = prefix > 0 && prefix < nranks_ && o == weighted(prefix) ? prefix + 1 : 0;
  }
  nodes_[n].count = count;
  nodes_[n].prefix = prefix;
  return n;
}

Symbols::Node Symbols::finish(Node n, std::string& why) {
  const uint64_t hash = hash_combine(0, n);
  const std::span<const Node> operand(&n, 1);
  if (const Node known = find(hash, operand, true); known != kNothing) return known;
  if (nodes_[n].finished) {
    why = fmt::format("a result that is not marked complete yet, found one that was completed before: {}",
                      text(n));
  } else if (is_plain(n)) {
    why = fmt::format("rank {}'s contribution with its factor applied (raw), found it without", n);
  } else if (nodes_[n].count != nranks_) {
    why = fmt::format("the contributions of all {} ranks, found {} ({})", nranks_, text(n), missing(n));
  } else {
    const Node done = add(hash, operand, true);
    nodes_[done].count = nodes_[n].count;
    nodes_[done].prefix = nodes_[n].prefix;
    std::ranges::copy(ranks(n), ranks(done).begin());
    return done;
  }
  return kNothing;
}

std::string Symbols::missing(Node n) {
  std::vector<int> without;
  for (int r = 0; r < nranks_; ++r)
    if (!(ranks(n)[static_cast<size_t>(r) / 64] >> (r % 64) & 1)) without.push_back(r);
  const bool cut = without.size() > 8;
  if (cut) without.resize(8);
  return fmt::format("rank {}{} missing", fmt::join(without, ", "), cut ? ", ..." : "");
}

std::string Symbols::text(Node n) const {
  if (n == kNothing) return "nothing";
  std::string s;
  write(n, false, s);
  if (nodes_[n].finished) s += ", complete";
  return s;
}

void Symbols::write(Node n, bool nested, std::string& to) const {
  constexpr size_t kLongest = 120;
  if (to.size() > kLongest) {
    if (!to.ends_with("...")) to += "...";
    return;
  }
  const auto leaves = static_cast<Node>(nranks_);
  if (n < 2 * leaves) {
    to += fmt::format("{}", n % leaves);
    return;
  }
  const Expression& e = nodes_[n];
  if (e.finished) return write(children(e)[0], nested, to);
  if (nested) to += '(';
  bool first = true;
  for (const Node c : children(e)) {
    if (!first) to += " + ";
    first = false;
    write(c, true, to);
    if (to.ends_with("...")) return;
  }
  if (nested) to += ')';
}

}  // namespace muster
