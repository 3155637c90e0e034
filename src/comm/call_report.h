// MUSTER_EXPLAIN: how each distinct collective call of a communicator runs, said when it is first made; and
// at the end, or when the process exits, what was predicted of each beside what was measured.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace muster {

// Whether a rank reports: MUSTER_EXPLAIN=1, rank 0 of each communicator; all, every rank. Throws
// invalid_usage for other words.
bool wants_report(const Options& options, int rank);

// What one call took each time: all of it up to kMost times, then a fair sample of as many.
class CallDurations {
 public:
  static constexpr size_t kMost = 1024;
  void add(double us);
  uint64_t count() const { return count_; }
  double least() const { return least_; }
  double median() const;  // of the sample; 0 for none

 private:
  uint64_t count_ = 0;
  double least_ = 0;
  std::vector<float> sample_;
};

class CallReport {
 public:
  // A way in which a call may run: through slots, or with all buffers in windows.
  struct Way {
    std::string algorithm;
    double predicted_us = 0;
    CallDurations durations;
  };
  struct Row {
    std::string call;
    Way slots, windows;
  };

  // Of rank `rank` in the communicator called `communicator`. Reports when the process exits, too.
  static std::shared_ptr<CallReport> make(const std::string& communicator, int rank);

  // The row of a call; the first time it is made and `description` is said. `windows`: algorithm "" if it has
  // no such way. Null: there are kMostRows others already.
  static constexpr size_t kMostRows = 1000;
  Row* row(const std::string& call, const std::string& description, Way slots, Way windows);
  // Says, the first time only, how calls run that have no row.
  void note(const std::string& text);
  void add(Way& way, std::chrono::nanoseconds took);
  // Prints the table; once.
  void finish() noexcept;

 private:
  explicit CallReport(std::string head) : head_(std::move(head)) {}
  void say(std::string_view text) const;

  const std::string head_;  // of every line
  std::mutex mutex_;        // calls against the exit of the process
  std::map<std::string, Row> rows_;
  std::vector<const Row*> order_;  // as they were first made
  std::set<std::string> notes_;
  bool full_ = false, finished_ = false;
};

}  // namespace muster
