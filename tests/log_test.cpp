// The log: shape of lines, levels, topics, times, files; and that options are told once.
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "base/host.h"
#include "base/log_options.h"
#include "base/text.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::outcome_of;
using test::run_processes;
using test::run_threads;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// What goes to stderr (or stdout) meanwhile.
std::string said(const std::function<void()>& f) {
  testing::internal::CaptureStderr();
  f();
  return testing::internal::GetCapturedStderr();
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// Settings as these variables make them.
LogSettings settings(std::vector<OptionNote>* notes = nullptr) {
  std::vector<OptionNote> own;
  return log_settings(Options::from_environment("/nonexistent"), notes ? *notes : own);
}

class Log : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/muster_log_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder = name;
    configure_log({});
  }
  void TearDown() override {
    configure_log({});
    std::system(("rm -r " + folder).c_str());
  }
  std::string read(const std::string& name) {
    std::ifstream in(folder + "/" + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string folder;
};

TEST_F(Log, LinesHaveTheShapeOfNccls) {
  const std::string who = fmt::format("{}:{}:{} ", host_name(), getpid(), gettid());
  EXPECT_EQ(said([] {
              configure_log({.level = LogLevel::trace, .timed = 0});
              log_warn("a {}", 1);
              log_info(Topic::net, "b");
              const LogRank rank(3);
              log_debug(Topic::bootstrap, "c\nd\x1b[1m");
              {
                const LogRank inner(12);
                log_error("e");
              }
              log_error("f");
            }),
            who + "[-] Muster WARN a 1\n" + who + "[-] Muster INFO NET b\n" + who + "[3] Muster DEBUG BOOTSTRAP c d [1m\n" + who + "[12] Muster ERROR e\n" + who +
                "[3] Muster ERROR f\n");
}

TEST_F(Log, LevelsAndTopicsChoose) {
  const auto all = [] {
    log_error("E");
    log_warn("W");
    log_info(Topic::init, "I1");
    log_info(Topic::coll, "I2");
    log_debug(Topic::init, "D");
  };
  const auto out = [&](LogSettings s) {
    configure_log(s);
    std::string r;
    for (const std::string_view line : split(said(all), '\n')) r += line.empty() ? "" : std::string(line.substr(line.rfind(' ') + 1)) + " ";
    return r;
  };
  EXPECT_EQ(out({.level = LogLevel::off}), "");
  EXPECT_EQ(out({.level = LogLevel::error}), "E ");
  EXPECT_EQ(out({.level = LogLevel::warn}), "E W ");
  EXPECT_EQ(out({.level = LogLevel::info}), "E W I1 I2 ");
  EXPECT_EQ(out({.level = LogLevel::debug}), "E W I1 I2 D ");
  EXPECT_EQ(out({.level = LogLevel::info, .topics = 1u << static_cast<int>(Topic::coll)}), "E W I2 ");
  EXPECT_EQ(out({.level = LogLevel::trace, .topics = 0}), "E W ");
  EXPECT_EQ(out({.level = LogLevel::warn, .info_after_warning = true}), "E W I1 I2 ");
}

TEST_F(Log, TimesAreAsAsked) {
  const auto prefix = [](const std::string& format) {
    LogSettings s;
    s.time_format = format;
    configure_log(s);
    const std::string line = said([] { log_warn("x"); });
    return line.substr(0, line.find(host_name()));
  };
  EXPECT_TRUE(std::regex_match(prefix("[%F %T] "), std::regex(R"(\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] )")));
  EXPECT_TRUE(std::regex_match(prefix("%T.%3f_"), std::regex(R"(\d\d:\d\d:\d\d\.\d{3} )")));
  EXPECT_TRUE(std::regex_match(prefix("%9f|"), std::regex(R"(\d{9}\|)")));
  EXPECT_EQ(prefix(""), "");
  EXPECT_EQ(prefix("100%%_"), "100% ");
  EXPECT_EQ(prefix("x%"), "x%");
  EXPECT_EQ(prefix(std::string(1000, '%') + "Y"), "");  // too long to say
  LogSettings s;
  s.level = LogLevel::info;
  configure_log(s);
  EXPECT_THAT(said([] { log_warn("x"); }), StartsWith("["));
  EXPECT_THAT(said([] { log_info(Topic::init, "x"); }), StartsWith(host_name()));
}

// --- files ---

TEST_F(Log, GoesToAFileMadeWhenNeeded) {
  LogSettings s;
  s.file = folder + "/log.%h.%p.%%.%x";
  const std::string name = fmt::format("log.{}.{}.%.%x", host_name(), getpid());
  configure_log(s);
  EXPECT_NE(access((folder + "/" + name).c_str(), F_OK), 0);
  EXPECT_EQ(said([] { log_warn("first"); }), "");
  EXPECT_EQ(said([] { log_warn("second"); }), "");
  EXPECT_THAT(read(name), AllOf(HasSubstr("first\n"), HasSubstr("second\n")));
}

TEST_F(Log, AddsToAFileOfOthers) {
  std::ofstream(folder + "/log") << "before\n";
  LogSettings s;
  s.file = folder + "/log";
  configure_log(s);
  log_warn("mine");
  std::ofstream(folder + "/log", std::ios::app) << "theirs\n";
  log_warn("mine again");
  EXPECT_THAT(read("log"), AllOf(StartsWith("before\n"), HasSubstr("mine\ntheirs\n"), HasSubstr("mine again\n")));
}

TEST_F(Log, ThatCannotBeOpenedGoesToStderr) {
  LogSettings s;
  s.file = folder + "/none/log";
  configure_log(s);
  const std::string text = said([] {
    log_warn("one");
    log_warn("two");
  });
  EXPECT_EQ(count(text, "NCCL_DEBUG_FILE="), 1u);
  EXPECT_THAT(text, AllOf(HasSubstr(s.file), HasSubstr("ENOENT"), HasSubstr("WARN one\n"), HasSubstr("WARN two\n")));
  s.file = folder + "/pipe";
  ASSERT_EQ(mkfifo(s.file.c_str(), 0600), 0);
  configure_log(s);  // nobody reads it, and nobody waits for that
  EXPECT_THAT(said([] { log_warn("three"); }), AllOf(HasSubstr("ENXIO"), HasSubstr("three")));
}

TEST_F(Log, ThatCannotBeWrittenGoesToStderr) {
  LogSettings s;
  s.file = "/dev/full";
  configure_log(s);
  const std::string text = said([] {
    log_warn("one");
    log_warn("two");
  });
  EXPECT_EQ(count(text, "ENOSPC"), 1u);
  EXPECT_THAT(text, AllOf(HasSubstr("WARN one\n"), HasSubstr("WARN two\n")));
}

TEST_F(Log, KnowsTheStandardStreams) {
  LogSettings s;
  s.file = "/dev/stdout";
  configure_log(s);
  testing::internal::CaptureStdout();
  EXPECT_EQ(said([] { log_warn("out"); }), "");
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("out\n"));
  s.file = "/dev/stderr";
  configure_log(s);
  EXPECT_THAT(said([] { log_warn("err"); }), HasSubstr("err\n"));
}

