// What ranks tell each other when they meet: texts by name.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"

namespace muster {

class Card {
 public:
  void set(const std::string& key, const std::string& value) { fields_[key] = value; }
  template <class T>
  void set(const std::string& key, T value) {
    fields_[key] = fmt::format("{}", value);
  }

  // Throw internal_error for a field that isn't there or is no number.
  const std::string& text(const std::string& key) const;
  template <class T = uint64_t>
  T number(const std::string& key) const {
    const std::string& s = text(key);
    T v{};
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
    if (error != std::errc() || end != s.data() + s.size())
      fail(Result::internal_error, "a rank's introduction has {}='{}'", key, s);
    return v;
  }
  const std::map<std::string, std::string>& fields() const { return fields_; }

  std::string write() const;
  // Throws internal_error for anything that write() didn't make.
  static Card read(std::string_view bytes);

 private:
  std::map<std::string, std::string> fields_;
};

}  // namespace muster
