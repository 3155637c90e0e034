#include "comm/nccl_algo.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace muster {
namespace {

constexpr std::array<std::string_view, 8> kNcclAlgorithms = {"tree", "ring", "collnetdirect", "collnetchain", "collnet", "nvls", "nvlstree", "pat"};
constexpr std::array<std::string_view, 8> kNcclFunctions = {"allreduce", "broadcast", "reduce", "allgather", "reducescatter", "alltoall", "gather", "scatter"};

template <class Words>
std::string known(std::string_view text, std::string_view word, const char* what, const Words& words) {
  const std::string small = lower(trim(word));
  if (std::find(words.begin(), words.end(), small) == words.end())
    fail(Result::invalid_usage, "NCCL_ALGO='{}': '{}' is no {} of NCCL's. There are: {}. Correct or unset it", printable(text, 200), printable(word, 60),
         what, fmt::join(words, ", "));
  return small;
}

}  // namespace

NcclAlgo read_nccl_algo(const std::string& text) {
  NcclAlgo r;
  const std::vector<std::string_view> entries = split(text, ';');
  for (size_t i = 0; i < entries.size(); ++i) {
    std::string_view list = trim(entries[i]);
    if (list.empty()) continue;
    std::string function;
    if (const size_t colon = list.find(':'); colon != list.npos) {
      function = known(text, list.substr(0, colon), "function", kNcclFunctions);
      list = trim(list.substr(colon + 1));
    } else if (i > 0) {
      fail(Result::invalid_usage, "NCCL_ALGO='{}': '{}' lacks a function; only the first list may. Correct or unset it", printable(text, 200), printable(list, 60));
    }
    const bool inverted = list.starts_with('^');
    if (inverted) list.remove_prefix(1);
    bool ring = false, tree = false, any = false;
    for (const std::string_view word : split(list, ',')) {
      if (trim(word).empty()) continue;
      any = true;
      const std::string name = known(text, word, "algorithm", kNcclAlgorithms);
      ring |= name == "ring";
      tree |= name == "tree";
    }
    if (inverted && tree) r.trees = false;      // for all functions: none needs them
    if (!any || (inverted && !ring)) continue;  // what Muster doesn't have is excluded anyway
    if (!ring && !tree)
      r.unmet = fmt::format("Muster has none of '{}'", printable(trim(list), 60));
    else if (inverted)
      r.unmet = "ring can't be excluded alone";
    else if (!function.empty())
      r.unmet = fmt::format("an algorithm can't be forced for {} alone", function);
    else
      r.algorithm = ring ? "ring" : "tree";
  }
  if (!r.unmet.empty()) r.algorithm.clear();
  return r;
}

}  // namespace muster
