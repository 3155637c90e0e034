#include "base/xml.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace muster {

XmlDocument::XmlDocument(std::string_view text, std::string name) : name_(std::move(name)), text_(text) {
  if (text.size() > kMostXmlBytes) fail(Result::invalid_argument, "{} has {} bytes, and {} are the most that is read", name_, text.size(), kMostXmlBytes);
  if (trim(text).empty()) fail(Result::invalid_argument, "{} is empty", name_);
  // Without conversion the offsets are those of the text. What else there is than ASCII stands in names and comments.
  const pugi::xml_parse_result r = document_.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!r) {
    const size_t offset = std::min(text_.size(), static_cast<size_t>(std::max<std::ptrdiff_t>(0, r.offset)));
    const TextPosition p = position_of(text_, offset);
    if (r.status == pugi::status_end_element_mismatch && trim(std::string_view(text_).substr(offset)).empty())
      fail(Result::invalid_argument, "{}:{}:{}: the file ends before its elements do: it was cut off", name_, p.line, p.column);
    fail(Result::invalid_argument, "{}:{}:{}: no well-formed XML: {}", name_, p.line, p.column, lower(r.description()));
  }
  if (!root()) fail(Result::invalid_argument, "{} has no element: it is empty", name_);
  size_t elements = 0;
  int depth = 1;
  for (pugi::xml_node n = root(); n;) {  // without recursion: depth is what is being limited
    if (n.type() == pugi::node_element && ++elements > kMostXmlElements)
      refuse(n, "more than {} elements", kMostXmlElements);
    if (depth > kMostXmlDepth) refuse(n, "elements within elements more than {} deep", kMostXmlDepth);
    if (n.first_child()) {
      n = n.first_child();
      ++depth;
      continue;
    }
    while (n && n != root() && !n.next_sibling()) {
      n = n.parent();
      --depth;
    }
    n = n == root() ? pugi::xml_node() : n.next_sibling();
  }
}

std::string XmlDocument::where(pugi::xml_node n) const {
  const TextPosition p = position_of(text_, static_cast<size_t>(std::max<std::ptrdiff_t>(0, n.offset_debug())));
  return fmt::format("{}:{}:{}", name_, p.line, p.column);
}

std::optional<std::string_view> XmlDocument::text(pugi::xml_node n, const char* attribute) const {
  const pugi::xml_attribute a = n.attribute(attribute);
  if (!a) return std::nullopt;
  return a.value();
}

std::string_view XmlDocument::required_text(pugi::xml_node n, const char* attribute) const {
  const auto t = text(n, attribute);
  if (!t) refuse(n, "attribute '{}' is missing", attribute);
  return *t;
}

std::optional<int64_t> XmlDocument::integer(pugi::xml_node n, const char* attribute, int64_t least, int64_t most) const {
  const auto t = text(n, attribute);
  if (!t || trim(*t).empty()) return std::nullopt;
  std::string_view digits = trim(*t);
  const bool minus = digits.starts_with('-');
  if (minus) digits.remove_prefix(1);
  const bool hex = digits.starts_with("0x") || digits.starts_with("0X");
  if (hex) digits.remove_prefix(2);
  uint64_t v = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), v, hex ? 16 : 10);
  if (error != std::errc() || end != digits.data() + digits.size() || v > INT64_MAX)
    refuse(n, "{}=\"{}\" is no whole number (hexadecimal begins with 0x)", attribute, printable(*t, 60));
  const int64_t r = minus ? -static_cast<int64_t>(v) : static_cast<int64_t>(v);
  if (r < least || r > most) refuse(n, "{}=\"{}\" is not in {}..{}", attribute, printable(*t, 60), least, most);
  return r;
}

std::optional<double> XmlDocument::real(pugi::xml_node n, const char* attribute, double least, double most) const {
  const auto t = text(n, attribute);
  if (!t || trim(*t).empty()) return std::nullopt;
  const std::string_view s = trim(*t);
  double v = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
  if (error != std::errc() || end != s.data() + s.size() || !std::isfinite(v))
    refuse(n, "{}=\"{}\" is no number", attribute, printable(*t, 60));
  if (v < least || v > most) refuse(n, "{}=\"{}\" is not in {}..{}", attribute, printable(*t, 60), least, most);
  return v;
}

std::optional<uint64_t> XmlDocument::hexadecimal(pugi::xml_node n, const char* attribute) const {
  const auto t = text(n, attribute);
  if (!t || trim(*t).empty()) return std::nullopt;
  std::string_view s = trim(*t);
  if (s.starts_with("0x") || s.starts_with("0X")) s.remove_prefix(2);
  uint64_t v = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v, 16);
  if (error != std::errc() || end != s.data() + s.size()) refuse(n, "{}=\"{}\" is no hexadecimal number of up to 16 digits", attribute, printable(*t, 60));
  return v;
}

}  // namespace muster
