#include "parallel/layout_search.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"

namespace muster {
namespace {

constexpr int64_t kLongSequence = 16384;  // from which contexts are split

std::vector<int> divisors(int64_t n, int64_t most) {
  std::vector<int> all;
  for (int64_t d = 1; d <= std::min(n, most); ++d)
    if (n % d == 0) all.push_back(static_cast<int>(d));
  return all;
}

bool is_possible(const Transformer& m, const Training& t) {
  try {
    check(m, t);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Every layout of so many GPUs that divides the model, ZeRO and recompute left open.
std::vector<Training> possible_layouts(const Transformer& m, const Training& wanted, int64_t ranks,
                                       int64_t per_host) {
  std::vector<Training> all;
  const std::vector<int> contexts =
      m.sequence >= kLongSequence ? divisors(m.sequence, 32) : std::vector<int>{1};
  const std::vector<int> experts = m.experts > 0 ? divisors(m.experts, m.experts) : std::vector<int>{1};
  for (const int tp : divisors(m.heads, per_host))
    for (const int cp : contexts)
      for (const int ep : experts)
        for (int pp = 1; pp <= m.layers + 2; ++pp) {
          const int64_t inner = int64_t{tp} * cp * ep * pp;
          if (inner > ranks || ranks % inner != 0) continue;
          Training t = wanted;
          t.sizes = {tp, cp, ep, pp, static_cast<int>(ranks / inner)};
          for (const int64_t micro_batch : {1, 2, 4, 8})
            for (int interleave = 1; interleave <= (pp == 1 ? 1 : 16); ++interleave) {
              t.micro_batch = micro_batch;
              t.interleave = interleave;
              if (is_possible(m, t)) all.push_back(t);
            }
        }
  return all;
}

}  // namespace

LayoutSearch search_layouts(const Transformer& m, const Training& wanted, const GpuSpec& gpu,
                            GroupPrices& prices, size_t most) {
  check(m);
  LayoutSearch found;
  for (Training t : possible_layouts(m, wanted, prices.ranks(), prices.gpus_per_host()))
    for (t.zero = 0; t.zero <= 3; ++t.zero) {
      ++found.possible;
      for (const Recompute r : {Recompute::none, Recompute::selective, Recompute::full}) {
        t.recompute = r;
        if (peak_memory(m, t).use.total() > gpu.memory_bytes()) continue;
        ++found.fit;
        found.ranked.push_back(estimate_training(m, t, gpu, prices));
        break;
      }
    }
  std::stable_sort(
      found.ranked.begin(), found.ranked.end(),
      [](const TrainingEstimate& a, const TrainingEstimate& b) { return a.time.total() < b.time.total(); });
  std::set<std::string> seen;
  std::erase_if(found.ranked,
                [&](const TrainingEstimate& e) { return !seen.insert(to_string(e.training.sizes)).second; });
  if (found.ranked.size() > most) found.ranked.resize(most);
  return found;
}

}  // namespace muster
