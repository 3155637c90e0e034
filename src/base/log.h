// One line to stderr per message, with time, host and process: log_warn("rank {} is late", r).
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace muster {

enum class LogLevel : int { off = 0, error, warn, info, debug, trace };

LogLevel parse_log_level(std::string_view text);  // throws invalid_usage
void set_log_level(LogLevel level);               // from MUSTER_LOG when a communicator is made
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);

template <class... Args>
void log_error(fmt::format_string<Args...> t, Args&&... a) {
  if (log_enabled(LogLevel::error)) log_line(LogLevel::error, fmt::format(t, std::forward<Args>(a)...));
}
template <class... Args>
void log_warn(fmt::format_string<Args...> t, Args&&... a) {
  if (log_enabled(LogLevel::warn)) log_line(LogLevel::warn, fmt::format(t, std::forward<Args>(a)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> t, Args&&... a) {
  if (log_enabled(LogLevel::info)) log_line(LogLevel::info, fmt::format(t, std::forward<Args>(a)...));
}
template <class... Args>
void log_debug(fmt::format_string<Args...> t, Args&&... a) {
  if (log_enabled(LogLevel::debug)) log_line(LogLevel::debug, fmt::format(t, std::forward<Args>(a)...));
}

}  // namespace muster
