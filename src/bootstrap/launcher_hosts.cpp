#include "bootstrap/launcher_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace muster {
namespace {

constexpr size_t kMostDigits = 18;

std::optional<uint64_t> whole_number(std::string_view text) {
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || text.size() > kMostDigits) return {};
  return n;
}

// Pieces between separators outside of brackets.
std::vector<std::string_view> pieces_of(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != separator || depth > 0)) continue;
    pieces.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return pieces;
}

void expand(const std::string& before, std::string_view name, size_t most, std::vector<std::string>& found) {
  const size_t open = name.find('['), close = open == name.npos ? name.npos : name.find(']', open);
  if (close == name.npos) {
    std::string whole = before + std::string(name);
    if (!whole.empty() && found.size() < most) found.push_back(std::move(whole));
    return;
  }
  const std::string prefix = before + std::string(name.substr(0, open));
  const std::string_view rest = name.substr(close + 1);
  std::string_view ranges = name.substr(open + 1, close - open - 1);
  std::optional<uint64_t> digits;
  if (const size_t colon = ranges.find(':');
      colon != ranges.npos && (digits = whole_number(ranges.substr(0, colon))))
    ranges.remove_prefix(colon + 1);
  for (const std::string_view range : pieces_of(ranges, ',')) {
    const size_t dash = range.find('-');
    const std::string_view from = range.substr(0, dash);
    const auto first = whole_number(from),
               last = dash == range.npos ? first : whole_number(range.substr(dash + 1));
    const size_t width = std::min<size_t>(digits ? *digits : from.size(), kMostDigits);
    if (!first || !last) expand(prefix + std::string(range), rest, most, found);
    for (uint64_t n = first.value_or(1); first && last && n <= *last && found.size() < most; ++n)
      expand(fmt::format("{}{:0{}}", prefix, n, width), rest, most, found);
  }
}

}  // namespace

std::vector<std::string> expand_hosts(std::string_view list, size_t most) {
  std::vector<std::string> found;
  for (const std::string_view name : pieces_of(list.substr(0, list.find('@')), ','))
    expand("", name, most, found);
  return found;
}

std::vector<std::string> contact_addresses(std::string_view uri) {
  std::vector<std::string> found;
  for (std::string_view contact : pieces_of(uri, ';')) {
    const size_t scheme = contact.find("://");
    if (scheme == contact.npos) continue;
    contact.remove_prefix(scheme + 3);
    for (std::string_view address : pieces_of(contact.substr(0, contact.rfind(':')), ',')) {
      if (address.starts_with('[') && address.ends_with(']')) address = address.substr(1, address.size() - 2);
      if (!address.empty()) found.emplace_back(address);
    }
  }
  return found;
}

}  // namespace muster
