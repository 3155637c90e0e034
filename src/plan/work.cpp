#include "plan/work.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

namespace muster {
namespace {

double log2_up(int n) { return n <= 1 ? 0 : std::bit_width(static_cast<unsigned>(n - 1)); }

// Everybody's messages, alike for all: `bytes` that a rank sends, to any other rank equally likely.
void spread_evenly(Work& w, const Spread& s, double bytes) {
  const double others = s.ranks - 1;
  if (others == 0) return;
  w.near_bytes = bytes * (s.per_host - 1) / others;
  w.far_bytes = s.per_host * bytes * (s.ranks - s.per_host) / others;
}

// `steps` messages along a ring, each of `bytes`; each host is entered and left once.
void along_ring(Work& w, const Spread& s, double steps, double bytes) {
  w.ring = w.flows = true;
  w.far_rounds = s.hosts > 1 ? std::round(steps / s.ranks * s.hosts) : 0;
  w.near_rounds = steps - w.far_rounds;
  w.near_bytes = s.per_host > 1 ? bytes : 0;
  w.far_bytes = s.hosts > 1 ? bytes : 0;
}

// Rounds of a message to or from everybody.
void round_of_all(Work& w, const Spread& s, double rounds) {
  (s.hosts > 1 ? w.far_rounds : w.near_rounds) += rounds;
  w.near_messages += rounds * (s.per_host - 1);
  w.far_messages += rounds * (s.ranks - s.per_host);
}

// Partners at distances that are powers of two are on the same host for the short ones, if hosts are full and
// their ranks a power of two; else all are taken to be on other hosts.
bool by_hosts(const Spread& s) {
  return s.hosts == 1 || (s.in_order && s.ranks == s.hosts * s.per_host &&
                          std::has_single_bit(static_cast<unsigned>(s.per_host)));
}
double near_levels(const Spread& s, double levels) {
  return by_hosts(s) ? std::min(levels, log2_up(s.per_host)) : 0;
}

// Messages to ranks at distances 1, 2, 4 ...
void log_rounds(Work& w, const Spread& s, double times) {
  const double all = log2_up(s.ranks), near = near_levels(s, all);
  w.near_rounds += times * near;
  w.far_rounds += times * (all - near);
}

struct Sizes {
  double n, data, chunk;  // ranks, bytes of all data, of a part per rank
};

// Double trees send as many messages one after the other as a tree is deep.
double tree_rounds(int nodes) { return log2_up(nodes); }

// Bytes that pass a node of double trees in one direction while an all-reduce of `bytes` goes up and down:
// inner nodes of one tree are leaves of the other, and have two children where there are enough.
double tree_bytes(int nodes, double bytes) {
  return nodes == 1 ? 0 : nodes == 2 ? bytes : nodes == 3 ? 1.5 * bytes : 2 * bytes;
}
// The same in messages, each of half of the data.
double tree_messages(int nodes) { return tree_bytes(nodes, 2); }
// Bytes that an inner node adds: a half from each child; of two nodes the root of both trees.
double tree_combined(int nodes, double bytes) { return nodes == 1 ? 0 : bytes; }

std::optional<Work> all_reduce(std::string_view name, const Spread& s, const Sizes& b) {
  Work w;
  w.combined = (b.n - 1) * b.chunk;
  w.longest_far = b.chunk;
  if (name == "one_shot") {
    w.combined = (b.n - 1) * b.data;
    w.longest_far = b.data;
    round_of_all(w, s, 1);
    spread_evenly(w, s, (b.n - 1) * b.data);
  } else if (name == "direct") {
    round_of_all(w, s, 2);
    spread_evenly(w, s, 2 * (b.n - 1) * b.chunk);
  } else if (name == "ring") {
    along_ring(w, s, 2 * (b.n - 1), 2 * (b.n - 1) * b.chunk);
  } else if (name == "doubling") {
    const double fold = std::has_single_bit(static_cast<unsigned>(s.ranks)) ? 0 : 2;
    const double levels = std::floor(std::log2(b.n)), near = near_levels(s, levels);
    const double near_fold = by_hosts(s) ? fold : 0, far_fold = fold - near_fold;
    w.near_rounds = near + near_fold;
    w.far_rounds = levels - near + far_fold;
    w.near_bytes = (near + near_fold / 2) * b.data;
    w.far_bytes = s.per_host * (levels - near + far_fold / 2) * b.data;
    w.combined = (levels + fold / 2) * b.data;
    w.longest_far = b.data;
  } else if (name == "halving_doubling") {
    const double fold = std::has_single_bit(static_cast<unsigned>(s.ranks)) ? 0 : 2;
    const double size = std::exp2(std::floor(std::log2(b.n)));
    log_rounds(w, s, 2);
    w.near_rounds += fold;
    // The farther the partner, the more there is to halve: the first exchange takes half of the data.
    const double hosts = std::min(size, std::exp2(std::floor(std::log2(s.hosts))));
    w.far_bytes = s.per_host * 2 * b.data * (1 - 1 / hosts);
    w.near_bytes = 2 * b.data / hosts * (1 - hosts / size) + fold / 2 * b.data;
    w.combined = (1 - 1 / size + fold / 2) * b.data;
    w.longest_far = fold > 0 ? b.data : b.data / 2;
  } else if (name == "bruck") {
    log_rounds(w, s, 2);
    spread_evenly(w, s, 2 * (b.n - 1) * b.chunk);
    w.longest_far = b.data / 2;
  } else if (name == "tree" && s.hosts == 1) {  // each rank is a node
    w.tree = true;
    w.near_messages = tree_messages(s.ranks);
    w.combined = tree_combined(s.ranks, b.data);
    w.near_rounds = 2 * tree_rounds(s.ranks);
    w.near_bytes = tree_bytes(s.ranks, b.data);
  } else if (name == "hierarchical" || name == "tree") {
    // A rail's member collects its part from all ranks of its host, and gives it to all.
    const double g = s.per_host, k = s.hosts, rails = s.rails();
    w.tree = name == "tree";
    w.near_rounds = g > 1 ? 2 : 0;
    w.far_rounds = w.tree ? 2 * tree_rounds(s.hosts) : 2 * (k - 1);
    w.near_bytes = 2 * (g - 1) / rails * b.data;
    w.far_bytes = w.tree ? tree_bytes(s.hosts, b.data) : 2 * (k - 1) / k * b.data;
    w.near_messages = 2 * (g - 1) * (w.tree ? 2 : k);
    w.far_messages = w.tree ? tree_messages(s.hosts) : 2 * (k - 1);
    w.longest_far = b.data / rails / (w.tree ? 2 : k);
    w.combined = (g - 1) / rails * b.data +
                 (w.tree ? tree_combined(s.hosts, b.data / rails) : (k - 1) / k * b.data / rails);
  } else {
    return std::nullopt;
  }
  return w;
}

std::optional<Work> gather_or_scatter_of_all(std::string_view name, bool combines, const Spread& s,
                                             const Sizes& b) {
  Work w;
  w.combined = combines ? (b.n - 1) * b.chunk : 0;
  w.longest_far = b.chunk;
  if (name == "direct") {
    round_of_all(w, s, 1);
    spread_evenly(w, s, (b.n - 1) * b.chunk);
  } else if (name == "ring") {
    along_ring(w, s, b.n - 1, (b.n - 1) * b.chunk);
  } else if (name == "bruck") {
    log_rounds(w, s, 1);
    spread_evenly(w, s, (b.n - 1) * b.chunk);
    w.longest_far = b.data / 2;
  } else if (name == "hierarchical") {
    const double g = s.per_host, k = s.hosts, rails = s.rails();
    const double of_rail = std::ceil(b.n / rails);  // chunks, of all hosts
    w.near_rounds = g > 1 ? (combines ? 1 : 2) : 0;
    w.far_rounds = k - 1;
    // A rail's member collects all its chunks from each of its host; or each gives its own to its host, and
    // rails' members what came from others, which is more on a smaller host.
    const auto given = [&](double ranks) { return (ranks - 1) * (1 + std::ceil((b.n - ranks) / rails)); };
    w.near_bytes = (combines ? (g - 1) * of_rail : std::max(given(g), given(rails))) * b.chunk;
    w.far_bytes = rails * (of_rail - 1) * b.chunk;
    w.near_messages = k * (g - 1);
    w.far_messages = k - 1;
    if (combines) w.combined = (k * (g - 1) + k - 1) * b.chunk;
  } else {
    return std::nullopt;
  }
  return w;
}

std::optional<Work> broadcast_or_reduce(std::string_view name, bool combines, const Spread& s,
                                        const Sizes& b) {
  Work w;
  w.longest_far = b.data;
  w.combined = combines ? b.data : 0;
  if (name == "direct") {  // the root's links carry all
    w.combined *= b.n - 1;
    round_of_all(w, s, 1);
    w.near_bytes = (s.per_host - 1) * b.data;
    w.far_bytes = (b.n - s.per_host) * b.data;
    w.far_ranks = 1;
  } else if (name == "binomial") {
    log_rounds(w, s, 1);
    const double near = near_levels(s, log2_up(s.ranks));
    w.near_bytes = near * b.data;
    w.far_bytes = (log2_up(s.ranks) - near) * b.data;
    w.far_ranks = 1;
    w.combined *= log2_up(s.ranks);
  } else if (name == "chain") {
    along_ring(w, s, b.n - 1, b.data);
    w.near_messages = s.per_host > 1 ? 1 : 0;
    w.far_messages = s.hosts > 1 ? 1 : 0;
  } else if (name == "scatter_gather") {
    round_of_all(w, s, 2);
    w.longest_far = b.chunk;
    w.combined *= (b.n - 1) / b.n;
    // The root's links carry its slices and, as everybody's, one slice to or from each.
    w.near_bytes = (s.per_host - 1) * b.chunk * (combines ? 1 : 2);
    w.far_bytes =
        (s.hosts > 1 ? 1 : 0) * ((b.n - s.per_host) * b.chunk + s.per_host * (b.n - s.per_host) * b.chunk);
    if (combines) {
      w.near_bytes *= 2;  // all slices come in, then all results
    }
  } else if (name == "tree" && s.hosts == 1) {
    w.tree = true;
    w.near_rounds = tree_rounds(s.ranks);
    w.near_bytes = b.data;
    w.near_messages = 2;
    if (combines) w.combined = tree_combined(s.ranks, b.data);
  } else if (name == "hierarchical" || name == "tree") {
    const double g = s.per_host, k = s.hosts;
    w.tree = name == "tree";
    w.near_rounds = g > 1 ? (combines ? 2 : 3) : 0;
    w.far_rounds = w.tree ? tree_rounds(s.hosts) : k - 1;
    w.near_bytes =
        2 * (g - 1) / g * b.data;  // the root's: parts out to all, then as everybody's; or in from all twice
    w.far_bytes = k > 1 ? b.data : 0;
    w.near_messages = 2 * (g - 1) * (w.tree ? 2 : 1);
    w.far_messages = k > 1 ? (w.tree ? 2 : 1) : 0;
    w.longest_far = b.data / g / (w.tree ? 2 : 1);
    if (combines) w.combined = (g - 1) / g * b.data + (k > 1 ? b.data / g : 0);
  } else {
    return std::nullopt;
  }
  return w;
}

std::optional<Work> rooted_parts(std::string_view name, const Spread& s, const Sizes& b) {
  Work w;
  w.near_bytes = (s.per_host - 1) * b.chunk;
  w.far_bytes = (b.n - s.per_host) * b.chunk;
  w.far_ranks = 1;
  w.longest_far = b.chunk;
  if (name == "direct") {
    round_of_all(w, s, 1);
  } else if (name == "binomial") {
    log_rounds(w, s, 1);
    w.longest_far = b.data / 2;
  } else {
    return std::nullopt;
  }
  return w;
}

std::optional<Work> counted(const Algorithm& a, const Spread& s, double data) {
  const std::string_view name = a.name;
  const Sizes b{static_cast<double>(s.ranks), data, data / s.ranks};
  switch (a.coll) {
    case Coll::all_reduce:
      return all_reduce(name, s, b);
    case Coll::reduce_scatter:
      return gather_or_scatter_of_all(name, true, s, b);
    case Coll::all_gather:
      return gather_or_scatter_of_all(name, false, s, b);
    case Coll::broadcast:
      return broadcast_or_reduce(name, false, s, b);
    case Coll::reduce:
      return broadcast_or_reduce(name, true, s, b);
    case Coll::all_to_all: {
      Work w;
      if (name == "hierarchical") {
        const double g = s.per_host, k = s.hosts, rails = s.rails();
        const double others = b.n - g, of_rail = std::ceil(g / rails);  // chunks to those at one place
        w.near_rounds = g > 1 ? 2 : 0;
        w.far_rounds = k > 1 ? 1 : 0;
        // From all of the host for the rail; then what came in for those who have no rail.
        w.near_bytes = ((g - 1) * (1 + std::ceil(others / rails)) + (of_rail - 1) * others) * b.chunk;
        w.far_bytes = rails * std::max(others * of_rail, g * std::ceil(others / rails)) * b.chunk;
        w.near_messages = k * (g - 1);
        w.far_messages = g * (k - 1);
        w.longest_far = b.chunk;
        return w;
      }
      if (name != "pairwise") return std::nullopt;
      w.longest_far = b.chunk;
      round_of_all(w, s, 1);
      spread_evenly(w, s, (b.n - 1) * b.chunk);
      return w;
    }
    case Coll::gather:
    case Coll::scatter:
      return rooted_parts(name, s, b);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<Work> work_of(const Algorithm& a, const Spread& s, double data) {
  if (a.windows) return std::nullopt;
  if (s.ranks == 1) return Work{};
  std::optional<Work> w = counted(a, s, data);
  if (w && w->near_messages + w->far_messages == 0) {  // one in each round
    w->near_messages = w->near_rounds;
    w->far_messages = w->far_rounds;
  }
  return w;
}

}  // namespace muster
