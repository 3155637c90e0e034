// What happens when ranks die, stop, leave, abort, come late or fork: survivors get an error that names who and why, and
// nobody waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "muster/muster.h"
#include "sudden_death.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::Outcome;
using test::outcome_of;
using test::run_process_ranks;
using test::run_processes;
using test::run_threads;
using test::Variable;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr DataType kFloat = DataType::float32, kInt = DataType::int32;

int random_below(int n) { return static_cast<int>(std::random_device()() % static_cast<unsigned>(n)); }

// All-reduces of mixed sizes until one throws.
Outcome until_error(Communicator& c) {
  std::vector<float> a(50000, 1), b(50000);
  Outcome o;
  for (int i = 0; o.code == Result::success; ++i) {
    const size_t count = i % 7 == 0 ? a.size() : static_cast<size_t>(i % 7 * 150);
    o = outcome_of([&] { c.all_reduce(a.data(), b.data(), count, kFloat, RedOp::sum); });
  }
  return o;
}

Outcome poll_error(Communicator& c) {
  std::string text;
  for (;;) {
    if (const Result r = c.async_error(&text); r != Result::success) return {r, text};
    std::this_thread::sleep_for(5ms);
  }
}

std::vector<int> pids(Communicator& c) {
  const int mine = getpid();
  std::vector<int> all(static_cast<size_t>(c.size()));
  c.all_gather(&mine, all.data(), 1, kInt);
  return all;
}

std::string name_of_rank(int rank, int pid) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return "rank " + std::to_string(rank) + " (host " + host + ", pid " + std::to_string(pid) + ")";
}

bool is_zombie(int pid) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), line);
  return line.find(") Z ") != line.npos;
}

// The communicator is beyond repair, and says so the same way each time; leaving works.
void expect_broken(Communicator& c, const Outcome& first) {
  std::string text;
  EXPECT_EQ(c.async_error(&text), first.code);
  EXPECT_EQ(text, first.text);
  float x = 1, y;
  const Outcome later = outcome_of([&] { c.all_reduce(&x, &y, 1, kFloat, RedOp::sum); });
  EXPECT_EQ(later.code, first.code);
  EXPECT_EQ(later.text, first.text);
  EXPECT_EQ(outcome_of([&] { c.send(&x, 1, kFloat, 0); }).code, first.code);
}

// --- death ---

TEST(Death, InALoopIsReportedByAllSurvivors) {
  for (int run = 0; run < 3; ++run)
    run_process_ranks(
        8,
        [](Communicator& c, int rank) {
          const std::vector<int> pid = pids(c);
          if (rank == 3) test::kill_this_process_within(80ms);
          const Outcome o = rank == 0 ? poll_error(c) : until_error(c);  // rank 0's calls would be missed, not its death
          EXPECT_EQ(o.code, Result::remote_error) << o;
          EXPECT_THAT(o.text, HasSubstr(name_of_rank(3, pid[3])));
          EXPECT_THAT(o.text, HasSubstr("ended without leaving the communicator"));
          expect_broken(c, o);
        },
        {{3}});
}

// From the first connection to the middle of large calls.
TEST(Death, AtRandomTimes) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "2");
  for (int run = 0; run < 12; ++run) {
    const int victim = run % 4;
    run_processes(4, [&](int rank) { test::expect_to_survive(rank, victim, 60ms, until_error); }, {{victim}});
  }
}

TEST(Death, OfAnIdleRankOnStreams) {
  run_process_ranks(
      3,
      [](Communicator& c, int rank) {
        const std::vector<int> pid = pids(c);
        if (rank == 1) raise(SIGKILL);
        HostStream stream;
        std::vector<float> a(1000, 1), b(1000);
        Outcome o;
        for (int i = 0; i < 20 && o.code == Result::success; ++i)
          o = outcome_of([&] { c.all_reduce(a.data(), b.data(), a.size(), kFloat, RedOp::sum, &stream); });
        if (o.code == Result::success)
          o = outcome_of([&] { stream.synchronize(); });
        else
          outcome_of([&] { stream.synchronize(); });  // the death was known before the last call was queued
        EXPECT_EQ(o.code, Result::remote_error) << o;
        EXPECT_THAT(o.text, HasSubstr(name_of_rank(1, pid[1])));
        EXPECT_TRUE(stream.idle());
        expect_broken(c, o);
      },
      {{1}});
}

