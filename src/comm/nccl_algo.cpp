#include "comm/nccl_algo.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace muster {
namespace {

constexpr std::array<std::string_view, 8> kNcclAlgorithms = {"tree", "ring", "collnetdirect", "collnetchain", "collnet", "nvls", "nvlstree", "pat"};
constexpr std::array<std::string_view, 3> kNcclProtocols = {"ll", "ll128", "simple"};
constexpr std::array<std::string_view, 8> kNcclFunctions = {"allreduce", "broadcast", "reduce", "allgather", "reducescatter", "alltoall", "gather", "scatter"};

// One list of several: "allreduce:^tree,ring".
struct NcclList {
  std::string function;  // empty: of all
  std::string_view text;
  bool inverted = false;
  std::vector<std::string> words;
};

class ListReader {
 public:
  ListReader(std::string_view variable, const std::string& text) : variable_(variable), text_(text) {}

  std::vector<NcclList> read(std::span<const std::string_view> words, const char* what) const {
    std::vector<NcclList> lists;
    const std::vector<std::string_view> entries = split(text_, ';');
    for (size_t i = 0; i < entries.size(); ++i) {
      std::string_view list = trim(entries[i]);
      if (list.empty()) continue;
      NcclList l;
      if (const size_t colon = list.find(':'); colon != list.npos) {
        l.function = known(list.substr(0, colon), "function", kNcclFunctions);
        list = trim(list.substr(colon + 1));
      } else if (i > 0) {
        fail(Result::invalid_usage, "{}='{}': '{}' lacks a function; only the first list may. Correct or unset it", variable_, printable(text_, 200), printable(list, 60));
      }
      l.text = list;
      l.inverted = list.starts_with('^');
      if (l.inverted) list.remove_prefix(1);
      for (const std::string_view word : split(list, ','))
        if (!trim(word).empty()) l.words.push_back(known(word, what, words));
      lists.push_back(std::move(l));
    }
    return lists;
  }

 private:
  std::string known(std::string_view word, const char* what, std::span<const std::string_view> words) const {
    const std::string small = lower(trim(word));
    if (std::find(words.begin(), words.end(), small) == words.end())
      fail(Result::invalid_usage, "{}='{}': '{}' is no {} of NCCL's. There are: {}. Correct or unset it", variable_, printable(text_, 200), printable(word, 60),
           what, fmt::join(words, ", "));
    return small;
  }

  std::string_view variable_;
  const std::string& text_;
};

std::string last_list_for(Coll coll, const std::vector<NcclList>& lists) {
  std::string function = name_of(coll), found;
  std::erase(function, '_');
  for (const NcclList& l : lists)
    if ((l.function.empty() || l.function == function) && !l.words.empty()) found = l.text;
  return found;
}

}  // namespace

NcclAlgo read_nccl_algo(const std::string& text) {
  NcclAlgo r;
  for (const NcclList& l : ListReader("NCCL_ALGO", text).read(kNcclAlgorithms, "algorithm")) {
    const auto has = [&](std::string_view name) { return std::find(l.words.begin(), l.words.end(), name) != l.words.end(); };
    const bool ring = has("ring"), tree = has("tree");
    if (l.inverted && tree) r.trees = false;                  // for all functions: none needs them
    if (l.words.empty() || (l.inverted && !ring)) continue;  // what Muster doesn't have is excluded anyway
    if (!ring && !tree)
      r.unmet = fmt::format("Muster has none of '{}'", printable(l.text, 60));
    else if (l.inverted)
      r.unmet = "ring can't be excluded alone";
    else if (!l.function.empty())
      r.unmet = fmt::format("an algorithm can't be forced for {} alone", l.function);
    else
      r.algorithm = ring ? "ring" : "tree";
  }
  if (!r.unmet.empty()) r.algorithm.clear();
  return r;
}

std::string nccl_algorithms_for(Coll coll, const std::string& text) {
  return last_list_for(coll, ListReader("NCCL_ALGO", text).read(kNcclAlgorithms, "algorithm"));
}

std::string nccl_protocols_for(Coll coll, const std::string& text) {
  return last_list_for(coll, ListReader("NCCL_PROTO", text).read(kNcclProtocols, "protocol"));
}

}  // namespace muster
