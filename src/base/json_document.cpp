#include "base/json_document.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/text_position.h"

namespace muster {
namespace {

using Type = JsonValue::Type;

std::string_view name_of(Type t) {
  switch (t) {
    case Type::null:
      return "null";
    case Type::boolean:
      return "a truth value";
    case Type::integer:
    case Type::real:
      return "a number";
    case Type::text:
      return "a text";
    case Type::array:
      return "a list";
    case Type::object:
      return "an object";
  }
  return "?";
}

// Lets the parser's events know how far it has read, which it doesn't say itself.
struct Counting {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  const char** farthest = nullptr;

  reference operator*() const { return *at; }
  Counting& operator++() {
    *farthest = ++at;
    return *this;
  }
  Counting operator++(int) {
    Counting before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Counting& o) const { return at == o.at; }
  bool operator!=(const Counting& o) const { return at != o.at; }
};

// Builds the tree from the parser's events.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, const std::string& name, JsonValue* root)
      : text_(text), name_(name), root_(root) {}
  const char* farthest = nullptr;

  bool null() override { return add({}); }
  bool boolean(bool v) override { return add({.type = Type::boolean, .boolean = v}); }
  bool number_integer(int64_t v) override {  // a negative one
    const auto magnitude = static_cast<uint64_t>(v < 0 ? -(v + 1) : v) + (v < 0);
    return add(
        {.type = Type::integer, .negative = v < 0, .magnitude = magnitude, .real = static_cast<double>(v)});
  }
  bool number_unsigned(uint64_t v) override {
    return add({.type = Type::integer, .magnitude = v, .real = static_cast<double>(v)});
  }
  bool number_float(double v, const std::string&) override { return add({.type = Type::real, .real = v}); }
  bool string(std::string& v) override { return add({.type = Type::text, .text = std::move(v)}); }
  bool binary(nlohmann::json::binary_t&) override { return false; }  // JSON has none
  bool start_object(size_t) override { return open(Type::object); }
  bool start_array(size_t) override { return open(Type::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& v) override {
    key_ = std::move(v);
    key_offset_ = token_start();
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::json::exception& e) override {
    // Its text begins with a code and the position, which is said otherwise here.
    std::string_view why = e.what();
    if (const size_t colon = why.find(": "); colon != why.npos) why.remove_prefix(colon + 2);
    fail_at(byte == 0 ? 0 : byte - 1, "no well-formed JSON: {}", printable(why, 300));
  }

 private:
  template <class... Args>
  [[noreturn]] void fail_at(size_t offset, fmt::format_string<Args...> text, Args&&... args) const {
    const TextPosition p = position_of(text_, offset);
    fail(Result::invalid_argument, "{}:{}:{}: {}", name_, p.line, p.column,
         fmt::format(text, std::forward<Args>(args)...));
  }

  size_t token_start() const {
    size_t end = farthest ? static_cast<size_t>(farthest - text_.data()) : 0;
    const auto is_number = [](char c) {
      return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || (c | 0x20) == 'e';
    };
    const auto is_word = [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; };
    if (end == 0) return 0;
    size_t at = end - 1;
    if (text_[at] == '"') {
      const auto escaped = [&](size_t i) {
        size_t backslashes = 0;
        while (i > backslashes && text_[i - 1 - backslashes] == '\\') ++backslashes;
        return backslashes % 2 == 1;
      };
      while (at > 0 && (text_[--at] != '"' || escaped(at))) {
      }
      return at;
    }
    if (text_[at] == '{' || text_[at] == '[') return at;
    if (!is_number(text_[at]) && !is_word(text_[at]) && at > 0)
      --at;  // the parser has looked at what follows a number
    while (at > 0 && (is_number(text_[at - 1]) || is_word(text_[at - 1]))) --at;
    return at;
  }

  JsonValue* place(JsonValue v) {
    v.offset = token_start();
    if (++values_ > kMostJsonValues) fail_at(v.offset, "more than {} values", kMostJsonValues);
    if (open_.empty()) {
      *root_ = std::move(v);
      return root_;
    }
    if (open_.back()->is_object()) {
      v.key = std::move(key_);
      v.offset = key_offset_;
    }
    open_.back()->items.push_back(std::move(v));
    return &open_.back()->items.back();
  }
  bool add(JsonValue v) {
    place(std::move(v));
    return true;
  }
  bool open(Type t) {
    if (open_.size() >= kMostJsonDepth)
      fail_at(token_start(), "values within values more than {} deep", kMostJsonDepth);
    open_.push_back(place({.type = t}));  // stays where it is: a value gets no brothers while it is open
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& name_;
  JsonValue* root_;
  std::vector<JsonValue*> open_;
  std::string key_;
  size_t key_offset_ = 0;
  size_t values_ = 0;
};

}  // namespace

JsonDocument::JsonDocument(std::string_view text, std::string name) : name_(std::move(name)), text_(text) {
  if (text.size() > kMostJsonBytes)
    fail(Result::invalid_argument, "{} has {} bytes, and {} are the most that is read", name_, text.size(),
         kMostJsonBytes);
  Builder builder(text_, name_, &root_);
  const char *begin = text_.data(), *end = begin + text_.size();
  nlohmann::json::sax_parse(Counting{begin, &builder.farthest}, Counting{end, &builder.farthest}, &builder,
                            nlohmann::json::input_format_t::json, true, true);
}

void JsonDocument::throw_refusal(const JsonValue& v, const std::string& text) const {
  const TextPosition p = position_of(text_, v.offset);
  fail(Result::invalid_argument, "{}:{}:{}: {}{}", name_, p.line, p.column,
       v.key.empty() ? "" : fmt::format("'{}': ", printable(v.key, 60)), text);
}

int64_t JsonDocument::integer(const JsonValue& v, int64_t least, int64_t most) const {
  if (v.type != Type::integer)
    refuse(v, "a whole number is wanted, not {}",
           v.type == Type::real ? fmt::format("{}", v.real) : name_of(v.type));
  const bool fits = v.magnitude <= static_cast<uint64_t>(INT64_MAX);
  const int64_t n =
      fits ? (v.negative ? -static_cast<int64_t>(v.magnitude) : static_cast<int64_t>(v.magnitude)) : 0;
  if (!fits || n < least || n > most)
    refuse(v, "{}{} is not in {}..{}", v.negative ? "-" : "", v.magnitude, least, most);
  return n;
}

uint64_t JsonDocument::natural(const JsonValue& v) const {
  if (v.type != Type::integer || v.negative) refuse(v, "a whole number of at least 0 is wanted");
  return v.magnitude;
}

uint64_t JsonDocument::hexadecimal(const JsonValue& v) const {
  const std::string& t = text(v);
  uint64_t n = 0;
  const char *begin = t.data() + 2, *end = t.data() + t.size();
  if (t.size() < 3 || !t.starts_with("0x"))
    refuse(v, "a hexadecimal number with 0x is wanted, not \"{}\"", printable(t, 60));
  if (const auto [stop, error] = std::from_chars(begin, end, n, 16); error != std::errc() || stop != end)
    refuse(v, "\"{}\" is no hexadecimal number of up to 16 digits", printable(t, 60));
  return n;
}

double JsonDocument::real(const JsonValue& v, double least, double most) const {
  if (v.type != Type::integer && v.type != Type::real)
    refuse(v, "a number is wanted, not {}", name_of(v.type));
  if (!(v.real >= least && v.real <= most)) refuse(v, "{} is not in {}..{}", v.real, least, most);
  return v.real;
}

const std::string& JsonDocument::text(const JsonValue& v) const {
  if (v.type != Type::text) refuse(v, "a text is wanted, not {}", name_of(v.type));
  return v.text;
}

bool JsonDocument::boolean(const JsonValue& v) const {
  if (v.type != Type::boolean) refuse(v, "true or false is wanted, not {}", name_of(v.type));
  return v.boolean;
}

const std::vector<JsonValue>& JsonDocument::array(const JsonValue& v) const {
  if (!v.is_array()) refuse(v, "a list is wanted, not {}", name_of(v.type));
  return v.items;
}

JsonFields::JsonFields(const JsonDocument& document, const JsonValue& object)
    : document_(document), object_(object) {
  if (!object.is_object()) document.refuse(object, "an object is wanted, not {}", name_of(object.type));
  for (const JsonValue& v : object.items)
    if (!left_.emplace(v.key, &v).second) document.refuse(v, "is there twice");
}

const JsonValue* JsonFields::find(std::string_view name) {
  known_.emplace_back(name);
  const auto at = left_.find(name);
  if (at == left_.end()) return nullptr;
  const JsonValue* v = at->second;
  left_.erase(at);
  return v;
}

const JsonValue& JsonFields::required(std::string_view name) {
  const JsonValue* v = find(name);
  if (!v) missing(name);
  return *v;
}

void JsonFields::missing(std::string_view name) const { document_.refuse(object_, "'{}' is missing", name); }

void JsonFields::integer(std::string_view name, int* to, int64_t least, int64_t most) {
  if (const JsonValue* v = find(name)) *to = static_cast<int>(document_.integer(*v, least, most));
}

void JsonFields::real(std::string_view name, double* to, double least, double most) {
  if (const JsonValue* v = find(name)) *to = document_.real(*v, least, most);
}

void JsonFields::text(std::string_view name, std::string* to) {
  if (const JsonValue* v = find(name)) *to = document_.text(*v);
}

void JsonFields::boolean(std::string_view name, bool* to) {
  if (const JsonValue* v = find(name)) *to = document_.boolean(*v);
}

void JsonFields::done() const {
  const JsonValue* first = nullptr;
  for (const auto& [key, v] : left_)
    if (!first || v->offset < first->offset) first = v;
  if (!first) return;
  std::vector<std::string_view> names(known_.begin(), known_.end());
  const std::string_view meant = nearest_name(first->key, names);
  if (!meant.empty()) document_.refuse(*first, "is not known here. Is '{}' meant?", meant);
  document_.refuse(*first, "is not known here; known are {}", fmt::join(names, ", "));
}

void JsonFields::refuse_word(const JsonValue& v, std::span<const std::string_view> words) const {
  const std::string_view meant = nearest_name(v.text, words);
  if (!meant.empty())
    document_.refuse(v, "\"{}\" is not known. Is \"{}\" meant?", printable(v.text, 60), meant);
  document_.refuse(v, "\"{}\" is not known; known are {}", printable(v.text, 60), fmt::join(words, ", "));
}

}  // namespace muster