TEST(Death, WhileMessagesAreUnderWay) {
  run_process_ranks(
      3,
      [](Communicator& c, int rank) {
        const std::vector<int> pid = pids(c);
        std::vector<float> a(1 << 20, 1);
        if (rank == 2) {
          std::thread([] {
            std::this_thread::sleep_for(30ms);
            kill(getpid(), SIGKILL);
          }).detach();
          std::this_thread::sleep_for(1h);
        }
        const Outcome o = outcome_of([&] {
          if (rank == 0)
            c.send(a.data(), a.size(), kFloat, 2);
          else
            c.recv(a.data(), a.size(), kFloat, 2);
        });
        EXPECT_EQ(o.code, Result::remote_error) << o;
        EXPECT_THAT(o.text, HasSubstr(name_of_rank(2, pid[2])));
      },
      {{2}});
}

// Rank 1's neighbours, who hold its connections, have left when it dies.
TEST(Death, WhenItsNeighboursHaveLeft) {
  for (const bool message : {false, true})
    run_process_ranks(
        4,
        [&](Communicator& c, int rank) {
          const std::vector<int> pid = pids(c);
          std::vector<int> all(4);
          const auto gather = [&] { c.gather(&rank, all.data(), 1, kInt, 3); };
          if (rank == 3) {
            const Outcome o = outcome_of([&] {
              if (message)
                c.recv(all.data(), 1, kInt, 1);
              else
                gather();
            });
            EXPECT_EQ(o.code, Result::remote_error) << o;
            EXPECT_THAT(o.text, AllOf(HasSubstr(name_of_rank(1, pid[1])), HasSubstr("ended without leaving the communicator"),
                                      HasSubstr(name_of_rank(3, pid[3]))));
            expect_broken(c, o);
          } else if (rank == 1) {
            for (const int other : {0, 2})
              while (kill(pid[static_cast<size_t>(other)], 0) == 0 && !is_zombie(pid[static_cast<size_t>(other)])) std::this_thread::sleep_for(5ms);
            raise(SIGKILL);
          } else if (!message) {
            gather();
          }
        },
        {{1}});
}

// A rank that exits without destroying its communicator is as gone as a killed one; one that throws it away has left.
TEST(Death, ExitWithoutDestroy) {
  run_processes(2, [](int rank) {
    Communicator c = Communicator::from_environment();
    pids(c);
    if (rank == 1) _exit(0);
    const Outcome o = until_error(c);
    EXPECT_EQ(o.code, Result::remote_error) << o;
    EXPECT_THAT(o.text, HasSubstr("rank 1 (host "));
  });
}

// --- abort ---

TEST(Abort, FromAnotherThreadWhileInACall) {
  const auto body = [](Communicator& c, int rank) {
    const int pid = pids(c)[0];
    if (rank == 3) {  // keeps the others waiting, and learns of it all the same
      const Outcome o = poll_error(c);
      EXPECT_EQ(o.code, Result::remote_error);
      return;
    }
    std::thread aborter;
    if (rank == 0)
      aborter = std::thread([&] {
        std::this_thread::sleep_for(50ms);
        c.abort();
        c.abort();
      });
    const Outcome o = until_error(c);
    if (aborter.joinable()) aborter.join();
    EXPECT_EQ(o.code, Result::remote_error) << o;
    EXPECT_THAT(o.text, HasSubstr("aborted by " + name_of_rank(0, pid)));
    expect_broken(c, o);
  };
  run_threads(4, body);
  run_process_ranks(4, body);
}

