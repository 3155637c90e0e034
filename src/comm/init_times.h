// Where the time of making a communicator goes, for the log: phases one behind the other.
#pragma once

#include <chrono>
#include <string>

#include <fmt/format.h>

namespace muster {

class InitTimes {
 public:
  // The phase that began where the last one ended, or with this object.
  void end(const char* phase) {
    const auto now = Clock::now();
    text_ += fmt::format("{}{} {:.1f} ms", text_.empty() ? "" : ", ", phase, milliseconds(now - last_));
    last_ = now;
  }
  std::string text() const { return fmt::format("{:.1f} ms: {}", milliseconds(last_ - begin_), text_); }

 private:
  using Clock = std::chrono::steady_clock;
  static double milliseconds(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
  std::string text_;
};

}  // namespace muster
