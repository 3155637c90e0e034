// The numbers of the cost model, each with where it came from: constants.tsv, and over it what a tuning
// profile says.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "plan/measured_calls.h"

namespace muster {

struct Constant {
  double value = 0;
  std::string unit;
  std::string kind;    // "table", "fitted", "measured", "assumed"
  std::string source;  // which table, which measurements, which machine and day
  int line = 0;        // of the text that it was read from
};

class Constants {
 public:
  // Those of constants.tsv. Thread-safe.
  static const Constants& built_in();
  // Lines as in constants.tsv, and lines of calls: "calls" and what MeasuredRow::read takes. `name`: what it is
  // called in errors. Throws invalid_argument with the line's number.
  static Constants read(std::string_view text, const std::string& name);

  // What `profile`, read from `name`, has goes before what is here. Throws invalid_argument with the line's
  // number for a name that the model doesn't know, and for another unit.
  void override_with(const Constants& profile, const std::string& name);

  double operator()(std::string_view name) const {
    return get(name).value;
  }  // throws internal_error where there is none
  const Constant& get(std::string_view name) const;
  bool has(std::string_view name) const { return all_.contains(name); }
  // Of `name` with `suffix`, where there is one, else of `name`.
  double of(std::string_view name, std::string_view suffix) const;

  const std::map<std::string, Constant, std::less<>>& all() const { return all_; }
  // What whole calls took, by which prices of host memory are put right; none among the built-in ones.
  const MeasuredCalls& calls() const { return calls_; }
  MeasuredCalls& calls() { return calls_; }
  std::string to_text() const;  // as read() takes it

 private:
  std::map<std::string, Constant, std::less<>> all_;
  MeasuredCalls calls_;
};

}  // namespace muster