// Ranks 2 and 3 are in two communicators; rank 2 goes away while both have calls under way.
TEST(Abort, OfTwoCommunicatorsInEitherOrder) {
  for (const bool small_first : {true, false}) {
    auto world = Communicator::init_all(4), small = Communicator::init_all(2);
    std::vector<std::thread> threads;
    std::atomic<int> ended{0};
    const auto in_call = [&](Communicator& c) {
      threads.emplace_back([&] {
        EXPECT_EQ(until_error(c).code, Result::remote_error);
        ++ended;
      });
    };
    in_call(world[0]);
    in_call(world[1]);
    in_call(world[3]);
    in_call(small[1]);
    std::this_thread::sleep_for(30ms);
    Communicator &first = small_first ? small[1] : world[3], &second = small_first ? world[3] : small[1];
    first.abort();
    second.abort();
    for (auto& t : threads) t.join();
    EXPECT_EQ(ended, 4);
    for (auto* all : {&world, &small})
      for (auto& c : *all) c.destroy();
  }
}

// Ranks that are threads use each other's buffers directly; a call that fails returns when nobody does so any more.
TEST(Abort, BuffersMayGoAtOnce) {
  constexpr size_t count = 6 << 20, bytes = count * sizeof(float);
  const auto map = [] { return static_cast<float*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)); };
  for (int i = 0; i < 40; ++i) {
    auto comms = Communicator::init_all(3);
    std::vector<std::thread> ranks;
    for (auto& c : comms)
      ranks.emplace_back([&] {
        float *a = map(), *b = map();
        Outcome o;
        while (o.code == Result::success) o = outcome_of([&] { c.all_reduce(a, b, count, kFloat, RedOp::sum); });
        munmap(a, bytes);
        munmap(b, bytes);
        EXPECT_EQ(o.code, Result::remote_error) << o;
      });
    std::this_thread::sleep_for(std::chrono::microseconds(5000 + random_below(20000)));
    comms[static_cast<size_t>(i % 3)].abort();
    for (auto& t : ranks) t.join();
  }
  // The same when one thread has all the ranks.
  auto comms = Communicator::init_all(3);
  std::vector<float*> a, b;
  for (int r = 0; r < 3; ++r) {
    a.push_back(map());
    b.push_back(map());
  }
  std::thread aborter([&] {
    std::this_thread::sleep_for(20ms);
    comms[1].abort();
  });
  Outcome o;
  while (o.code == Result::success)
    o = outcome_of([&] {
      group_start();
      for (size_t r = 0; r < 3; ++r) comms[r].all_reduce(a[r], b[r], count, kFloat, RedOp::sum);
      group_end();
    });
  EXPECT_EQ(o.code, Result::remote_error) << o;
  aborter.join();
  for (auto& all : {a, b})
    for (float* p : all) munmap(p, bytes);
}

TEST(Abort, HealthyCommunicatorsOfTheSameRanksGoOn) {
  auto a = Communicator::init_all(2), b = Communicator::init_all(2);
  a[0].abort();
  std::thread other([&] {
    EXPECT_EQ(outcome_of([&] { a[1].barrier(); }).code, Result::remote_error);
    b[1].barrier();
  });
  b[0].barrier();
  other.join();
}

// --- leaving ---

TEST(Leaving, WhileOthersWait) {
  const auto body = [](Communicator& c, int rank) {
    const int pid = pids(c)[1];
    if (rank == 1) {
      Communicator gone = std::move(c);
      gone.destroy();
      c = std::move(Communicator::init_all(1)[0]);  // what the caller destroys afterwards
      std::this_thread::sleep_for(200ms);
      return;
    }
    const Outcome o = until_error(c);
    EXPECT_EQ(o.code, Result::remote_error) << o;
    EXPECT_THAT(o.text, AllOf(HasSubstr(name_of_rank(1, pid)), HasSubstr("has destroyed its communicator")));
    expect_broken(c, o);
  };
  run_threads(3, body);
  run_process_ranks(3, body);
}

// Leaving after one's last call is no failure, however slow the others are with it.
TEST(Leaving, AtOnceAfterTheLastCall) {
  for (int i = 0; i < 30; ++i) {
    auto comms = Communicator::init_all(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank, i] {
        Communicator c = std::move(comms[static_cast<size_t>(rank)]);
        const size_t count = i % 2 ? 10 : 300000;
        std::vector<int> a(count, rank), b(count, -1);
        if (rank == i % 3) std::this_thread::sleep_for(2ms);
        c.broadcast(a.data(), b.data(), count, kInt, 1);
        c.destroy();
        EXPECT_EQ(std::count(b.begin(), b.end(), 1), static_cast<ptrdiff_t>(count));
      });
    for (auto& t : threads) t.join();
  }
}

