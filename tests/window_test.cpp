// Windows and one-sided calls: data and signals arrive whole and in order, whatever leaves a window is
// refused, and nobody waits for a signal that can't come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "muster/muster.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::Outcome;
using test::outcome_of;
using test::run_process_ranks;
using test::run_threads;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

using Ranks = void (*)(int n, const std::function<void(Communicator&, int)>& fn);
void as_threads(int n, const std::function<void(Communicator&, int)>& fn) { run_threads(n, fn); }
void as_processes(int n, const std::function<void(Communicator&, int)>& fn) { run_process_ranks(n, fn); }

// Bytes of mem_alloc with a guard on both sides; the whole is poisoned.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes), all_(static_cast<uint8_t*>(mem_alloc(bytes + 2 * kGuard))) {
    poison();
  }
  ~Memory() { mem_free(all_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint8_t* data() { return all_ + kGuard; }
  size_t size() const { return bytes_; }
  void poison() { std::memset(all_, kPoison, bytes_ + 2 * kGuard); }
  // [begin, end) is `expected` and all else, guards included, is as it was poisoned.
  void expect(size_t begin, const std::vector<uint8_t>& expected) const {
    for (size_t i = 0; i < bytes_ + 2 * kGuard; ++i) {
      const bool inside = i >= kGuard + begin && i < kGuard + begin + expected.size();
      ASSERT_EQ(all_[i], inside ? expected[i - kGuard - begin] : kPoison)
          << "byte " << static_cast<ptrdiff_t>(i - kGuard);
    }
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kPoison = 0xa5;
  size_t bytes_;
  uint8_t* all_;
};

std::vector<uint8_t> message(int from, int to, size_t bytes, int round = 0) {
  std::vector<uint8_t> m(bytes);
  for (size_t i = 0; i < bytes; ++i)
    m[i] = static_cast<uint8_t>(from * 17 + to * 5 + round * 31 + static_cast<int>(i * 7 + i / 251));
  return m;
}

void leave(Communicator& c) {
  Communicator gone = std::move(c);
  gone.destroy();
  c = std::move(Communicator::init_all(1)[0]);  // what the caller destroys afterwards
}

class Windows : public testing::TestWithParam<Ranks> {};
INSTANTIATE_TEST_SUITE_P(, Windows, testing::Values(as_threads, as_processes),
                         [](const auto& i) { return i.param == as_threads ? "Threads" : "Processes"; });

TEST_P(Windows, PingPongCarriesEverySizeAndOffset) {
  GetParam()(2, [](Communicator& c, int rank) {
    Memory m(3'000'000);
    const Window w = c.register_window(m.data(), m.size());
    ASSERT_TRUE(w);
    EXPECT_EQ(w.data(), m.data());
    EXPECT_EQ(w.size(), m.size());
    const int peer = 1 - rank;
    const SignalWait one[] = {{.peer = peer}};
    int round = 0;
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{8}, size_t{63}, size_t{4097}, size_t{2'500'001}})
      for (const size_t offset : {size_t{0}, size_t{3}, m.size() - bytes}) {
        ++round;
        const auto mine = message(rank, peer, bytes, round), theirs = message(peer, rank, bytes, round);
        m.poison();
        c.signal(peer, {1, 0});  // ready to be written to
        c.wait_signal(std::vector<SignalWait>{{peer, 1, {1, 0}}});
        if (rank == 0) c.put_signal(mine.data(), bytes, peer, w, offset);
        c.wait_signal(one);
        ASSERT_NO_FATAL_FAILURE(m.expect(offset, theirs));
        if (rank == 1) c.put_signal(mine.data(), bytes, peer, w, offset);
      }
    c.barrier();
  });
}

