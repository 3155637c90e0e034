#include "plan/measured_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace muster {
namespace {

template <class T>
std::optional<T> whole(std::string_view word) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void make_rising(std::vector<MeasuredRow::Point>& points) {
  std::vector<std::vector<double>> runs;  // of neighbours, whose medians rise
  for (const MeasuredRow::Point& p : points) {
    runs.push_back({p.us});
    while (runs.size() > 1 && median_of(runs[runs.size() - 2]) > median_of(runs.back())) {
      const std::vector<double> last = std::move(runs.back());
      runs.pop_back();
      runs.back().insert(runs.back().end(), last.begin(), last.end());
    }
  }
  auto p = points.begin();
  for (const std::vector<double>& run : runs)
    for (size_t i = 0; i < run.size(); ++i) (p++)->us = median_of(run);
}

}  // namespace

MeasuredRow MeasuredRow::read(std::string_view line) {
  std::vector<std::string_view> words;
  for (line = trim(line); !line.empty(); line = trim(line)) {
    words.push_back(line.substr(0, line.find_first_of(" \t")));
    line.remove_prefix(words.back().size());
  }
  const auto wrong = [](const std::string& what) {
    fail(
        Result::invalid_argument,
        "{}. After 'calls' come collective, algorithm, ranks, cores, and the times as bytes:us, sizes rising",
        what);
  };
  if (words.size() < 5) wrong(fmt::format("{} words are too few", words.size()));
  MeasuredRow row;
  const auto known = std::ranges::find_if(
      algorithms(), [&](const Algorithm& a) { return words[0] == name_of(a.coll) && words[1] == a.name; });
  if (known == algorithms().end())
    wrong(fmt::format("there is no {} by {}: it may be of another version, then run muster tune again",
                      printable(words[0], 100), printable(words[1], 100)));
  row.algorithm = &*known;
  row.ranks = whole<int>(words[2]).value_or(0);
  row.cores = whole<int>(words[3]).value_or(0);
  if (row.ranks < 2 || row.cores < 1)
    wrong(fmt::format("'{}' ranks on '{}' cores", printable(words[2], 20), printable(words[3], 20)));
  for (size_t i = 4; i < words.size(); ++i) {
    const size_t colon = std::min(words[i].find(':'), words[i].size() - 1);
    const std::optional<uint64_t> bytes = whole<uint64_t>(words[i].substr(0, colon));
    const std::optional<double> us = whole<double>(words[i].substr(colon + 1));
    if (!bytes || !us || *bytes == 0 || !std::isfinite(*us) || *us <= 0)
      wrong(fmt::format("'{}' is no time of a size", printable(words[i], 100)));
    if (!row.points.empty() && row.points.back().bytes >= *bytes)
      wrong(fmt::format("{} bytes come after {}", *bytes, row.points.back().bytes));
    row.points.push_back({*bytes, *us});
  }
  return row;
}

std::string MeasuredRow::name() const {
  return fmt::format("{} {} of {} ranks on {} cores", name_of(algorithm->coll), algorithm->name, ranks,
                     cores);
}

std::string MeasuredRow::to_text() const {
  std::string text =
      fmt::format("{:<14} {:<16} {} {} ", name_of(algorithm->coll), algorithm->name, ranks, cores);
  for (const Point& p : points) text += fmt::format(" {}:{:.4g}", p.bytes, p.us);
  return text;
}

void MeasuredCalls::add(MeasuredRow row) {
  make_rising(row.points);
  const auto same = std::ranges::find_if(rows_, [&](const MeasuredRow& r) { return r.is_of(row); });
  if (same == rows_.end())
    rows_.push_back(std::move(row));
  else
    *same = std::move(row);
}

MeasuredCalls MeasuredCalls::middle_of(const std::vector<MeasuredCalls>& several) {
  MeasuredCalls middle;
  for (const MeasuredCalls& one : several)
    for (const MeasuredRow& row : one.rows()) {
      if (std::ranges::any_of(middle.rows_, [&](const MeasuredRow& r) { return r.is_of(row); })) continue;
      std::map<uint64_t, std::vector<double>> times;
      for (const MeasuredCalls& other : several)
        for (const MeasuredRow& r : other.rows())
          if (r.is_of(row))
            for (const MeasuredRow::Point& p : r.points) times[p.bytes].push_back(p.us);
      MeasuredRow all = row;
      all.points.clear();
      for (auto& [bytes, us] : times) all.points.push_back({bytes, median_of(std::move(us))});
      middle.add(std::move(all));
    }
  return middle;
}

const MeasuredRow* MeasuredCalls::nearest(const Algorithm& algorithm, int ranks, int cores) const {
  const auto distance = [](int a, int b) { return std::abs(std::log(static_cast<double>(a) / b)); };
  const auto order = [&](const MeasuredRow& r) {
    return std::tuple(distance(r.ranks, ranks), distance(r.cores, cores), -r.ranks, -r.cores);
  };
  const MeasuredRow* best = nullptr;
  for (const MeasuredRow& r : rows_)
    if (r.algorithm == &algorithm && (r.ranks > r.cores) == (ranks > cores) &&
        (!best || order(r) < order(*best)))
      best = &r;
  return best;
}

}  // namespace muster