// --- late, not dead ---

TEST(Late, AStoppedRankIsNamedAndCarriesOn) {
  const Variable warn("MUSTER_STALL_WARN", "0.2");
  run_process_ranks(3, [](Communicator& c, int rank) {
    const std::vector<int> pid = pids(c);
    std::vector<int> a(1000, rank + 1), b(1000);
    for (int i = 0; i < 10; ++i) c.all_reduce(a.data(), b.data(), a.size(), kInt, RedOp::sum);
    std::thread waker;
    if (rank == 2) raise(SIGSTOP);
    if (rank == 0)
      waker = std::thread([&] {
        std::this_thread::sleep_for(1500ms);
        kill(pid[2], SIGCONT);
      });
    testing::internal::CaptureStderr();
    c.all_reduce(a.data(), b.data(), a.size(), kInt, RedOp::sum);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(b, testing::Each(6));
    if (rank != 2) {
      EXPECT_THAT(log, HasSubstr("waiting for " + name_of_rank(2, pid[2]) + ", last in call 11"));
      EXPECT_THAT(log, testing::Not(HasSubstr(name_of_rank(1, pid[1])))) << "who is there isn't late";
    }
    if (waker.joinable()) waker.join();
  });
}

TEST(Late, ATimeOfTenMilliseconds) {
  const Variable limit("MUSTER_TIMEOUT", "0.01");
  for (const size_t count : {size_t{1}, size_t{10}, size_t{1000}, size_t{10000}, size_t{1000000}})
    for (const int n : {2, 5, 16}) {
      SCOPED_TRACE(testing::Message() << count << " elements, " << n << " ranks");
      run_threads(n, [&](Communicator& c, int rank) {
        if (rank == n - 1) return void(poll_error(c));
        std::vector<float> a(count, 1), b(count);
        const Outcome o = outcome_of([&] {
          c.all_reduce(a.data(), b.data(), 0, kFloat, RedOp::sum);  // nothing to wait for, unless others ran out of time already
          c.all_reduce(a.data(), b.data(), count, kFloat, RedOp::sum);
        });
        EXPECT_EQ(o.code, Result::timeout) << o;
        EXPECT_THAT(o.text, ContainsRegex("timed out after [0-9.]+ s in call 2, all_reduce"));
        EXPECT_THAT(o.text, HasSubstr("rank " + std::to_string(n - 1) + " (host "));
        expect_broken(c, o);
      });
    }
}

TEST(Late, ReceiveThatNobodySends) {
  const Variable limit("MUSTER_TIMEOUT", "0.05");
  run_threads(2, [](Communicator& c, int rank) {
    if (rank == 1) return void(poll_error(c));
    int x = 0;
    const Outcome o = outcome_of([&] { c.recv(&x, 1, kInt, 1); });
    EXPECT_EQ(o.code, Result::timeout) << o;
    EXPECT_THAT(o.text, HasSubstr("rank 1 (host "));
  });
}

// --- streams ---

TEST(Stream, DestroyFlushes) {
  const auto body = [](Communicator& c, int rank) {
    constexpr size_t count = 16 << 20;
    std::vector<float> a(count, static_cast<float>(rank + 1)), b(count);
    HostStream stream;
    c.all_reduce(a.data(), b.data(), count, kFloat, RedOp::sum, &stream);
    c.destroy();
    stream.synchronize();
    EXPECT_EQ(std::count(b.begin(), b.end(), 3.f), static_cast<ptrdiff_t>(count));
    c = std::move(Communicator::init_all(1)[0]);  // what the caller destroys afterwards
  };
  run_threads(2, body);
  run_process_ranks(2, body);
}

TEST(Stream, TheLastHandleMayGoBeforeTheCall) {
  run_threads(2, [](Communicator& c, int rank) {
    std::vector<int> a(1 << 20, rank + 1), b(a.size());
    HostStream stream;
    c.all_reduce(a.data(), b.data(), a.size(), kInt, RedOp::sum, &stream);
    c = Communicator();
    stream.synchronize();
    EXPECT_THAT(b, testing::Each(3));
  });
}