TEST_P(Windows, ManyPutIntoOne) {
  GetParam()(5, [](Communicator& c, int rank) {
    constexpr size_t kBytes = 70'000;
    constexpr int kRounds = 6;
    Memory m(rank == 2 ? kBytes * 5 : 0);
    const Window w = c.register_window(m.data(), m.size());
    for (int round = 0; round < kRounds; ++round) {
      const auto mine = message(rank, 2, kBytes, round);
      c.put_signal(mine.data(), kBytes, 2, w, kBytes * static_cast<size_t>(rank), {7, 3});
      if (rank == 2) {
        std::vector<SignalWait> waits;
        std::vector<uint8_t> all;
        for (int r = 4; r >= 0; --r) waits.push_back({r, 1, {7, 3}});
        for (int r = 0; r < 5; ++r) {
          const auto part = message(r, 2, kBytes, round);
          all.insert(all.end(), part.begin(), part.end());
        }
        c.wait_signal(waits);
        ASSERT_NO_FATAL_FAILURE(m.expect(0, all));
      }
      c.barrier();
    }
  });
}

TEST_P(Windows, SignalsAreCountedByPeerIndexAndContext) {
  GetParam()(3, [](Communicator& c, int rank) {
    const auto times = [](int from, int index, int context) {
      return 100 + from * 40 + index % 7 + context * 3;
    };
    const std::vector<Signal> names = {{0, 0}, {1, 0}, {255, 0}, {0, 1}, {0, 15}, {255, 15}};
    for (const Signal s : names)
      for (int r = 0; r < 3; ++r)
        for (int i = 0; i < times(rank, s.index, s.context); ++i) c.signal(r, s);
    c.barrier();  // they all have come
    for (const Signal s : names)
      for (int r = 0; r < 3; ++r) {
        const int n = times(r, s.index, s.context);
        c.wait_signal(std::vector<SignalWait>{{r, n - 5, s}, {r, 0, s}, {r, 3, s}, {r, 2, s}});
      }
    // Not one was left.
    c.barrier();
    if (rank != 0) return;
    const Outcome o = outcome_of([&] { c.wait_signal(std::vector<SignalWait>{{0, 1, names[4]}}); });
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, HasSubstr("wait_signal(1 of signal 0, context 15, from rank 0; 0 have come)"));
  });
}

// Each signal says that one more number is there: no signal comes before its data, and none is lost.
TEST_P(Windows, SignalsFollowTheirData) {
  GetParam()(2, [](Communicator& c, int rank) {
    constexpr size_t kNumbers = 4000;
    Memory m(kNumbers * sizeof(uint64_t));
    const Window w = c.register_window(m.data(), m.size());
    for (uint64_t i = 0; i < kNumbers; ++i) {
      if (rank == 0) {
        const uint64_t number = i * 0x9e3779b97f4a7c15ULL;
        c.put_signal(&number, sizeof number, 1, w, i * sizeof number);
      } else {
        c.wait_signal(std::vector<SignalWait>{{.peer = 0}});
        uint64_t number = 0;
        std::memcpy(&number, m.data() + i * sizeof number, sizeof number);
        ASSERT_EQ(number, i * 0x9e3779b97f4a7c15ULL) << i;
      }
    }
    c.barrier();
  });
}

TEST_P(Windows, ARankPutsIntoItsOwnPart) {
  GetParam()(2, [](Communicator& c, int rank) {
    Memory m(4000);
    const Window w = c.register_window(m.data(), m.size());
    const auto text = message(rank, rank, 1000);
    c.put_signal(text.data(), text.size(), rank, w, 1500);
    c.wait_signal(std::vector<SignalWait>{{.peer = rank}});
    ASSERT_NO_FATAL_FAILURE(m.expect(1500, text));
    // Overlapping.
    c.put_signal(m.data() + 1500, 1000, rank, w, 1501);
    c.wait_signal(std::vector<SignalWait>{{.peer = rank}});
    EXPECT_EQ(std::vector<uint8_t>(m.data() + 1501, m.data() + 2501), text);
    c.barrier();
  });
}

TEST(Window, OfOneRank) {
  for (int i = 0; i < 2; ++i) {
    Communicator c = std::move(Communicator::init_all(1)[0]);
    std::vector<uint8_t> m(64);
    const Window w = c.register_window(m.data(), m.size());
    const auto text = message(0, 0, 64);
    c.put_signal(text.data(), 64, 0, w, 0, {255, 15});
    c.signal(0, {255, 15});
    c.wait_signal(std::vector<SignalWait>{{0, 2, {255, 15}}});
    EXPECT_EQ(m, text);
    const Outcome o = outcome_of([&] { c.wait_signal(std::vector<SignalWait>{{0, 1, {255, 15}}}); });
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, HasSubstr("from itself that it hasn't sent"));
  }
}

