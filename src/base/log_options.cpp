#include "base/log_options.h"

#include <pthread.h>

#include <array>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace muster {
namespace {

constexpr std::array<std::string_view, 6> kMusterLevels = {"off", "error", "warn", "info", "debug", "trace"};

LogLevel muster_level(const std::string& text) {
  for (size_t i = 0; i < kMusterLevels.size(); ++i)
    if (text == kMusterLevels[i]) return static_cast<LogLevel>(i);
  fail(Result::invalid_usage, "MUSTER_LOG='{}' can't be read: {} is wanted", printable(text, 60), fmt::join(kMusterLevels, ", "));
}

constexpr uint32_t bit(LogLevel l) { return 1u << static_cast<int>(l); }
constexpr uint32_t bit(Topic t) { return 1u << static_cast<int>(t); }

struct Word {
  std::string_view name;  // lower case
  uint32_t bits;
};

// NCCL's lists: words of any case, separated by commas. ^ in front of the list: all but these; in front of a later word:
// without it. "all" is every word.
template <class Find>
uint32_t read_list(const char* name, const std::string& text, Find find, std::vector<OptionNote>& notes) {
  const bool inverted = trim(text).starts_with('^');
  uint32_t bits = inverted ? ~0u : 0;
  for (std::string_view word : split(text, ',')) {
    word = trim(word);
    const bool without = inverted || word.starts_with('^');
    if (word.starts_with('^')) word = trim(word.substr(1));
    if (word.empty()) continue;
    const std::optional<uint32_t> found = lower(word) == "all" ? ~0u : find(word);
    if (!found)
      notes.push_back({true, name, fmt::format("{}='{}': '{}' is no word of it and is passed over", name, printable(text, 200), printable(word, 60))});
    else if (without)
      bits &= ~*found;
    else
      bits |= *found;
  }
  return bits;
}

std::optional<uint32_t> timed_level(std::string_view word) {
  constexpr Word kWords[] = {{"version", 0},
                             {"warn", bit(LogLevel::warn) | bit(LogLevel::error)},
                             {"info", bit(LogLevel::info)},
                             {"abort", 0},
                             {"trace", bit(LogLevel::debug) | bit(LogLevel::trace)}};
  for (const Word& w : kWords)
    if (lower(word) == w.name) return w.bits;
  return std::nullopt;
}

std::optional<LogLevel> nccl_level(std::string_view text) {
  const std::string word = lower(trim(text));
  if (word == "version" || word == "warn") return LogLevel::warn;
  if (word == "info" || word == "abort") return LogLevel::info;  // NCCL's ABORT lies between INFO and TRACE and has no lines of its own
  if (word == "trace") return LogLevel::trace;
  return std::nullopt;
}

struct Said {
  std::mutex mutex;
  std::set<std::string> texts;
};
Said& said() {
  static auto* s = [] {
    pthread_atfork([] { said().mutex.lock(); }, [] { said().mutex.unlock(); }, [] { said().mutex.unlock(); });
    return new Said;  // threads may make communicators while the process ends
  }();
  return *s;
}

}  // namespace

void log_once(const OptionNote& note) {
  constexpr size_t kMost = 4096;  // a program may go on changing its environment
  if (!(note.warning ? log_enabled(LogLevel::warn) : log_enabled(LogLevel::info, Topic::env))) return;
  {
    Said& s = said();
    std::lock_guard lock(s.mutex);
    if (s.texts.size() >= kMost || !s.texts.insert(note.text).second) return;
  }
  if (note.warning)
    log_warn("{}", note.text);
  else
    log_info(Topic::env, "{}", note.text);
}

LogSettings log_settings(const Options& options, std::vector<OptionNote>& notes) {
  LogSettings s;
  const std::string& debug = options.text("NCCL_DEBUG");
  const auto level = nccl_level(debug);
  if (options.is_set("MUSTER_LOG"))
    s.level = muster_level(options.text("MUSTER_LOG"));
  else if (level)
    s.level = *level;
  if (options.is_set("NCCL_DEBUG") && !level)
    notes.push_back({true, "NCCL_DEBUG",
                     fmt::format("NCCL_DEBUG='{}' can't be read: VERSION, WARN, INFO, ABORT or TRACE is wanted. {} is used", printable(debug, 60),
                                 kMusterLevels[static_cast<size_t>(s.level)])});
  if (options.is_set("NCCL_DEBUG_SUBSYS")) {
    const auto topic = [](std::string_view word) -> std::optional<uint32_t> {
      if (const auto t = find_topic(word)) return bit(*t);
      return std::nullopt;
    };
    s.topics = read_list("NCCL_DEBUG_SUBSYS", options.text("NCCL_DEBUG_SUBSYS"), topic, notes);
  } else if (!options.is_set("MUSTER_LOG")) {
    s.topics = bit(Topic::init) | bit(Topic::bootstrap) | bit(Topic::env);
  }
  if (options.is_set("NCCL_DEBUG_TIMESTAMP_LEVELS"))
    s.timed = read_list("NCCL_DEBUG_TIMESTAMP_LEVELS", options.text("NCCL_DEBUG_TIMESTAMP_LEVELS"), timed_level, notes);
  if (options.is_set("NCCL_DEBUG_TIMESTAMP_FORMAT")) s.time_format = options.text("NCCL_DEBUG_TIMESTAMP_FORMAT");
  s.file = options.text("NCCL_DEBUG_FILE");
  s.info_after_warning = options.flag("NCCL_WARN_ENABLE_DEBUG_INFO");
  return s;
}

void start_logging(const Options& options, bool head) {
  std::vector<OptionNote> notes;
  configure_log(log_settings(options, notes));
  if (head && log_enabled(LogLevel::warn) && nccl_level(options.text("NCCL_DEBUG"))) {
    static std::once_flag once;
    std::call_once(once, [] { log_plain("Muster version " MUSTER_VERSION); });
  }
  for (const OptionNote& note : options.notes()) log_once(note);
  for (const OptionNote& note : notes) log_once(note);
}

}  // namespace muster
