// One line per message, to stderr or a file of the user's choice:
//   [2026-01-31 12:00:00] host:pid:tid [rank] Muster WARN text
//   host:pid:tid [-] Muster INFO BOOTSTRAP text
// Lines of NCCL's are shaped so, too; [-]: not said on behalf of one rank. Any thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

enum class LogLevel : int { off = 0, error, warn, info, debug, trace };

// What a message of level info or more is about, by NCCL's names. Those not used by any message may still be asked for.
enum class Topic : int {
  init, coll, p2p, shm, net, graph, tuning, env, alloc, call, proxy, nvls, bootstrap, reg, profile, ras, destroy, alloc_host
};
inline constexpr int kTopics = 18;
std::string_view name_of(Topic t);                         // "BOOTSTRAP"
std::optional<Topic> find_topic(std::string_view name);    // in any case

struct LogSettings {
  LogLevel level = LogLevel::warn;
  uint32_t topics = ~0u;                    // 1 << Topic
  uint32_t timed = 1u << static_cast<int>(LogLevel::error) | 1u << static_cast<int>(LogLevel::warn);  // 1 << LogLevel: begins with the time
  std::string time_format = "[%F %T] ";     // strftime's; also %1f to %9f, digits of the second's fraction
  std::string file;                         // %h: host, %p: process, %%; empty: stderr. Made when first needed, added to
  bool info_after_warning = false;          // the first warning raises the level to info
  friend bool operator==(const LogSettings&, const LogSettings&) = default;
};

void configure_log(const LogSettings& settings);  // of this process; cheap if nothing changes
bool log_enabled(LogLevel level);
bool log_enabled(LogLevel level, Topic topic);
// What can't be written to the file goes to stderr, and the first time a line there says why. Leaves errno alone.
void log_line(LogLevel level, std::optional<Topic> topic, std::string_view text);
// The text alone.
void log_plain(std::string_view text);

// Names the rank in the lines of this thread while it lives.
class LogRank {
 public:
  explicit LogRank(int rank);
  ~LogRank();
  LogRank(const LogRank&) = delete;
  LogRank& operator=(const LogRank&) = delete;

 private:
  int before_;
};

template <class... Args>
void log_error(fmt::format_string<Args...> t, Args&&... a) {
  if (log_enabled(LogLevel::error)) log_line(LogLevel::error, std::nullopt, fmt::format(t, std::forward<Args>(a)...));
}
template <class... Args>
void log_warn(fmt::format_string<Args...> t, Args&&... a) {
  if (log_enabled(LogLevel::warn)) log_line(LogLevel::warn, std::nullopt, fmt::format(t, std::forward<Args>(a)...));
}
template <class... Args>
void log_info(Topic topic, fmt::format_string<Args...> t, Args&&... a) {
  if (log_enabled(LogLevel::info, topic)) log_line(LogLevel::info, topic, fmt::format(t, std::forward<Args>(a)...));
}
template <class... Args>
void log_debug(Topic topic, fmt::format_string<Args...> t, Args&&... a) {
  if (log_enabled(LogLevel::debug, topic)) log_line(LogLevel::debug, topic, fmt::format(t, std::forward<Args>(a)...));
}

}  // namespace muster