TEST_P(Windows, SizesDifferByRank) {
  GetParam()(4, [](Communicator& c, int rank) {
    const auto size = [](int r) { return static_cast<size_t>(r) * 5000; };
    Memory m(size(rank));
    const Window w = c.register_window(rank ? m.data() : nullptr, size(rank));
    for (int r = 0; r < 4; ++r) {
      EXPECT_EQ(w.size(r), size(r));
      std::vector<uint8_t> one(1);
      const Outcome o = outcome_of([&] { c.put_signal(one.data(), 1, r, w, size(r)); });
      EXPECT_EQ(o.code, Result::invalid_argument) << o;
      EXPECT_THAT(o.text, AllOf(HasSubstr("1 bytes at offset " + std::to_string(size(r))),
                                HasSubstr("which has " + std::to_string(size(r)) + " bytes")));
      c.put_signal(nullptr, 0, r, w, size(r));
      if (rank == 0 && r) c.put_signal(message(0, r, size(r)).data(), size(r), r, w, 0, {1, 0});
    }
    for (int r = 0; r < 4; ++r) c.wait_signal(std::vector<SignalWait>{{.peer = r}});
    if (rank) c.wait_signal(std::vector<SignalWait>{{0, 1, {1, 0}}});
    if (rank) {
      ASSERT_NO_FATAL_FAILURE(m.expect(0, message(0, rank, size(rank))));
    }
    c.barrier();
  });
}

TEST_P(Windows, WrongArgumentsAreRefusedAndDoNoHarm) {
  GetParam()(2, [](Communicator& c, int rank) {
    Memory m(1000);
    const Window w = c.register_window(m.data(), m.size());
    Communicator other = c.split(0, 0);
    Memory n(1000);
    const Window foreign = other.register_window(n.data(), n.size());
    std::vector<uint8_t> text(1000);
    const auto refused = [&](const std::string& why, const std::function<void()>& f) {
      const Outcome o = outcome_of(f);
      EXPECT_EQ(o.code, Result::invalid_argument) << o;
      EXPECT_THAT(o.text, HasSubstr(why));
    };
    const void* s = text.data();
    refused("peer 2 is not in 0..1", [&] { c.put_signal(s, 1, 2, w, 0); });
    refused("peer -1 is not in 0..1", [&] { c.signal(-1); });
    refused("peer 2 is not in 0..1", [&] {
      c.wait_signal(std::vector<SignalWait>{{.peer = 0}, {.peer = 2}});
    });
    refused("signal 256 is not in 0..255", [&] { c.signal(0, {256, 0}); });
    refused("signal -1 is not in 0..255", [&] { c.put_signal(s, 1, 0, w, 0, {-1, 0}); });
    refused("context 16 is not in 0..15", [&] { c.signal(0, {0, 16}); });
    refused("context -1 is not in 0..15", [&] { c.wait_signal(std::vector<SignalWait>{{0, 1, {0, -1}}}); });
    refused("count -1", [&] { c.wait_signal(std::vector<SignalWait>{{0, -1}}); });
    refused("1001 bytes at offset 0", [&] { c.put_signal(s, 1001, 1, w, 0); });
    refused("1000 bytes at offset 1", [&] { c.put_signal(s, 1000, 1, w, 1); });
    refused("offset 18446744073709551615", [&] { c.put_signal(s, 2, 1, w, SIZE_MAX); });
    refused("leave rank 1's part", [&] { c.put_signal(s, SIZE_MAX, 1, w, 2); });
    refused("source is null", [&] { c.put_signal(nullptr, 1, 1, w, 0); });
    refused("an empty Window", [&] { c.put_signal(s, 1, 1, {}, 0); });
    refused("the window is of communicator", [&] { c.put_signal(s, 1, 1, foreign, 0); });
    refused("the address is null", [&] { (void)c.register_window(nullptr, 1); });
    refused("address space", [&] { (void)c.register_window(m.data(), SIZE_MAX); });
    refused("rank 2 is not in 0..1", [&] { (void)w.size(2); });
    refused("isn't registered", [&] { (void)Window().size(0); });
    EXPECT_FALSE(Window());
    EXPECT_EQ(Window().data(), nullptr);
    EXPECT_EQ(Window().size(), 0u);
    // Nothing was written or counted, and all works.
    c.barrier();
    ASSERT_NO_FATAL_FAILURE(m.expect(0, {}));
    c.barrier();
    const auto mine = message(rank, 1 - rank, 10);
    c.put_signal(mine.data(), 10, 1 - rank, w, 0);
    c.wait_signal(std::vector<SignalWait>{{.peer = 1 - rank}});
    ASSERT_NO_FATAL_FAILURE(m.expect(0, message(1 - rank, rank, 10)));
    c.wait_signal({});
    EXPECT_EQ(c.async_error(), Result::success);
    c.barrier();
  });
}

