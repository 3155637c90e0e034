// A connection takes little memory until long messages come: what it takes, and that it grows while messages are under way.
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "comm/state.h"
#include "life_support.h"

namespace {

thread_local off_t most_reserved = LONG_MAX;  // bytes that this thread's ranks get at once

}  // namespace

// In place of the C library's: memory that is refused.
extern "C" int fallocate(int fd, int mode, off_t offset, off_t length) {
  if (mode == 0 && length > most_reserved) {
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, length));
}

namespace muster {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;

// Message `i` from `from` to `to`: short ones, then longer ones, then all sizes.
std::vector<int> message(int from, int to, int i) {
  static constexpr size_t kCounts[] = {1, 8, 9, 100, 256, 257, 1500, 2048, 2049, 4000, 9000};
  const size_t kinds = i < 40 ? 5 : i < 80 ? 8 : std::size(kCounts);
  std::vector<int> m(kCounts[static_cast<size_t>(i * 7 + from) % kinds]);
  for (size_t k = 0; k < m.size(); ++k) m[k] = from * 1000003 + to * 10007 + i * 101 + static_cast<int>(k);
  return m;
}

// Many messages each way at once.
void exchange(Communicator& c) {
  constexpr int kMessages = 120;
  const int n = c.size(), me = c.rank();
  std::vector<std::vector<int>> out, in, expected;
  for (int i = 0; i < kMessages; ++i)
    for (int p = 0; p < n; ++p) {
      out.push_back(message(me, p, i));
      expected.push_back(message(p, me, i));
      in.emplace_back(expected.back().size(), -1);
    }
  group_start();
  for (size_t m = 0; m < out.size(); ++m) {
    const int peer = static_cast<int>(m) % n;
    c.send(out[m].data(), out[m].size(), kInt, peer);
    c.recv(in[m].data(), in[m].size(), kInt, peer);
  }
  group_end();
  for (size_t m = 0; m < out.size(); ++m)
    ASSERT_EQ(in[m], expected[m]) << "rank " << me << ", message " << m / static_cast<size_t>(n) << " from " << m % static_cast<size_t>(n);
}

// Calls one after the other, of which some ranks are ahead: a root, who only sends.
void collectives(Communicator& c) {
  const int n = c.size(), me = c.rank();
  for (const size_t count : {3, 200, 3, 256, 1000, 2048, 3, 2049, 6000, 100, 40'000, 3}) {
    std::vector<int> in(count * static_cast<size_t>(n)), out(in.size());
    for (int round = 0; round < 3; ++round) {
      for (size_t k = 0; k < in.size(); ++k) in[k] = me + round + static_cast<int>(k);
      c.all_reduce(in.data(), out.data(), count, kInt, RedOp::sum);
      for (size_t k = 0; k < count; ++k) ASSERT_EQ(out[k], n * (round + static_cast<int>(k)) + n * (n - 1) / 2) << count;
      const int root = round % n;
      c.broadcast(in.data(), out.data(), count, kInt, root);
      for (size_t k = 0; k < count; ++k) ASSERT_EQ(out[k], root + round + static_cast<int>(k)) << count;
      c.all_to_all(in.data(), out.data(), count, kInt);
      for (size_t k = 0; k < in.size(); ++k)
        ASSERT_EQ(out[k], static_cast<int>(k / count) + round + me * static_cast<int>(count) + static_cast<int>(k % count)) << count;
    }
  }
}

TEST(RingGrowth, WhileMessagesAreUnderWay) {
  struct {
    int ranks;
    const char *channels, *windows;
  } const runs[] = {{3, "0", "0"}, {2, "4", "0"}, {2, "0", "1"}};
  for (const auto& run : runs) {
    const Variable v("MUSTER_CHANNELS", run.channels), w("MUSTER_WINDOWS", run.windows);
    on_threads_and_processes(run.ranks, [](Communicator& c, int) {
      exchange(c);
      collectives(c);
      exchange(c);
    });
  }
}

// Bytes of a ring for messages up to 8 KiB, and of one for point-to-point messages of all sizes.
constexpr size_t kSmall = 48 << 10, kFull = 33 * (16 << 10);
constexpr int kBusy = (16 << 20) / 8192;  // messages of 8 KiB that make a connection busy

// Messages of 8 KiB between two ranks, each way, many at once.
void swap(Communicator& c, int messages) {
  constexpr int kAtOnce = 50;
  constexpr size_t kCount = 2048;
  std::vector<int> in(kCount * kAtOnce), out(in.size());
  for (int i = 0; i < messages; i += kAtOnce) {
    for (size_t k = 0; k < out.size(); ++k) out[k] = c.rank() + i + static_cast<int>(k);
    group_start();
    for (size_t m = 0; m < kAtOnce; ++m) {
      c.send(&out[m * kCount], kCount, kInt, 1 - c.rank());
      c.recv(&in[m * kCount], kCount, kInt, 1 - c.rank());
    }
    group_end();
    for (size_t k = 0; k < in.size(); ++k) ASSERT_EQ(in[k], 1 - c.rank() + i + static_cast<int>(k)) << "from message " << i;
  }
}
// One of 400 KB each way.
void swap_long(Communicator& c) {
  std::vector<int> out(100'000, c.rank()), in(out.size(), -1);
  group_start();
  c.send(out.data(), out.size(), kInt, 1 - c.rank());
  c.recv(in.data(), in.size(), kInt, 1 - c.rank());
  group_end();
  EXPECT_THAT(in, testing::Each(1 - c.rank()));
}

TEST(RingGrowth, OfABusyConnection) {
  on_threads_and_processes(2, [](Communicator& c, int) {
    swap(c, kBusy - 100);
    EXPECT_EQ(c.memory_use().suspendable, kSmall);
    swap(c, 200);
    EXPECT_EQ(c.memory_use().suspendable, kFull);
    swap(c, 200);
    swap_long(c);
    EXPECT_EQ(c.memory_use().suspendable, kFull);
    expect_works(c);
  });
}

TEST(RingGrowth, AfterSuspend) {
  on_threads_and_processes(2, [](Communicator& c, int) {
    swap(c, 50);
    c.suspend();
    EXPECT_EQ(c.memory_use().suspended, kSmall);
    c.resume();
    swap(c, 50);
    EXPECT_EQ(c.memory_use().suspendable, kSmall);
    swap_long(c);
    EXPECT_EQ(c.memory_use().suspendable, kFull);
  });
}

// A busy connection does without; a message that needs it is an error of all ranks, which says what could not be had.
TEST(RingGrowth, RefusedMemory) {
  const Variable quiet("MUSTER_LOG", "off");
  on_threads_and_processes(2, [](Communicator& c, int rank) {
    if (rank == 1) most_reserved = 256 << 10;
    swap(c, kBusy + 200);
    EXPECT_EQ(c.memory_use().suspendable, rank == 1 ? kSmall : kFull);
    const Outcome o = outcome_of([&] { swap_long(c); });
    EXPECT_EQ(o.code, Result::system_error) << o;
    EXPECT_THAT(o.text, AllOf(HasSubstr("reserving 540672 bytes of shared memory"), HasSubstr("Free memory or raise the memory limit")));
  });
}

}  // namespace
}  // namespace muster
