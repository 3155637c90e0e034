#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/host.h"
#include "base/text.h"

namespace muster {
namespace {

constexpr std::array<std::string_view, kTopics> kTopicNames = {"INIT", "COLL",  "P2P",  "SHM",       "NET", "GRAPH",   "TUNING", "ENV",     "ALLOC",
                                                              "CALL", "PROXY", "NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS",    "DESTROY", "ALLOC_HOST"};
constexpr std::array<std::string_view, 6> kLevelNames = {"", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"};

// Where lines go. Held by who writes, so that a change of settings closes nothing under them.
struct Sink {
  Fd file;
  int descriptor = STDERR_FILENO;
};

struct State {
  std::mutex mutex;  // held for moments only, never while writing
  std::shared_ptr<const LogSettings> settings = std::make_shared<LogSettings>();
  std::shared_ptr<Sink> sink;  // null: not needed yet
  int generation = -1;         // of `sink`; a forked child's process number makes another file
};
State& state() {
  static auto* s = [] {
    // A child forked while another thread is in here finds it free.
    pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); }, [] { state().mutex.unlock(); });
    return new State;  // threads may write while the process ends
  }();
  return *s;
}
// Copies of what is looked at before a message is even made.
std::atomic<LogLevel> g_level{LogLevel::warn};
std::atomic<uint32_t> g_topics{~0u};
std::atomic<bool> g_info_after_warning{false};

thread_local int t_rank = -1;

// Returns errno; 0: all of it is written.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(descriptor, text.data(), text.size());  // one write, so that lines of several ranks don't mix
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

std::string file_name(std::string_view pattern) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'h') {
      std::string host = host_name();
      for (char& c : host)
        if (c == '/' || c == '%') c = '-';
      name += host;
    } else if (next == 'p') {
      name += std::to_string(getpid());
    } else if (next == '%') {
      name += '%';
    } else {
      name += pattern[i];
      continue;
    }
    ++i;
  }
  return name;
}

std::string prefix(LogLevel level) {
  return fmt::format("{}:{}:{} [{}] Muster {} ", host_name(), getpid(), gettid(), t_rank < 0 ? "-" : std::to_string(t_rank),
                     kLevelNames[static_cast<size_t>(level)]);
}

void say_on_stderr(const std::string& why) { write_all(STDERR_FILENO, prefix(LogLevel::warn) + printable(why) + "\n"); }

std::shared_ptr<Sink> open_sink(const std::string& pattern) {
  auto sink = std::make_shared<Sink>();
  const std::string name = file_name(pattern);
  if (name.empty() || name == "/dev/stderr") return sink;
  if (name == "/dev/stdout") {
    sink->descriptor = STDOUT_FILENO;
    return sink;
  }
  // Added to, never emptied: processes may have been given one name.
  sink->file = Fd(open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
  if (sink->file) {
    sink->descriptor = sink->file.get();
    fcntl(sink->descriptor, F_SETFL, O_APPEND);  // only opening mustn't wait, for somebody who reads a pipe
  } else {
    say_on_stderr(fmt::format("NCCL_DEBUG_FILE='{}': {} can't be opened: {}. Lines go to stderr", pattern, name, describe_errno(errno)));
  }
  return sink;
}

void put(const LogSettings& settings, std::string_view line) {
  State& s = state();
  std::shared_ptr<Sink> sink;
  {
    std::lock_guard lock(s.mutex);
    if (!s.sink || s.generation != fork_generation()) {
      s.sink = open_sink(settings.file);
      s.generation = fork_generation();
    }
    sink = s.sink;
  }
  const int error = write_all(sink->descriptor, line);
  if (!error || sink->descriptor == STDERR_FILENO) return;
  bool first = false;
  {
    std::lock_guard lock(s.mutex);
    if (s.sink == sink) {
      s.sink = std::make_shared<Sink>();
      first = true;
    }
  }
  if (first)
    say_on_stderr(fmt::format("{} can't be written: {}. Lines go to stderr", settings.file, describe_errno(error)));
  write_all(STDERR_FILENO, line);
}

std::shared_ptr<const LogSettings> current() {
  std::lock_guard lock(state().mutex);
  return state().settings;
}

// %3f and the like become digits, '_' a blank, since blanks are hard to put into variables; the rest is strftime's.
std::string time_text(const std::string& format) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::string pattern;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] == '%' && i + 1 < format.size()) {
      if (i + 2 < format.size() && format[i + 1] >= '1' && format[i + 1] <= '9' && format[i + 2] == 'f') {
        pattern += fmt::format("{:09}", now.tv_nsec).substr(0, static_cast<size_t>(format[i + 1] - '0'));
        i += 2;
      } else {
        pattern += format[i];
        pattern += format[++i];
      }
    } else if (format[i] == '%') {
      pattern += "%%";
    } else {
      pattern += format[i] == '_' ? ' ' : format[i];
    }
  }
  tm parts{};
  localtime_r(&now.tv_sec, &parts);
  char text[256];
  return {text, strftime(text, sizeof text, pattern.c_str(), &parts)};
}

}  // namespace

std::string_view name_of(Topic t) {
  const auto i = static_cast<size_t>(t);
  return i < kTopicNames.size() ? kTopicNames[i] : "?";
}

std::optional<Topic> find_topic(std::string_view name) {
  for (size_t i = 0; i < kTopicNames.size(); ++i)
    if (lower(name) == lower(kTopicNames[i])) return static_cast<Topic>(i);
  return std::nullopt;
}

void configure_log(const LogSettings& settings) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (*s.settings == settings) return;
  if (s.settings->file != settings.file) s.sink = nullptr;
  s.settings = std::make_shared<LogSettings>(settings);
  g_level.store(settings.level, std::memory_order_relaxed);
  g_topics.store(settings.topics, std::memory_order_relaxed);
  g_info_after_warning.store(settings.info_after_warning, std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) { return level <= g_level.load(std::memory_order_relaxed); }
bool log_enabled(LogLevel level, Topic topic) {
  return log_enabled(level) && (g_topics.load(std::memory_order_relaxed) >> static_cast<int>(topic) & 1);
}

void log_line(LogLevel level, std::optional<Topic> topic, std::string_view text) {
  const int error = errno;
  std::shared_ptr<const LogSettings> settings;
  std::string line;
  {
    std::lock_guard lock(state().mutex);
    settings = state().settings;
    // Inside the lock: the C library has one of its own here, which a fork must not find taken.
    if (settings->timed >> static_cast<int>(level) & 1) line = time_text(settings->time_format);
  }
  line += prefix(level);
  if (topic) line.append(name_of(*topic)) += ' ';
  line += printable(text);
  line += '\n';
  put(*settings, line);
  if (level == LogLevel::warn && g_info_after_warning.load(std::memory_order_relaxed) && !log_enabled(LogLevel::info))
    g_level.store(LogLevel::info, std::memory_order_relaxed);
  errno = error;
}

void log_plain(std::string_view text) {
  const int error = errno;
  put(*current(), printable(text) + "\n");
  errno = error;
}

LogRank::LogRank(int rank) : before_(t_rank) { t_rank = rank; }
LogRank::~LogRank() { t_rank = before_; }

}  // namespace muster