TEST_F(Log, OfAForkedChildHasItsOwnFile) {
  LogSettings s;
  s.file = folder + "/%p";
  configure_log(s);
  log_warn("parent");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    log_warn("child");
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_THAT(read(std::to_string(getpid())), AllOf(HasSubstr("parent\n"), Not(HasSubstr("child"))));
  EXPECT_THAT(read(std::to_string(child)), AllOf(HasSubstr("child\n"), Not(HasSubstr("parent"))));
}

TEST_F(Log, WorksInChildrenForkedWhileThreadsWrite) {
  LogSettings s;
  s.file = folder + "/log";
  configure_log(s);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!stop) log_warn("x");
    });
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // ends it if it waits for a lock that nobody holds
      log_warn("child");
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  for (std::thread& t : threads) t.join();
}

TEST_F(Log, LinesOfThreadsStayWhole) {
  LogSettings s;
  s.file = folder + "/log";
  s.timed = 0;
  configure_log(s);
  constexpr int kThreads = 4, kLines = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const LogRank rank(t);
      for (int i = 0; i < kLines; ++i) {
        log_warn("{} {} {}", t, i, std::string(static_cast<size_t>(i % 97), 'x'));
        if (i % 100 == 0) configure_log(i % 200 ? LogSettings{s} : [&] { LogSettings c = s; c.level = LogLevel::info; return c; }());
      }
    });
  for (std::thread& t : threads) t.join();
  std::ifstream in(folder + "/log");
  const std::regex shape(R"(\S+:\d+:\d+ \[(\d)\] Muster WARN (\d) (\d+) x*)");
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    std::smatch m;
    ASSERT_TRUE(std::regex_match(line, m, shape)) << line;
    EXPECT_EQ(m[1], m[2]);
  }
  EXPECT_EQ(lines, kThreads * kLines);
}

