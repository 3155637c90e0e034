#include "base/log.h"

#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <ctime>
#include <string>

#include "base/error.h"

namespace muster {
namespace {
constexpr std::array<std::string_view, 6> kNames = {"off", "error", "warn", "info", "debug", "trace"};
std::atomic<LogLevel> g_level{LogLevel::warn};
}  // namespace

LogLevel parse_log_level(std::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (text == kNames[i]) return static_cast<LogLevel>(i);
  fail(Result::invalid_usage, "MUSTER_LOG='{}' can't be read: off, error, warn, info, debug or trace is wanted", text);
}

void set_log_level(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }
bool log_enabled(LogLevel level) { return level <= g_level.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view text) {
  timeval now{};
  gettimeofday(&now, nullptr);
  tm parts{};
  localtime_r(&now.tv_sec, &parts);
  char host[65] = "?";
  gethostname(host, sizeof host - 1);
  const std::string line = fmt::format("[{:02}:{:02}:{:02}.{:03} {} {} muster {}] {}\n", parts.tm_hour, parts.tm_min, parts.tm_sec,
                                       now.tv_usec / 1000, host, getpid(), kNames[static_cast<size_t>(level)], text);
  // One write, so that lines of several ranks don't mix.
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace muster
