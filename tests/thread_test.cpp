// The library's threads: they block signals, and where the system refuses one that is an error like others.
#include "base/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <set>

#include "base/error.h"
#include "support/outcome.h"
#include "support/processes.h"

namespace muster {
namespace {

using test::Outcome;
using test::outcome_of;
using test::run_processes;
using testing::HasSubstr;

std::set<int> blocked_signals() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  std::set<int> r;
  for (int s = 1; s < SIGRTMAX; ++s)
    if (sigismember(&mask, s)) r.insert(s);
  return r;
}

// Stacks of new threads, of this process from now on.
void set_stack_size(size_t bytes) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  ASSERT_EQ(pthread_setattr_default_np(&attributes), 0);
  pthread_attr_destroy(&attributes);
}
constexpr size_t kImpossible = size_t{1} << 50;

void expect_refused(const Outcome& o) {
  EXPECT_EQ(o.code, Result::system_error) << o;
  EXPECT_THAT(o.text, HasSubstr("can't be started: EAGAIN"));
  EXPECT_THAT(o.text, HasSubstr("ulimit -u"));
}

TEST(Threads, BlockSignalsAndHaveNames) {
  const std::set<int> before = blocked_signals();
  std::set<int> inside;
  char name[16] = "";
  start_thread("a-name", [&] {
    inside = blocked_signals();
    pthread_getname_np(pthread_self(), name, sizeof name);
  }).join();
  for (const int s : {SIGINT, SIGTERM, SIGPROF, SIGUSR1, SIGCHLD}) EXPECT_TRUE(inside.count(s)) << s;
  EXPECT_STREQ(name, "a-name");
  EXPECT_EQ(blocked_signals(), before);
}

TEST(Threads, SideBySideEndTogetherWithTheFirstError) {
  std::atomic<int> here{0};
  run_side_by_side("side", 8, [&](size_t) {
    ++here;
    while (here < 8) std::this_thread::yield();
  });
  run_side_by_side("side", 0, [](size_t) { FAIL(); });
  const Outcome o = outcome_of([&] {
    run_side_by_side("side", 5, [&](size_t i) {
      ++here;
      if (i >= 2) fail(Result::timeout, "number {}", i);
    });
  });
  EXPECT_EQ(o.code, Result::timeout);
  EXPECT_EQ(o.text, "number 2");
  EXPECT_EQ(here, 13);
}

TEST(Threads, RefusedOnesLeaveTheCallerAsItWas) {
  run_processes(1, [](int) {
    const std::set<int> before = blocked_signals();
    set_stack_size(kImpossible);
    expect_refused(outcome_of([] { start_thread("x", [] {}); }));
    expect_refused(outcome_of([] { make_unique_id(); }));
    expect_refused(outcome_of([] { HostStream stream; }));
    expect_refused(outcome_of([] { Communicator::init_all(1); }));
    EXPECT_EQ(blocked_signals(), before);

    set_stack_size(1 << 20);
    const UniqueId id = make_unique_id();
    set_stack_size(kImpossible);
    group_start();
    const Communicator a = Communicator::init(2, 0, id), b = Communicator::init(2, 1, id);
    const Outcome o = outcome_of([] { group_end(); });
    expect_refused(o);
    for (const Communicator* c : {&a, &b}) {
      std::string text;
      EXPECT_EQ(c->async_error(&text), o.code);
      EXPECT_EQ(text, o.text);
    }
    EXPECT_EQ(blocked_signals(), before);

    set_stack_size(1 << 20);
    for (Communicator& c : Communicator::init_all(2)) c.destroy();
  });
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Threads, WhereSomeAreRefusedNoneRuns) {
  run_processes(1, [](int) {
    set_stack_size(size_t{1} << 30);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit three{pages * 4096 + (rlim_t{7} << 29), pages * 4096 + (rlim_t{7} << 29)};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &three), 0);
    std::atomic<int> ran{0};
    run_side_by_side("side", 2, [&](size_t) { ++ran; });
    EXPECT_EQ(ran, 2);
    expect_refused(outcome_of([&] { run_side_by_side("side", 6, [&](size_t) { ++ran; }); }));
    EXPECT_EQ(ran, 2);
    expect_refused(outcome_of([] { Communicator::init_all(6); }));
  });
}
#endif

}  // namespace
}  // namespace muster