TEST(Stream, AbortRightAfterQueueing) {
  const auto body = [](Communicator& c, int rank) {
    constexpr size_t count = 4 << 20;
    std::vector<float> a(count, 1), b(count);
    HostStream stream;
    for (int i = 0; i < 5; ++i)
      if (outcome_of([&] { c.all_reduce(a.data(), b.data(), count, kFloat, RedOp::sum, &stream); }).code != Result::success) break;
    if (rank == 0) c.abort();
    const Outcome o = outcome_of([&] { stream.synchronize(); });
    EXPECT_THAT(o.code, testing::AnyOf(Result::remote_error, Result::success)) << o;
    EXPECT_EQ(poll_error(c).code, Result::remote_error);
    EXPECT_EQ(outcome_of([&] { stream.synchronize(); }).code, Result::success) << "an error is told once";
    c.destroy();
    c = std::move(Communicator::init_all(1)[0]);  // what the caller destroys afterwards
  };
  run_threads(2, body);
  run_process_ranks(2, body);
}

// --- fork ---

bool g_is_child = false;

int exit_status_of_child(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    g_is_child = true;
    body();
    std::exit(testing::Test::HasFailure() ? 1 : 0);  // with destructors, as a program does
  }
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Fork, ChildrenLeaveTheParentAlone) {
  run_process_ranks(2, [](Communicator& c, int rank) {
    std::vector<int> a(100000, rank + 1), b(a.size());
    auto* memory = static_cast<int*>(mem_alloc(4096));
    static HostStream stream;  // its destructor runs in children, too
    const auto sum = [&] {
      b.assign(b.size(), 0);
      c.all_reduce(a.data(), b.data(), a.size(), kInt, RedOp::sum, &stream);
      stream.synchronize();
      EXPECT_THAT(b, testing::Each(3));
    };
    sum();
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(exit_status_of_child([&] {
                  double x = 0;
                  for (int k = 0; k < 100000; ++k) x += k;
                  if (i % 2) {
                    Communicator mine = std::move(c);  // destroyed by the child
                  }
                  a.assign(a.size(), static_cast<int>(x));
                  mem_free(memory);
                }),
                0);
    memory[0] = 5;  // still there
    EXPECT_EQ(exit_status_of_child([&] {
                int x = 1, y = 0;
                const auto refused = [](const std::function<void()>& call) {
                  const Outcome o = outcome_of(call);
                  EXPECT_EQ(o.code, Result::invalid_usage) << o;
                  EXPECT_THAT(o.text, HasSubstr("forked"));
                };
                refused([&] { c.all_reduce(&x, &y, 1, kInt, RedOp::sum); });
                refused([&] { c.all_reduce(&x, &y, 1, kInt, RedOp::sum, &stream); });
                refused([&] { c.send(&x, 1, kInt, 1); });
                refused([&] { c.barrier(); });
                refused([&] { stream.synchronize(); });
                refused([&] { c.destroy(); });
                refused([&] { make_unique_id(); });
                refused([&] { Communicator::init_all(2); });
                c.abort();  // not the parent's
                EXPECT_EQ(c.async_error(), Result::success);
                EXPECT_EQ(c.size(), 2);
#if !defined(__SANITIZE_THREAD__)  // it ends children that start threads
                Communicator alone = std::move(Communicator::init_all(1)[0]);
                alone.all_reduce(&x, &y, 1, kInt, RedOp::sum);
                EXPECT_EQ(y, 1);
                refused([&] { alone.all_reduce(&x, &y, 1, kInt, RedOp::sum, &stream); });
                alone.all_reduce(&x, &y, 1, kInt, RedOp::sum);  // that one wasn't half queued
#endif
              }),
              0);
    EXPECT_EQ(c.async_error(), Result::success);
    EXPECT_EQ(memory[0], 5);
    for (int i = 0; i < 20; ++i) sum();
    mem_free(memory);
  });
}

// --- the end of a communicator's life ---

