#include "comm/call_report.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/math.h"

namespace muster {
namespace {

// Those that report when the process exits. A forked child has a list of its own: its parent's calls aren't
// its.
struct Reports {
  const int generation = fork_generation();
  std::mutex mutex;
  std::vector<std::weak_ptr<CallReport>> all;
};
std::atomic<Reports*> g_reports{nullptr};  // never deleted: threads may still run while the process exits

void finish_all() {
  Reports* const reports = g_reports.load();
  if (!reports || reports->generation != fork_generation()) return;
  const std::lock_guard lock(reports->mutex);
  for (const std::weak_ptr<CallReport>& weak : reports->all)
    if (const std::shared_ptr<CallReport> report = weak.lock()) report->finish();
}

void remember(const std::shared_ptr<CallReport>& report) {
  [[maybe_unused]] static const int registered = std::atexit(finish_all);
  Reports* reports = g_reports.load();
  while (!reports || reports->generation != fork_generation()) {
    auto fresh = std::make_unique<Reports>();
    if (g_reports.compare_exchange_strong(reports, fresh.get())) reports = fresh.release();
  }
  const std::lock_guard lock(reports->mutex);
  std::erase_if(reports->all, [](const auto& weak) { return weak.expired(); });
  reports->all.push_back(report);
}

// "0.15", "12.3", "4567"
std::string microseconds(double us) {
  return us >= 100 ? fmt::format("{:.0f}", us) : fmt::format("{:.3g}", us);
}

}  // namespace

bool wants_report(const Options& options, int rank) {
  const std::string& ranks = options.text("MUSTER_EXPLAIN");
  if (ranks != "0" && ranks != "1" && ranks != "all")
    fail(Result::invalid_usage,
         "MUSTER_EXPLAIN='{}': 0, 1 (rank 0 of each communicator reports) or all (every rank does) wanted",
         ranks);
  return ranks == "all" || (ranks == "1" && rank == 0);
}

void CallDurations::add(double us) {
  least_ = count_ ? std::min(least_, us) : us;
  if (sample_.size() < kMost)
    sample_.push_back(static_cast<float>(us));
  else if (const uint64_t at = mix64(count_) % (count_ + 1);
           at < kMost)  // reservoir sampling: Vitter's algorithm R (1985)
    sample_[at] = static_cast<float>(us);
  ++count_;
}

double CallDurations::median() const {
  if (sample_.empty()) return 0;
  std::vector<float> sorted = sample_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return sorted.size() % 2 ? *middle : (*middle + *std::max_element(sorted.begin(), middle)) / 2.0;
}

std::shared_ptr<CallReport> CallReport::make(const std::string& communicator, int rank) {
  const std::shared_ptr<CallReport> report(
      new CallReport(fmt::format("Muster EXPLAIN {} rank {}: ", communicator, rank)));
  remember(report);
  return report;
}

void CallReport::say(std::string_view text) const { log_plain(head_ + std::string(text)); }

CallReport::Row* CallReport::row(const std::string& call, const std::string& description, Way slots,
                                 Way windows) {
  const std::lock_guard lock(mutex_);
  if (const auto known = rows_.find(call); known != rows_.end()) return &known->second;
  if (rows_.size() == kMostRows) {
    if (!std::exchange(full_, true))
      say(fmt::format("{} distinct calls were explained; further ones aren't", kMostRows));
    return nullptr;
  }
  Row& made = rows_[call];
  made = {call, std::move(slots), std::move(windows)};
  order_.push_back(&made);
  say(fmt::format("{}; predicted {} us{}", description, microseconds(made.slots.predicted_us),
                  made.windows.algorithm.empty() ? ""
                                                 : fmt::format(", {} us in mem_alloc's memory",
                                                               microseconds(made.windows.predicted_us))));
  return &made;
}

void CallReport::note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (notes_.size() < kMostRows && notes_.insert(text).second) say(text);
}

void CallReport::add(Way& way, std::chrono::nanoseconds took) {
  const std::lock_guard lock(mutex_);
  way.durations.add(static_cast<double>(took.count()) / 1e3);
}

void CallReport::finish() noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) return;
    bool headed = false;
    for (const Row* row : order_)
      for (const Way* way : {&row->slots, &row->windows}) {
        const CallDurations& d = way->durations;
        if (d.count() == 0) continue;
        if (!std::exchange(headed, true))
          say(fmt::format("{:>9} {:>12} {:>9} {:>9} {:>16}  {}", "calls", "predicted us", "median us",
                          "min us", "median/predicted", "what"));
        say(fmt::format("{:>9} {:>12} {:>9} {:>9} {:>16.2f}  {} by {}", d.count(),
                        microseconds(way->predicted_us), microseconds(d.median()), microseconds(d.least()),
                        d.median() / way->predicted_us, row->call, way->algorithm));
      }
  } catch (const std::exception&) {  // no memory left for a report
  }
}

}  // namespace muster
