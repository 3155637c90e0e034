// Reading JSON that people and programs wrote, with // and /* */ comments: every complaint names file, line
// and column; limits are explicit; a member that nobody asked for is an error.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace muster {

constexpr size_t kMostJsonBytes = 64 << 20;
constexpr size_t kMostJsonValues = 4'000'000;
constexpr size_t kMostJsonDepth = 64;

struct JsonValue {
  enum class Type : uint8_t { null, boolean, integer, real, text, array, object };
  Type type = Type::null;
  bool boolean = false;
  bool negative = false;   // of an integer
  uint64_t magnitude = 0;  // of an integer
  double real = 0;         // of any number
  std::string text;
  std::string key;               // of a member of an object
  std::vector<JsonValue> items;  // of an array, or an object's members in the order of the file
  size_t offset = 0;             // of its first byte in the text; a member's is that of its key

  bool is_object() const { return type == Type::object; }
  bool is_array() const { return type == Type::array; }
};

class JsonDocument {
 public:
  // Throws invalid_argument for what isn't JSON or beyond the limits. `name` is the file's, for messages.
  JsonDocument(std::string_view text, std::string name);

  const JsonValue& root() const { return root_; }
  const std::string& name() const { return name_; }

  // "FILE:LINE:COLUMN: 'KEY': ..."
  template <class... Args>
  [[noreturn]] void refuse(const JsonValue& v, fmt::format_string<Args...> text, Args&&... args) const {
    throw_refusal(v, fmt::format(text, std::forward<Args>(args)...));
  }

  // The value as what it must be; refused if it isn't that, or not within the bounds.
  int64_t integer(const JsonValue& v, int64_t least, int64_t most) const;
  uint64_t natural(const JsonValue& v) const;
  uint64_t hexadecimal(const JsonValue& v) const;  // a text, with 0x
  double real(const JsonValue& v, double least, double most) const;
  const std::string& text(const JsonValue& v) const;
  bool boolean(const JsonValue& v) const;
  const std::vector<JsonValue>& array(const JsonValue& v) const;

 private:
  [[noreturn]] void throw_refusal(const JsonValue& v, const std::string& text) const;

  std::string name_;
  std::string text_;
  JsonValue root_;
};

// The members of one object. Those known are those that were asked for.
class JsonFields {
 public:
  JsonFields(const JsonDocument& document, const JsonValue& object);

  const JsonValue* find(std::string_view name);  // nullptr: not there
  const JsonValue& required(std::string_view name);
  [[noreturn]] void missing(std::string_view name) const;
  // Leaves `to` as it is where the member isn't there.
  void integer(std::string_view name, int* to, int64_t least, int64_t most);
  void real(std::string_view name, double* to, double least, double most);
  void text(std::string_view name, std::string* to);
  void boolean(std::string_view name, bool* to);
  template <class T, size_t N>
  bool word(std::string_view name, T* to,
            const std::array<std::pair<std::string_view, T>, N>& words) {  // whether it is there
    const JsonValue* v = find(name);
    if (!v) return false;
    std::vector<std::string_view> names;
    for (const auto& [text, value] : words) {
      if (document_.text(*v) == text) {
        *to = value;
        return true;
      }
      names.push_back(text);
    }
    refuse_word(*v, names);
  }
  // Refuses the first member that wasn't asked for, and says which was probably meant.
  void done() const;

  const JsonDocument& document() const { return document_; }
  const JsonValue& object() const { return object_; }

 private:
  [[noreturn]] void refuse_word(const JsonValue& v, std::span<const std::string_view> words) const;

  const JsonDocument& document_;
  const JsonValue& object_;
  std::map<std::string_view, const JsonValue*> left_;  // not asked for yet
  std::vector<std::string> known_;
};

}  // namespace muster