TEST_F(Log, LeavesErrnoAlone) {
  LogSettings s;
  s.file = folder + "/none/log";
  configure_log(s);
  testing::internal::CaptureStderr();
  errno = EXDEV;
  log_warn("x");
  EXPECT_EQ(errno, EXDEV);
  testing::internal::GetCapturedStderr();
}

// --- options ---

TEST_F(Log, LevelIsNcclsUnlessMusterHasOne) {
  struct Case {
    const char *nccl, *muster;
    LogLevel level;
  };
  for (const Case& c : std::vector<Case>{{"", "", LogLevel::warn}, {"VERSION", "", LogLevel::warn}, {"WARN", "", LogLevel::warn}, {"warn", "", LogLevel::warn},
                                         {" Info ", "", LogLevel::info}, {"ABORT", "", LogLevel::info}, {"TRACE", "", LogLevel::trace}, {"INFO", "off", LogLevel::off},
                                         {"WARN", "debug", LogLevel::debug}}) {
    const Variable a("NCCL_DEBUG", c.nccl), b("MUSTER_LOG", c.muster), none("NCCL_DEBUG_SUBSYS", std::nullopt);
    std::vector<OptionNote> notes;
    EXPECT_EQ(settings(&notes).level, c.level) << c.nccl << " " << c.muster;
    EXPECT_THAT(notes, IsEmpty());
  }
  for (const char* wrong : {"1", "DEBUG", "yes"}) {
    const Variable a("NCCL_DEBUG", wrong), b("MUSTER_LOG", std::nullopt);
    std::vector<OptionNote> notes;
    EXPECT_EQ(settings(&notes).level, LogLevel::warn);
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_TRUE(notes[0].warning);
    EXPECT_THAT(notes[0].text, AllOf(HasSubstr(std::string("NCCL_DEBUG='") + wrong + "'"), HasSubstr("INFO"), HasSubstr("warn is used")));
  }
  const Variable wrong("MUSTER_LOG", "loud");
  EXPECT_EQ(outcome_of([] { settings(); }).code, Result::invalid_usage);
}

TEST_F(Log, ListsOfTopicsAreReadAsNccls) {
  const auto topics = [](std::vector<Topic> list) {
    uint32_t bits = 0;
    for (const Topic t : list) bits |= 1u << static_cast<int>(t);
    return bits;
  };
  const Variable level("MUSTER_LOG", std::nullopt);
  for (const auto& [text, bits] : std::vector<std::pair<const char*, uint32_t>>{{"", topics({Topic::init, Topic::bootstrap, Topic::env})},
                                                                                {"COLL", topics({Topic::coll})},
                                                                                {"init, Net", topics({Topic::init, Topic::net})},
                                                                                {"^COLL,P2P", ~topics({Topic::coll, Topic::p2p})},
                                                                                {"^COLL,^P2P", ~topics({Topic::coll, Topic::p2p})},
                                                                                {"INIT,NET,^NET", topics({Topic::init})},
                                                                                {"ALL", ~0u},
                                                                                {"ALL,^TUNING", ~topics({Topic::tuning})},
                                                                                {"^ALL", 0},
                                                                                {",", 0}}) {
    const Variable set("NCCL_DEBUG_SUBSYS", text);
    std::vector<OptionNote> notes;
    EXPECT_EQ(settings(&notes).topics, bits) << text;
    EXPECT_THAT(notes, IsEmpty()) << text;
  }
  const Variable set("NCCL_DEBUG_SUBSYS", "INIT,COLLS,NET");
  std::vector<OptionNote> notes;
  EXPECT_EQ(settings(&notes).topics, topics({Topic::init, Topic::net}));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0].text, HasSubstr("'COLLS'"));
  for (int t = 0; t < kTopics; ++t) EXPECT_EQ(find_topic(name_of(static_cast<Topic>(t))), static_cast<Topic>(t));
  const Variable no_list("NCCL_DEBUG_SUBSYS", std::nullopt), ours("MUSTER_LOG", "info");
  EXPECT_EQ(settings().topics, ~0u);
}

