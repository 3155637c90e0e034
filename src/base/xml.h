// Reading XML that others wrote: every complaint names file, line, column, tag and attribute; limits are explicit; numbers
// don't depend on the locale.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text_position.h"

namespace muster {

// What a reader takes; more is refused with the number and the limit. The largest real file known, of a machine with 32
// network cards, has 0.3 MB, 3000 elements and a depth of 20.
constexpr size_t kMostXmlBytes = 64 << 20;
constexpr size_t kMostXmlElements = 200'000;
constexpr int kMostXmlDepth = 256;

// Whether an element has this name.
inline bool is(pugi::xml_node n, std::string_view name) { return n.name() == name; }

class XmlDocument {
 public:
  // Throws invalid_argument for what isn't well-formed XML or beyond the limits. `name` is the file's, for messages.
  XmlDocument(std::string_view text, std::string name);

  pugi::xml_node root() const { return document_.document_element(); }
  const std::string& name() const { return name_; }
  // "FILE:LINE:COLUMN" of an element.
  std::string where(pugi::xml_node n) const;

  // An attribute's text; nothing if it isn't there.
  std::optional<std::string_view> text(pugi::xml_node n, const char* attribute) const;
  std::string_view required_text(pugi::xml_node n, const char* attribute) const;
  // Numbers: nothing if the attribute isn't there or empty; invalid_argument if it is no number within the bounds. Hexadecimal needs 0x.
  std::optional<int64_t> integer(pugi::xml_node n, const char* attribute, int64_t least, int64_t most) const;
  std::optional<double> real(pugi::xml_node n, const char* attribute, double least, double most) const;
  std::optional<uint64_t> hexadecimal(pugi::xml_node n, const char* attribute) const;  // with or without 0x

  // "FILE:LINE:COLUMN: <tag>: ..."
  template <class... Args>
  [[noreturn]] void refuse(pugi::xml_node n, fmt::format_string<Args...> text, Args&&... args) const {
    fail(Result::invalid_argument, "{}: <{}>: {}", where(n), n.name(), fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  std::string name_;
  std::string text_;  // as it came: pugixml gives offsets in it
  pugi::xml_document document_;
};

}  // namespace muster
