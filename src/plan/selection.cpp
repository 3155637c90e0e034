#include "plan/selection.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace muster {
namespace {

std::vector<const Algorithm*> algorithms_of(Coll coll) {
  std::vector<const Algorithm*> of;
  for (const Algorithm& a : algorithms())
    if (a.coll == coll) of.push_back(&a);
  return of;
}

bool names(std::string_view word, std::string_view algorithm) { return algorithm.starts_with(word) || (word == "ring" && algorithm == "chain"); }

std::string without_protocol(std::string word) {
  for (const std::string_view protocol : {"_ll", "_ll128", "_simple"})
    if (word.ends_with(protocol)) return word.substr(0, word.size() - protocol.size());
  return word;
}

}  // namespace

uint16_t parse_selection(Coll coll, std::string_view text) {
  text = trim(text);
  if (text.empty()) return 0;
  const std::vector<const Algorithm*> all = algorithms_of(coll);
  std::string_view list = text;
  const bool inverted = list.starts_with('^');
  if (inverted) list.remove_prefix(1);
  unsigned selected = 0;
  for (const std::string_view part : split(list, ',')) {
    const std::string word = without_protocol(lower(trim(part)));
    for (size_t i = 0; i < all.size(); ++i)
      if (!word.empty() && names(word, all[i]->name)) selected |= 1u << i;
  }
  const unsigned every = (1u << all.size()) - 1;
  if (inverted) selected = every & ~selected;
  if (!selected) {
    std::vector<std::string_view> known;
    for (const Algorithm* a : all) known.push_back(a->name);
    fail(Result::invalid_argument, "'{}' selects no algorithm of {}. There are: {}", printable(text, 200), name_of(coll), fmt::join(known, ", "));
  }
  return selected == every ? uint16_t{0} : static_cast<uint16_t>(selected);
}

bool is_allowed(const CallShape& call, const Algorithm& algorithm) {
  if (!call.allowed) return true;
  const std::vector<const Algorithm*> all = algorithms_of(call.coll);
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] == &algorithm) return (call.allowed >> i & 1) != 0;
  return false;
}

uint16_t only(const Algorithm& algorithm) {
  const std::vector<const Algorithm*> all = algorithms_of(algorithm.coll);
  return static_cast<uint16_t>(1u << (std::find(all.begin(), all.end(), &algorithm) - all.begin()));
}

std::string names_of_allowed(const CallShape& call) {
  if (!call.allowed) return {};
  std::vector<std::string_view> allowed;
  for (const Algorithm* a : algorithms_of(call.coll))
    if (is_allowed(call, *a)) allowed.push_back(a->name);
  return fmt::format("{}", fmt::join(allowed, " or "));
}

}  // namespace muster
