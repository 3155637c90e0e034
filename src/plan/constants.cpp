#include "plan/constants.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace muster {

extern const char* const kBuiltInConstants;  // made of constants.tsv by CMake

namespace {

constexpr size_t kMostBytes = 1 << 20;

// The next word of `rest`, which loses it.
std::string_view take_word(std::string_view& rest) {
  rest = trim(rest);
  const size_t end = std::min(rest.find_first_of(" \t"), rest.size());
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end);
  return word;
}

std::optional<double> parse_number(
    std::string_view word) {  // as C's locale writes it, whatever the program's is
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || !std::isfinite(value) || value < 0)
    return std::nullopt;
  return value;
}

bool is_kind(std::string_view word) {
  return word == "table" || word == "fitted" || word == "measured" || word == "assumed";
}

}  // namespace

Constants Constants::read(std::string_view text, const std::string& name) {
  if (text.size() > kMostBytes)
    fail(Result::invalid_argument, "{}: {} bytes; constants of at most {} are read", name, text.size(),
         kMostBytes);
  Constants read;
  int number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    line = trim(line);
    if (line.empty() || line.front() == '#') continue;
    const auto wrong = [&](const std::string& what) {
      fail(Result::invalid_argument,
           "{}:{}: {}. A line has name, value, unit, one of table, fitted, measured and assumed, and the "
           "source",
           name, number, what);
    };
    std::string_view rest = line;
    const std::string_view key = take_word(rest);
    if (key == "calls") {
      try {
        MeasuredRow row = MeasuredRow::read(rest);
        for (const MeasuredRow& r : read.calls_.rows())
          if (r.is_of(row)) fail(Result::invalid_argument, "{} is there twice", row.name());
        read.calls_.add(std::move(row));
      } catch (const Error& e) {
        fail(e.code(), "{}:{}: {}", name, number, e.what());
      }
      continue;
    }
    const std::string_view value = take_word(rest), unit = take_word(rest),
                           kind = take_word(rest);
    const std::optional<double> v = parse_number(value);
    if (!v) wrong(fmt::format("'{}' is no number of 0 or more", printable(value, 100)));
    if (*v == 0 && unit == "GB/s") wrong(fmt::format("{} is a rate of 0", printable(key, 100)));
    if (!is_kind(kind)) wrong(fmt::format("'{}' doesn't say where a number came from", printable(kind, 100)));
    if (!read.all_.emplace(key, Constant{*v, std::string(unit), std::string(kind), std::string(trim(rest)), number})
             .second)
      wrong(fmt::format("{} is there twice", printable(key, 100)));
  }
  return read;
}

const Constants& Constants::built_in() {
  // Never deleted: threads in the background outlive static objects.
  static const Constants* const all = new Constants(read(kBuiltInConstants, "constants.tsv"));
  return *all;
}

void Constants::override_with(const Constants& profile, const std::string& name) {
  for (const auto& [key, constant] : profile.all_) {
    const auto known = all_.find(key);
    if (known == all_.end())
      fail(Result::invalid_argument,
           "{}:{}: the cost model has no {}. It may be of another version: run muster tune again", name,
           constant.line, printable(key, 100));
    if (known->second.unit != constant.unit)
      fail(Result::invalid_argument, "{}:{}: {} is in {}, not {}", name, constant.line, key, known->second.unit,
           printable(constant.unit, 100));
    known->second = constant;
  }
  for (const MeasuredRow& row : profile.calls_.rows()) calls_.add(row);
}

const Constant& Constants::get(std::string_view name) const {
  const auto it = all_.find(name);
  if (it == all_.end()) fail(Result::internal_error, "the cost model has no constant {}", name);
  return it->second;
}

double Constants::of(std::string_view name, std::string_view suffix) const {
  if (suffix.empty()) return (*this)(name);
  const auto it = all_.find(fmt::format("{}.{}", name, suffix));
  return it == all_.end() ? (*this)(name) : it->second.value;
}

std::string Constants::to_text() const {
  std::string text;
  for (const auto& [name, c] : all_)
    text += fmt::format("{:<24} {:<12.6g} {:<8} {:<9} {}\n", name, c.value, c.unit, c.kind, c.source);
  for (const MeasuredRow& row : calls_.rows()) text += fmt::format("calls {}\n", row.to_text());
  return text;
}

}  // namespace muster