TEST(Lifecycle, UseAfterTheEnd) {
  run_threads(2, [](Communicator& c, int rank) {
    int x = 1, y = 0;
    const auto code = [](const std::function<void()>& call) { return outcome_of(call).code; };
    Communicator moved = std::move(c);
    EXPECT_FALSE(c);
    EXPECT_EQ(code([&] { c.all_reduce(&x, &y, 1, kInt, RedOp::sum); }), Result::invalid_argument);
    EXPECT_EQ(code([&] { c.destroy(); }), Result::invalid_argument);
    EXPECT_EQ(code([&] { (void)c.rank(); }), Result::invalid_argument);
    c.abort();
    moved.barrier();
    moved.destroy();
    for (int i = 0; i < 2; ++i) {
      const Outcome o = outcome_of([&] { moved.destroy(); });
      EXPECT_EQ(o.code, Result::invalid_argument);
      EXPECT_THAT(o.text, HasSubstr("destroyed before"));
    }
    const Outcome o = outcome_of([&] { moved.all_reduce(&x, &y, 1, kInt, RedOp::sum); });
    EXPECT_EQ(o.code, Result::invalid_argument);
    EXPECT_THAT(o.text, HasSubstr("used after it was destroyed"));
    EXPECT_EQ(code([&] { moved.send(&x, 1, kInt, 0); }), Result::invalid_argument);
    EXPECT_EQ(code([&] { moved.barrier(); }), Result::invalid_argument);
    moved.abort();  // nothing left to abort
    EXPECT_EQ(moved.rank(), rank);
    EXPECT_EQ(moved.size(), 2);
  });
}

TEST(Lifecycle, UseAndDestroyAfterAbort) {
  for (const int n : {1, 2})
    run_threads(n, [](Communicator& c, int) {
      int x = 1, y = 0;
      c.barrier();
      c.abort();
      const Outcome o = outcome_of([&] { c.all_reduce(&x, &y, 1, kInt, RedOp::sum); });
      EXPECT_EQ(o.code, Result::remote_error);
      EXPECT_THAT(o.text, HasSubstr("aborted by rank"));
      c.destroy();
      EXPECT_EQ(outcome_of([&] { c.destroy(); }).code, Result::invalid_argument);
    });
}

TEST(Lifecycle, NotMadeYet) {
  const UniqueId id = make_unique_id();
  int x = 1, y = 0;
  group_start();
  Communicator c = Communicator::init(1, 0, id);
  EXPECT_EQ(c.async_error(), Result::in_progress);
  EXPECT_EQ(outcome_of([&] { c.all_reduce(&x, &y, 1, kInt, RedOp::sum); }).code, Result::invalid_argument);
  EXPECT_EQ(outcome_of([&] { group_end(); }).code, Result::invalid_usage) << "the error ended the group";
  std::string text;
  EXPECT_EQ(c.async_error(&text), Result::invalid_usage);
  EXPECT_THAT(text, HasSubstr("ended by the error of another call"));
  const Outcome later = outcome_of([&] { c.barrier(); });
  EXPECT_EQ(later.code, Result::invalid_usage);
  EXPECT_EQ(later.text, text);
  c.destroy();
}

// Whoever asks a communicator that couldn't be made learns why.
TEST(Lifecycle, FailedInAGroup) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "0.2");
  group_start();
  Communicator c = Communicator::init(2, 0, make_unique_id()), bad = Communicator::init(1, 0, UniqueId{});
  const Outcome whole = outcome_of([] { group_end(); });
  EXPECT_EQ(whole.code, Result::timeout) << whole;
  int x = 1, y = 0;
  for (auto [comm, code] : {std::pair(&c, Result::timeout), std::pair(&bad, Result::invalid_argument)}) {
    std::string text;
    EXPECT_EQ(comm->async_error(&text), code);
    EXPECT_THAT(text, HasSubstr(comm == &c ? "rank 1" : "all zeros"));
    const Outcome o = outcome_of([&, comm = comm] { comm->all_reduce(&x, &y, 1, kInt, RedOp::sum); });
    EXPECT_EQ(o.code, code);
    EXPECT_EQ(o.text, text);
    comm->destroy();
  }
}

}  // namespace
}  // namespace muster

#if defined(__SANITIZE_ADDRESS__)
// What the parent's other threads held looks lost in a forked child.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() { return muster::g_is_child; }
#endif
