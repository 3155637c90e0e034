#include "topology/nccl_text.h"

#include <cctype>
#include <charconv>

#include "base/text.h"

namespace muster::topology {
namespace {

std::optional<PciAddress> address_by_digits(std::string_view text) {
  std::string digits;
  for (const char c : trim(text)) {
    if (c == ':' || c == '.') continue;
    if (!std::isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
    digits += c;
  }
  uint64_t v = 0;
  if (digits.empty() || digits.size() > 13) return std::nullopt;
  std::from_chars(digits.data(), digits.data() + digits.size(), v, 16);
  return PciAddress{static_cast<uint32_t>(v >> 20), static_cast<uint8_t>(v >> 12),
                    static_cast<uint8_t>(v >> 4 & 0xff), static_cast<uint8_t>(v & 0xf)};
}

}  // namespace

std::optional<PciAddress> parse_bus_id(std::string_view text) {
  const auto a = PciAddress::parse(text);
  return a ? a : address_by_digits(text);
}

bool is_unreadable(std::string_view target) {
  bool any = false;
  for (const char c : lower(trim(target))) {
    if (c == 'f')
      any = true;
    else if (c != ':' && c != '.' && c != '0')
      return false;
  }
  return any && lower(trim(target)).starts_with("ffff");
}

int parse_gcn(std::string_view text) {
  std::string s = lower(trim(text));
  if (s.starts_with("gfx")) s = s.substr(3);
  s = s.substr(0, s.find(':'));
  if (s == "90a") return 910;
  int v = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
  return error == std::errc() && end == s.data() + s.size() && v > 0 && v < 100'000 ? v : 0;
}

uint64_t parse_host_hash(std::string_view text) {
  std::string_view digits = trim(text);
  if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
  uint64_t v = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), v, 16);
  if (error == std::errc() && end == digits.data() + digits.size()) return v;
  v = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) v = (v ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return v;
}

}  // namespace muster::topology
