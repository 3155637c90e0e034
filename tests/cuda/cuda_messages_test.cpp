// Groups of sends and receives on GPUs: every byte arrives where it should, in whatever order groups are
// written down, and no other byte changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "cuda/gpu_cases.h"
#include "cuda/gpus.h"
#include "exec/cuda/messages.h"

namespace muster {
namespace {

using cuda::DeviceMemory;
using test::GpuRanks;

cuda::MailboxShape messages_mailbox(int ranks, int lanes) {
  cuda::MailboxShape shape;
  shape.ranks = ranks;
  shape.message_lanes = lanes;
  shape.slots = 2;
  shape.slot_bytes = 1024;
  return shape;
}

// Messages of all ranks, each between two pieces of memory with bytes around them that nobody may write.
class Exchange {
 public:
  explicit Exchange(GpuRanks& gpus, const cuda::MailboxShape& shape)
      : gpus_(gpus), shape_(shape), groups_(gpus.size()) {}

  // From the sender's side and the receiver's; `offset`: of both buffers from a multiple of 256.
  void send(int from, int to, size_t bytes, size_t offset = 0) {
    Buffer& b = add(from, bytes, offset);
    for (auto& v : b.before) v = static_cast<std::byte>(random_());
    b.want = b.before;
    in_flight_[{from, to}].push_back(&b);
    groups_[static_cast<size_t>(from)].push_back({nullptr, bytes, bytes, to, true});
    order_[from].push_back(&b);
  }
  void receive(int at, int from, size_t bytes, size_t offset = 0) {
    Buffer& b = add(at, bytes, offset);
    received_[{from, at}].push_back(&b);
    groups_[static_cast<size_t>(at)].push_back({nullptr, bytes, bytes, from, false});
    order_[at].push_back(&b);
  }
  // Ends every rank's group: its messages so far are one launch.
  void launch() {
    for (size_t r = 0; r < groups_.size(); ++r) {
      auto& buffers = order_[static_cast<int>(r)];
      std::vector<std::byte> before;
      for (Buffer* b : buffers) {
        b->at = align_up(before.size(), 256);
        before.resize(b->at + b->before.size());
        std::copy(b->before.begin(), b->before.end(), before.begin() + static_cast<ptrdiff_t>(b->at));
      }
      const auto memory =
          std::make_shared<DeviceMemory>(gpus_.stream(static_cast<int>(r)).device(), before.size());
      memory->write(0, before.data(), before.size());
      for (size_t i = 0; i < buffers.size(); ++i) {
        buffers[i]->memory = memory;
        groups_[r][i].buffer = memory->data() + buffers[i]->at + buffers[i]->start;
      }
    }
    for (size_t r = 0; r < groups_.size(); ++r) {
      const int rank = static_cast<int>(r);
      gpus_.executor(rank).most_threads = 64;
      gpus_.executor(rank).run(cuda::image_of(groups_[r], rank, shape_), gpus_.stream(rank).handle());
      groups_[r].clear();
      order_[rank].clear();
    }
  }
  void check() {
    for (int r = 0; r < static_cast<int>(groups_.size()); ++r) {
      gpus_.stream(r).synchronize();
      ASSERT_FALSE(gpus_.executor(r).mismatch().has_value()) << "rank " << r;
    }
    for (auto& [pair, buffers] : received_) {
      auto& sent = in_flight_[pair];
      ASSERT_EQ(sent.size(), buffers.size());
      for (size_t i = 0; i < buffers.size(); ++i)
        std::copy_n(sent[i]->before.begin() + static_cast<ptrdiff_t>(sent[i]->start), sent[i]->bytes,
                    buffers[i]->want.begin() + static_cast<ptrdiff_t>(buffers[i]->start));
    }
    for (Buffer& b : buffers_) {
      std::vector<std::byte> got(b.before.size());
      b.memory->read(b.at, got.data(), got.size());
      const auto differs = std::mismatch(got.begin(), got.end(), b.want.begin());
      ASSERT_TRUE(differs.first == got.end())
          << "rank " << b.rank << ", " << b.bytes << " bytes: byte "
          << differs.first - got.begin() - static_cast<ptrdiff_t>(b.start) << " is wrong";
    }
  }

 private:
  struct Buffer {
    int rank;
    size_t start, bytes;  // in `before`
    std::vector<std::byte> before, want;
    size_t at = 0;  // in its rank's memory
    std::shared_ptr<DeviceMemory> memory;
  };
  Buffer& add(int rank, size_t bytes, size_t offset) {
    constexpr size_t kGuard = 64;
    Buffer& b = buffers_.emplace_back();
    b.rank = rank;
    b.start = kGuard + offset;
    b.bytes = bytes;
    b.before.assign(b.start + bytes + kGuard, std::byte{0xee});
    b.want = b.before;
    return b;
  }

