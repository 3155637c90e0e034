#include "topology/cpu_set.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/text.h"

namespace muster::topology {
namespace {

bool parse_number(std::string_view text, int base, uint32_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out, base);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  text = trim(text);
  if (text.empty()) return cpus;
  for (const std::string_view part : split(text, ',')) {
    const size_t dash = part.find('-');
    uint32_t first = 0, last = 0;
    if (!parse_number(part.substr(0, dash), 10, &first)) return std::nullopt;
    last = first;
    if (dash != part.npos && !parse_number(part.substr(dash + 1), 10, &last)) return std::nullopt;
    if (last < first || last >= kMostCpus || cpus.size() > kMostCpus) return std::nullopt;
    for (uint32_t c = first; c <= last; ++c) cpus.push_back(static_cast<int>(c));
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::optional<std::vector<int>> parse_cpu_mask(std::string_view text) {
  text = trim(text);
  if (text == "0xf...f") return std::vector<int>();
  if (text.starts_with("0xf...f,")) text.remove_prefix(8);
  if (text.empty() || text.size() > kMostCpus) return std::nullopt;
  const std::vector<std::string_view> words = split(text, ',');
  if (words.size() > kMostCpus / 32) return std::nullopt;
  std::vector<int> cpus;
  for (size_t i = words.size(); i-- > 0;) {
    std::string_view word = words[i];
    if (word.empty()) continue;
    if (word.starts_with("0x")) word.remove_prefix(2);
    uint32_t bits = 0;
    if (word.size() > 8 || !parse_number(word, 16, &bits)) return std::nullopt;
    const int first = static_cast<int>((words.size() - 1 - i) * 32);
    for (int b = 0; b < 32; ++b)
      if (bits >> b & 1) cpus.push_back(first + b);
  }
  return cpus;
}

bool intersect(const std::vector<int>& a, const std::vector<int>& b) {
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (*x == *y) return true;
    ++(*x < *y ? x : y);
  }
  return false;
}

bool contains_all(const std::vector<int>& all, const std::vector<int>& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

}  // namespace muster::topology