TEST_F(Log, TimesMayBeSwitchedOffByNothing) {
  const uint32_t warn = 1u << static_cast<int>(LogLevel::warn), info = 1u << static_cast<int>(LogLevel::info);
  {
    const Variable a("NCCL_DEBUG_TIMESTAMP_LEVELS", ""), b("NCCL_DEBUG_TIMESTAMP_FORMAT", "");
    EXPECT_EQ(settings().timed, 0u);
    EXPECT_EQ(settings().time_format, "");
  }
  {
    const Variable a("NCCL_DEBUG_TIMESTAMP_LEVELS", std::nullopt), b("NCCL_DEBUG_TIMESTAMP_FORMAT", std::nullopt);
    EXPECT_TRUE(settings().timed & warn);
    EXPECT_FALSE(settings().timed & info);
    EXPECT_EQ(settings().time_format, "[%F %T] ");
  }
  const Variable a("NCCL_DEBUG_TIMESTAMP_LEVELS", "^warn");
  EXPECT_FALSE(settings().timed & warn);
  EXPECT_TRUE(settings().timed & info);
}

// What is set is told once in a process, whatever number of communicators it makes; each rank in its own process.
TEST_F(Log, OptionsAreToldOnceInAProcess) {
  run_processes(2, [](int rank) {
    setenv("NCCL_DEBUG", "INFO", 1);
    unsetenv("MUSTER_LOG");
    unsetenv("NCCL_DEBUG_SUBSYS");
    unsetenv("NCCL_DEBUG_FILE");
    setenv("NCCL_NTHREADS", "22", 1);
    setenv("NCCL_IB_TC", "high", 1);
    setenv("NCCL_SOKCET_IFNAME", "eth0", 1);
    const std::string text = said([] {
      for (int i = 0; i < 3; ++i) Communicator::from_environment().barrier();
      Communicator::init_all(2);
    });
    EXPECT_EQ(count(text, "NCCL_NTHREADS='22' (environment) has no effect: it is about GPUs, and this build moves data between host memories only\n"), 1u) << text;
    EXPECT_EQ(count(text, "WARN NCCL_IB_TC='high' can't be read"), 1u) << text;
    EXPECT_EQ(count(text, "Is NCCL_SOCKET_IFNAME meant?"), 1u) << text;
    EXPECT_EQ(count(text, "Muster version "), 1u) << text;  // rank 1 of init_all's is no head, its rank 0 is
    EXPECT_THAT(text, testing::ContainsRegex(fmt::format("\\[{}\\] Muster INFO INIT communicator [^ ]+: rank {} of 2", rank, rank)));
    EXPECT_EQ(text.find("muster_job_key"), text.npos);
  });
}

TEST_F(Log, IsQuietUnlessAsked) {
  run_processes(2, [](int) {
    for (const char* name : {"NCCL_DEBUG", "MUSTER_LOG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}) unsetenv(name);
    setenv("NCCL_NTHREADS", "22", 1);
    EXPECT_EQ(said([] { Communicator::from_environment().barrier(); }), "");
  });
}

TEST_F(Log, OfAJobGoesToAFilePerProcess) {
  const Variable where("MUSTER_TEST_FOLDER", folder), debug("NCCL_DEBUG", "INFO"), level("MUSTER_LOG", std::nullopt), topics("NCCL_DEBUG_SUBSYS", std::nullopt);
  run_processes(2, [](int rank) {
    const std::string at = std::getenv("MUSTER_TEST_FOLDER");
    setenv("NCCL_DEBUG_FILE", (at + "/job.%h.%p").c_str(), 1);
    EXPECT_EQ(said([] { Communicator::from_environment().barrier(); }), "");
    std::ifstream in(fmt::format("{}/job.{}.{}", at, host_name(), getpid()));
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_THAT(text, HasSubstr(fmt::format("rank {} of 2", rank)));
  });
}

}  // namespace
}  // namespace muster