TEST(Window, BetweenProcessesOtherMemoryIsRefusedByAllAlike) {
  run_process_ranks(3, [](Communicator& c, int rank) {
    std::vector<uint8_t> heap(10'000);
    Memory m(8192);
    const auto expect_refused = [&](void* p, size_t bytes) {
      Window w;
      const Outcome o =
          outcome_of([&] { w = c.register_window(rank == 1 ? p : m.data(), rank == 1 ? bytes : 8192); });
      EXPECT_EQ(o.code, Result::invalid_usage) << o;
      EXPECT_THAT(o.text, AllOf(HasSubstr("of rank 1 (host "), HasSubstr("mem_alloc (ncclMemAlloc)"),
                                HasSubstr("the " + std::to_string(bytes) + " bytes")));
      EXPECT_FALSE(w);
      // All have the same text.
      std::vector<char> text(500), all(1500);
      std::strncpy(text.data(), o.text.c_str(), 499);
      c.all_gather(text.data(), all.data(), 500, DataType::int8);
      for (int r = 0; r < 3; ++r) EXPECT_STREQ(all.data() + 500 * r, text.data());
    };
    expect_refused(heap.data(), heap.size());
    expect_refused(m.data(), 100'000);  // it goes on beyond the allocation
    EXPECT_EQ(c.async_error(), Result::success);
    const Window w = c.register_window(rank == 1 ? nullptr : m.data(), rank == 1 ? 0 : 8192);
    EXPECT_TRUE(w);
    EXPECT_EQ(w.size(1), 0u);
    c.barrier();
  });
}

TEST(Window, BetweenProcessesWithoutMappingsIsRefused) {
  const Variable off("MUSTER_WINDOWS", "0");
  run_process_ranks(2, [](Communicator& c, int rank) {
    Memory m(100);
    const Outcome o = outcome_of([&] { (void)c.register_window(m.data(), 100); });
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, HasSubstr("MUSTER_WINDOWS=1"));
    c.signal(1 - rank);  // needs none
    c.wait_signal(std::vector<SignalWait>{{.peer = 1 - rank}});
    c.barrier();
  });
}

TEST(Window, BetweenThreadsAnyMemoryWillDo) {
  run_threads(3, [](Communicator& c, int rank) {
    std::vector<uint8_t> heap(50'000);
    uint8_t stack[100];
    const Window a = c.register_window(heap.data(), heap.size()), b = c.register_window(stack, sizeof stack);
    const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    c.put_signal(message(rank, next, heap.size()).data(), heap.size(), next, a, 0);
    c.put_signal(message(rank, next, sizeof stack, 1).data(), sizeof stack, next, b, 0);
    c.wait_signal(std::vector<SignalWait>{{previous, 2}});
    EXPECT_EQ(heap, message(previous, rank, heap.size()));
    EXPECT_EQ(std::vector<uint8_t>(stack, stack + sizeof stack), message(previous, rank, sizeof stack, 1));
    c.barrier();
  });
}

TEST_P(Windows, OtherCallsAreMismatches) {
  GetParam()(2, [](Communicator& c, int rank) {
    Memory m(64);
    const Outcome o = outcome_of([&] {
      if (rank == 0)
        (void)c.register_window(m.data(), 64);
      else
        c.barrier();
    });
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, AllOf(HasSubstr("register_window as call 1"),
                              HasSubstr("all_reduce(count 1, uint8, max) as call 1")));
  });
}

TEST_P(Windows, ComeAndGo) {
  GetParam()(2, [](Communicator& c, int rank) {
    Memory m(4096);
    for (int i = 0; i < 300; ++i) {
      m.poison();
      Window w = c.register_window(m.data(), m.size());
      const Window copy = w;
      w = {};
      EXPECT_FALSE(w);
      ASSERT_TRUE(copy);
      c.put_signal(message(rank, 1 - rank, 128, i).data(), 128, 1 - rank, copy, 64);
      c.wait_signal(std::vector<SignalWait>{{.peer = 1 - rank}});
      ASSERT_NO_FATAL_FAILURE(m.expect(64, message(1 - rank, rank, 128, i)));
    }
    Communicator second = c.split(0, rank);
    const Window late = second.register_window(m.data(), m.size());
    second.destroy();
    EXPECT_TRUE(late);  // outlives it
    EXPECT_EQ(outcome_of([&] { second.put_signal(m.data(), 1, 0, late, 0); }).code, Result::invalid_argument);
  });
}

TEST_P(Windows, OnStreamsCallsRunInOrder) {
  GetParam()(2, [](Communicator& c, int rank) {
    HostStream stream;
    Memory m(1 << 16);
    const Window w = c.register_window(m.data(), m.size());
    std::vector<float> in(1000, static_cast<float>(rank + 1)), sums(1000);
    const int peer = 1 - rank;
    for (int round = 0; round < 50; ++round) {
      m.poison();
      c.signal(peer, {2, 0});
      c.wait_signal(std::vector<SignalWait>{{peer, 1, {2, 0}}});
      const auto mine = message(rank, peer, 5000, round);
      // Rank 1 only queues its calls, the wait too; rank 0 waits here.
      if (rank == 1) c.put_signal(mine.data(), mine.size(), peer, w, 1, {}, &stream);
      c.wait_signal(std::vector<SignalWait>{{.peer = peer}}, rank ? &stream : nullptr);
      if (rank == 0) {
        ASSERT_NO_FATAL_FAILURE(m.expect(1, message(1, 0, 5000, round)));
        c.put_signal(mine.data(), mine.size(), peer, w, 1, {}, &stream);
      }
      c.all_reduce(in.data(), sums.data(), sums.size(), DataType::float32, RedOp::sum, &stream);
      stream.synchronize();
      if (rank == 1) {
        ASSERT_NO_FATAL_FAILURE(m.expect(1, message(0, 1, 5000, round)));
      }
      for (const float s : sums) ASSERT_EQ(s, 3);
    }
  });
}

// Were one rank's put behind its wait, all would wait for each other.
TEST_P(Windows, InAGroupWaitsDontHoldUpWhatIsListedBehindThem) {
  GetParam()(3, [](Communicator& c, int rank) {
    constexpr size_t kBytes = 3 << 20;  // some parts of a copy
    Memory m(kBytes);
    const Window w = c.register_window(m.data(), m.size());
    for (int round = 0; round < 5; ++round) {
      const int to = (rank + 1) % 3, from = (rank + 2) % 3;
      const auto mine = message(rank, to, kBytes, round);
      c.barrier();
      group_start();
      c.wait_signal(std::vector<SignalWait>{{.peer = rank, .signal = {7, 1}}});
      c.wait_signal(std::vector<SignalWait>{{.peer = from}, {.peer = from, .signal = {1, 0}}});
      c.signal(to, {1, 0});
      c.put_signal(mine.data(), kBytes, to, w, 0);
      c.wait_signal(std::vector<SignalWait>{{.peer = to, .signal = {2, 0}}});
      c.signal(from, {2, 0});
      c.signal(rank, {7, 1});
      group_end();
      ASSERT_NO_FATAL_FAILURE(m.expect(0, message(from, rank, kBytes, round)));
    }
    c.barrier();
  });
}

// Those that are sent keep their order among themselves: the last of several puts to one place stays.
TEST_P(Windows, InAGroupPutsKeepTheirOrder) {
  GetParam()(2, [](Communicator& c, int rank) {
    Memory m(4096);
    const Window w = c.register_window(m.data(), m.size());
    std::vector<std::vector<uint8_t>> sources;
    for (int i = 0; i < 10; ++i) sources.push_back(message(rank, 1 - rank, 4096, i));
    group_start();
    for (const auto& s : sources) {
      c.wait_signal(std::vector<SignalWait>{{.peer = 1 - rank}});
      c.put_signal(s.data(), s.size(), 1 - rank, w, 0);
    }
    group_end();
    m.expect(0, message(1 - rank, rank, 4096, 9));
    c.barrier();
  });
}

TEST_P(Windows, InGroupsTheyRunAtTheEnd) {
  GetParam()(3, [](Communicator& c, int rank) {
    Memory m(30'000);
    const Window w = c.register_window(m.data(), m.size());
    std::vector<uint8_t> sources[3];
    for (int round = 0; round < 20; ++round) {
      c.barrier();
      m.poison();
      c.barrier();
      group_start();
      std::vector<SignalWait> waits;
      std::vector<uint8_t> expected;
      for (int r = 0; r < 3; ++r) {
        sources[r] = message(rank, r, 10'000, round);
        c.put_signal(sources[r].data(), 10'000, r, w, 10'000 * static_cast<size_t>(rank));
        waits.push_back({.peer = r});
        const auto part = message(r, rank, 10'000, round);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      const uint8_t* own = m.data() + 10'000 * rank;
      for (int i = 0; i < 10'000; ++i) ASSERT_EQ(own[i], 0xa5) << "written before the group's end";
      int one = 1, sum = 0, token = rank, theirs = -1;
      c.all_reduce(&one, &sum, 1, DataType::int32, RedOp::sum);
      c.wait_signal(waits);
      c.send(&token, 1, DataType::int32, (rank + 1) % 3);
      c.recv(&theirs, 1, DataType::int32, (rank + 2) % 3);
      waits.clear();  // taken over
      group_end();
      EXPECT_EQ(sum, 3);
      EXPECT_EQ(theirs, (rank + 2) % 3);
      ASSERT_NO_FATAL_FAILURE(m.expect(0, expected));
    }
    c.barrier();
  });
}

TEST(Window, OneThreadDrivesAllRanks) {
  std::vector<Communicator> c = Communicator::init_all(3);
  std::vector<std::vector<uint8_t>> m(3, std::vector<uint8_t>(9000));
  std::vector<Window> w(3);
  group_start();
  for (size_t r = 0; r < 3; ++r) w[r] = c[r].register_window(m[r].data(), m[r].size());
  for (const Window& x : w) EXPECT_FALSE(x);
  const Outcome early = outcome_of([&] { c[0].put_signal(m[0].data(), 1, 1, w[0], 0); });
  EXPECT_EQ(early.code, Result::invalid_argument) << early;
  EXPECT_THAT(early.text, HasSubstr("End the group in which register_window was called"));
  // That error ended the group.
  EXPECT_EQ(outcome_of(group_end).code, Result::invalid_usage);
  group_start();
  for (size_t r = 0; r < 3; ++r) w[r] = c[r].register_window(m[r].data(), m[r].size());
  group_end();
  for (const Window& x : w) ASSERT_TRUE(x);
  for (int round = 0; round < 10; ++round) {
    std::vector<std::vector<uint8_t>> sources;
    group_start();
    for (int r = 0; r < 3; ++r) {
      // Rank 0 waits before the others have put: they are driven side by side.
      sources.push_back(message(r, (r + 1) % 3, 9000, round));
      c[static_cast<size_t>(r)].put_signal(sources.back().data(), 9000, (r + 1) % 3,
                                           w[static_cast<size_t>(r)], 0);
      c[static_cast<size_t>(r)].wait_signal(std::vector<SignalWait>{{.peer = (r + 2) % 3}});
    }
    group_end();
    for (int r = 0; r < 3; ++r) ASSERT_EQ(m[static_cast<size_t>(r)], message((r + 2) % 3, r, 9000, round));
  }
}

TEST(Window, RefusedInAGroupLeavesTheOthersWhole) {
  run_process_ranks(2, [](Communicator& c, int rank) {
    Memory m(100);
    std::vector<uint8_t> heap(100);
    Communicator second = c.split(0, 0);
    group_start();
    const Window bad = c.register_window(heap.data(), 100), good = second.register_window(m.data(), 100);
    const Outcome o = outcome_of(group_end);
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, HasSubstr("ncclMemAlloc"));
    EXPECT_FALSE(bad);
    ASSERT_TRUE(good);
    second.put_signal(message(rank, 1 - rank, 50).data(), 50, 1 - rank, good, 0);
    second.wait_signal(std::vector<SignalWait>{{.peer = 1 - rank}});
    ASSERT_NO_FATAL_FAILURE(m.expect(0, message(1 - rank, rank, 50)));
    EXPECT_EQ(c.async_error(), Result::success);
    c.barrier();
  });
}

TEST(Window, WithoutBlocking) {
  run_threads(2, [](Communicator& parent, int rank) {
    Communicator c = parent.split(0, 0, Config{.blocking = false});
    const auto settle = [&] {
      while (c.async_error() == Result::in_progress) std::this_thread::sleep_for(1ms);
      return c.async_error();
    };
    ASSERT_EQ(settle(), Result::success);
    std::vector<uint8_t> m(5000);
    const Window w = c.register_window(m.data(), m.size());
    ASSERT_EQ(settle(), Result::success);
    ASSERT_TRUE(w);
    const auto mine = message(rank, 1 - rank, 5000);
    c.wait_signal(std::vector<SignalWait>{{rank, 0}});
    c.put_signal(mine.data(), mine.size(), 1 - rank, w, 0);
    c.wait_signal(std::vector<SignalWait>{{.peer = 1 - rank}});
    ASSERT_EQ(settle(), Result::success);
    EXPECT_EQ(m, message(1 - rank, rank, 5000));
    parent.barrier();
  });
}

TEST_P(Windows, OfASplitCommunicatorAreByItsRanks) {
  GetParam()(4, [](Communicator& c, int rank) {
    Communicator half = c.split(rank % 2, -rank);  // ranks {2, 0} and {3, 1}
    Memory m(1000);
    const Window w = half.register_window(m.data(), m.size());
    const int me = half.rank();
    half.put_signal(message(rank, 0, 1000).data(), 1000, 1 - me, w, 0);
    half.wait_signal(std::vector<SignalWait>{{.peer = 1 - me}});
    ASSERT_NO_FATAL_FAILURE(m.expect(0, message((rank + 2) % 4, 0, 1000)));
    c.barrier();
  });
}

// --- waits that don't end well ---

TEST_P(Windows, AWaitTimesOutNamingTheLateRankAndWhatHasCome) {
  const Variable timeout("MUSTER_TIMEOUT", "0.3");
  GetParam()(2, [](Communicator& c, int rank) {
    if (rank == 1) {
      c.signal(0, {4, 1});
      c.signal(0, {4, 1});
      std::string text;
      while (c.async_error(&text) == Result::success) std::this_thread::sleep_for(5ms);
      EXPECT_THAT(text, HasSubstr("timed out"));
      return;
    }
    const Outcome o = outcome_of([&] { c.wait_signal(std::vector<SignalWait>{{1, 3, {4, 1}}}); });
    EXPECT_EQ(o.code, Result::timeout) << o;
    EXPECT_THAT(
        o.text,
        AllOf(
            HasSubstr(
                "wait_signal(3 of signal 4, context 1, from rank 1; 2 have come), waiting for rank 1 (host "),
            HasSubstr("MUSTER_TIMEOUT sets the limit")));
    EXPECT_EQ(c.async_error(), Result::timeout);
  });
}

TEST_P(Windows, AnAbortEndsWaits) {
  GetParam()(3, [](Communicator& c, int rank) {
    std::thread aborter;
    if (rank == 1)
      aborter = std::thread([&] {
        std::this_thread::sleep_for(100ms);
        c.abort();
      });
    const Outcome o = outcome_of([&] { c.wait_signal(std::vector<SignalWait>{{.peer = (rank + 1) % 3}}); });
    EXPECT_EQ(o.code, Result::remote_error) << o;
    EXPECT_THAT(o.text, HasSubstr("aborted by rank 1"));
    if (aborter.joinable()) aborter.join();
    EXPECT_EQ(outcome_of([&] { c.signal(0); }).text, o.text);
  });
}

TEST_P(Windows, APeerThatHasLeftIsNamed) {
  GetParam()(2, [](Communicator& c, int rank) {
    Memory m(100);
    const Window w = c.register_window(m.data(), m.size());
    if (rank == 1) {
      c.signal(0);
      leave(c);
      return;
    }
    c.wait_signal(std::vector<SignalWait>{{.peer = 1}});  // what it sent before it left counts
    const Outcome o = outcome_of([&] { c.wait_signal(std::vector<SignalWait>{{.peer = 1}}); });
    EXPECT_EQ(o.code, Result::remote_error) << o;
    EXPECT_THAT(o.text, AllOf(HasSubstr("rank 1 (host "), HasSubstr("has destroyed its communicator")));
  });
}

TEST_P(Windows, NothingIsSentToOneThatHasLeft) {
  GetParam()(2, [](Communicator& c, int rank) {
    Memory m(100);
    const Window w = c.register_window(m.data(), m.size());
    if (rank == 1) {
      leave(c);
      return;
    }
    Outcome o;
    while (o.code == Result::success) o = outcome_of([&] { c.signal(1); });  // until it has left
    EXPECT_EQ(o.code, Result::remote_error) << o;
    EXPECT_THAT(o.text, AllOf(HasSubstr("rank 1 (host "), HasSubstr("has destroyed its communicator")));
  });
}

TEST(Window, ADeathEndsWaits) {
  run_process_ranks(3,
                    [](Communicator& c, int rank) {
                      Memory m(1000);
                      const Window w = c.register_window(m.data(), m.size());
                      if (rank == 2)
                        std::thread([] {
                          std::this_thread::sleep_for(100ms);
                          kill(getpid(), SIGKILL);
                        }).detach();
                      const Outcome o = outcome_of([&] {
                        for (;;) c.wait_signal(std::vector<SignalWait>{{.peer = (rank + 1) % 3}});
                      });
                      EXPECT_EQ(o.code, Result::remote_error) << o;
                      EXPECT_THAT(o.text,
                                  AllOf(HasSubstr("rank 2 (host "), HasSubstr("ended without leaving")));
                    },
                    {{2}});
}

// Data that is being written when the owner gives up: it may free the memory as soon as its window is gone.
TEST(Window, AfterAFailureMemoryMayGo) {
  for (int i = 0; i < 5; ++i)
    run_threads(2, [](Communicator& c, int rank) {
      constexpr size_t kBytes = 6 << 20;
      auto memory = std::make_unique<std::vector<uint8_t>>(kBytes);
      Window w = c.register_window(memory->data(), kBytes);
      if (rank == 0) {
        const std::vector<uint8_t> source(kBytes, 1);
        Outcome o;
        while (o.code == Result::success)
          o = outcome_of([&] { c.put_signal(source.data(), kBytes, 1, w, 0); });
        EXPECT_THAT(o.text, HasSubstr("aborted by rank 1"));
      } else {
        c.wait_signal(std::vector<SignalWait>{{.peer = 0}});
        c.abort();
        w = {};
        memory.reset();
      }
    });
}

TEST(Window, InAForkedChildIsRefused) {
  run_threads(2, [](Communicator& c, int rank) {
    std::vector<uint8_t> m(100);
    const Window w = c.register_window(m.data(), m.size());
    if (rank == 0) {
      const pid_t child = fork();
      if (child == 0)
        _exit(outcome_of([&] { c.put_signal(m.data(), 1, 1, w, 0); }).code == Result::invalid_usage ? 0 : 1);
      int status = -1;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    c.barrier();
  });
}

}  // namespace
}  // namespace muster