  GpuRanks& gpus_;
  const cuda::MailboxShape shape_;
  std::vector<std::vector<GroupMessage>> groups_;
  std::map<int, std::vector<Buffer*>> order_;
  std::deque<Buffer> buffers_;
  std::map<std::pair<int, int>, std::vector<Buffer*>> in_flight_, received_;
  std::mt19937_64 random_{7};
};

TEST(CudaMessages, EverybodyToEverybodySeveralOfAnyLengthInAnyOrder) {
  MUSTER_NEEDS_GPUS(2);
  constexpr size_t kBytes[] = {0, 1, 5000, 16, 1024, 1025, 333};
  for (const int n : {1, 2, 4})
    for (const int lanes : {1, 3}) {
      if ((n == 2) == (lanes == 1)) continue;
      SCOPED_TRACE(testing::Message() << n << " ranks, " << lanes << " lanes");
      const cuda::MailboxShape shape = messages_mailbox(n, lanes);
      GpuRanks gpus(n, shape);
      Exchange all(gpus, shape);
      for (int turn = 0; turn < 2; ++turn) {
        // Receives before sends at one rank, and peers in opposite orders.
        for (int r = 0; r < n; ++r)
          for (int i = 0; i < 2 * n; ++i) {
            const bool sends = (i < n) == (r % 2 == 0);
            const int peer = r % 2 == 0 ? i % n : n - 1 - i % n;
            for (size_t k = 0; k < std::size(kBytes); ++k) {
              const size_t bytes =
                  kBytes[(k + static_cast<size_t>(sends ? r + peer : peer + r)) % std::size(kBytes)];
              if (sends)
                all.send(r, peer, bytes, k % 3 * 4);
              else
                all.receive(r, peer, bytes, k % 2 * 5);
            }
          }
        all.launch();
      }
      all.check();
      if (HasFatalFailure()) return;
    }
}

// More peers than blocks, each rank with another subset of them.
TEST(CudaMessages, ABlockKeepsSeveralFlowsGoing) {
  MUSTER_NEEDS_GPUS(2);
  constexpr int kRanks = 12;
  const cuda::MailboxShape shape = messages_mailbox(kRanks, 1);
  GpuRanks gpus(kRanks, shape);
  Exchange some(gpus, shape);
  for (int r = 0; r < kRanks; ++r)
    for (int peer = 0; peer < kRanks; ++peer)
      if ((r * 7 + peer * 3) % 4 != 0) {
        some.send(r, peer, static_cast<size_t>(r * 100 + peer * 10));
        some.receive(peer, r, static_cast<size_t>(r * 100 + peer * 10));
      }
  some.launch();
  some.check();
}

TEST(CudaMessages, OneEndComesLate) {
  MUSTER_NEEDS_GPUS(2);
  const cuda::MailboxShape shape = messages_mailbox(2, 2);
  GpuRanks gpus(2, shape);
  Exchange pair(gpus, shape);
  pair.send(0, 1, 9000);
  pair.launch();
  while (gpus.executor(0).waiting_for() < 0) std::this_thread::yield();
  EXPECT_EQ(gpus.executor(0).waiting_for(), 1);
  pair.receive(1, 0, 9000);
  pair.launch();
  pair.check();
  EXPECT_EQ(gpus.executor(0).waiting_for(), -1);
}

TEST(CudaMessages, AnotherLengthIsNoticedAndAbortEndsAll) {
  MUSTER_NEEDS_GPUS(2);
  const cuda::MailboxShape shape = messages_mailbox(2, 1);
  GpuRanks gpus(2, shape);
  Exchange pair(gpus, shape);
  pair.send(0, 1, 100);
  pair.receive(1, 0, 5000);
  pair.receive(0, 1, 10);  // never sent
  pair.launch();
  while (!gpus.executor(1).mismatch()) std::this_thread::yield();
  EXPECT_EQ(gpus.executor(1).mismatch()->peer, 0);
  EXPECT_EQ(gpus.executor(1).mismatch()->expected, 5000u);
  EXPECT_EQ(gpus.executor(1).mismatch()->found, 100u);
  EXPECT_FALSE(gpus.stream(0).idle());
  for (int r = 0; r < 2; ++r) gpus.executor(r).abort();
  for (int r = 0; r < 2; ++r) gpus.stream(r).synchronize();
}

TEST(CudaMessages, SendsToItselfMustMatch) {
  std::byte b{};
  const cuda::MailboxShape shape = messages_mailbox(2, 1);
  const GroupMessage send{&b, 1, 0, 1, true}, longer{&b, 2, 0, 1, false};
  EXPECT_THROW(cuda::image_of(std::vector{send}, 1, shape), Error);
  EXPECT_THROW(cuda::image_of(std::vector{send, longer}, 1, shape), Error);
  EXPECT_EQ(cuda::image_of(std::vector{send}, 0, shape).flows.size(), 1u);
}

}  // namespace
}  // namespace muster
