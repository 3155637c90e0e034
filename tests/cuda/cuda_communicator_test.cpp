// The C++ interface on GPU memory: each call once, what it refuses, and lanes that communicate beside a
// stream.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "cuda/gpus.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "muster/bytes_sent.h"
#include "muster/gpu.h"
#include "parallel/training_device.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::outcome_of;
using test::run_threads;
using testing::HasSubstr;
using Floats = std::vector<float>;

constexpr int kRanks = 4, kRoot = 2;
constexpr size_t kN = 1001, kGuard = 64;
constexpr float kPoison = -77;

// The j-th element that rank r sends.
float value(int r, size_t j) { return static_cast<float>((r * 31 + static_cast<int>(j % 1009)) % 97); }

// One rank's stream and buffers: `in` has kRanks * kN values, `out` as many of poison between guards.
struct Place {
  explicit Place(int rank)
      : device(choose(rank)),
        stream(device),
        in(device, 4 * kRanks * kN),
        out(device, 4 * (kRanks * kN + 2 * kGuard)) {
    Floats values(kRanks * kN);
    for (size_t j = 0; j < values.size(); ++j) values[j] = value(rank, j);
    in.write(0, values.data(), in.size());
  }
  static int choose(int rank) {
    const int device = rank % cuda::devices().count;
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    return device;
  }
  float* send() const { return reinterpret_cast<float*>(in.data()); }
  float* recv() const { return reinterpret_cast<float*>(out.data()) + kGuard; }
  GpuStream on() const { return {stream.handle()}; }
  // What `call` leaves in out: `n` elements, and poison around them.
  template <class Call>
  Floats result(size_t n, Call call) {
    Floats all(out.size() / 4, kPoison);
    out.write(0, all.data(), out.size());
    call();
    stream.synchronize();
    out.read(0, all.data(), out.size());
    for (size_t j = 0; j < all.size(); ++j) {
      if (j >= kGuard && j < kGuard + n) continue;
      EXPECT_EQ(all[j], kPoison) << "outside of the result, " << j;
    }
    return {all.begin() + kGuard, all.begin() + static_cast<std::ptrdiff_t>(kGuard + n)};
  }
  const int device;
  cuda::Stream stream;
  cuda::DeviceMemory in, out;
};

template <class F>
Floats wanted(size_t n, F f) {
  Floats all(n);
  for (size_t j = 0; j < n; ++j) all[j] = f(j);
  return all;
}
float sum(size_t j) { return value(0, j) + value(1, j) + value(2, j) + value(3, j); }

TEST(CudaCommunicator, CollectivesAndMessages) {
  MUSTER_NEEDS_GPUS(2);
  run_threads(kRanks, [](Communicator& c, int rank) {
    Place p(rank);
    const auto type = DataType::float32;
    const size_t all = kRanks * kN, mine = static_cast<size_t>(rank) * kN;
    const auto from_all = [](size_t j) { return value(static_cast<int>(j / kN), j % kN); };
    EXPECT_EQ(p.result(kN, [&] { gpu::all_reduce(c, p.send(), p.recv(), kN, type, RedOp::sum, p.on()); }),
              wanted(kN, sum));
    EXPECT_EQ(p.result(kN, [&] { gpu::broadcast(c, p.send(), p.recv(), kN, type, kRoot, p.on()); }),
              wanted(kN, [](size_t j) { return value(kRoot, j); }));
    EXPECT_EQ(p.result(rank == kRoot ? kN : 0,
                       [&] {
                         gpu::reduce(c, p.send(), rank == kRoot ? p.recv() : nullptr, kN, type, RedOp::sum,
                                     kRoot, p.on());
                       }),
              wanted(rank == kRoot ? kN : 0, sum));
    EXPECT_EQ(p.result(all, [&] { gpu::all_gather(c, p.send(), p.recv(), kN, type, p.on()); }),
              wanted(all, from_all));
    EXPECT_EQ(p.result(kN, [&] { gpu::reduce_scatter(c, p.send(), p.recv(), kN, type, RedOp::sum, p.on()); }),
              wanted(kN, [&](size_t j) { return sum(mine + j); }));
    EXPECT_EQ(p.result(all, [&] { gpu::all_to_all(c, p.send(), p.recv(), kN, type, p.on()); }),
              wanted(all, [&](size_t j) { return value(static_cast<int>(j / kN), mine + j % kN); }));
    EXPECT_EQ(
        p.result(
            rank == kRoot ? all : 0,
            [&] { gpu::gather(c, p.send(), rank == kRoot ? p.recv() : nullptr, kN, type, kRoot, p.on()); }),
        wanted(rank == kRoot ? all : 0, from_all));
    EXPECT_EQ(
        p.result(
            kN,
            [&] { gpu::scatter(c, rank == kRoot ? p.send() : nullptr, p.recv(), kN, type, kRoot, p.on()); }),
        wanted(kN, [&](size_t j) { return value(kRoot, mine + j); }));
    const std::vector<size_t> counts{3, 0, 7, kN};
    EXPECT_EQ(p.result(10 + kN,
                       [&] {
                         gpu::all_gather_v(c, p.send(), counts[static_cast<size_t>(rank)], p.recv(), counts,
                                           {}, type, p.on());
                       }),
              wanted(10 + kN, [](size_t j) {
                return j < 3 ? value(0, j) : j < 10 ? value(2, j - 3) : value(3, j - 10);
              }));
    const size_t begins[] = {0, 3, 3, 10};
    EXPECT_EQ(
        p.result(counts[static_cast<size_t>(rank)],
                 [&] { gpu::reduce_scatter_v(c, p.send(), p.recv(), counts, type, RedOp::sum, p.on()); }),
        wanted(counts[static_cast<size_t>(rank)], [&](size_t j) { return sum(begins[rank] + j); }));
    const std::vector<size_t> fives(kRanks, 5);
    EXPECT_EQ(
        p.result(20, [&] { gpu::all_to_all_v(c, p.send(), fives, {}, p.recv(), fives, {}, type, p.on()); }),
        wanted(20, [&](size_t j) {
          return value(static_cast<int>(j / 5), static_cast<size_t>(rank) * 5 + j % 5);
        }));
    EXPECT_EQ(p.result(kN,
                       [&] {
                         group_start();
                         gpu::send(c, p.send(), kN, type, (rank + 1) % kRanks, p.on());
                         gpu::recv(c, p.recv(), kN, type, (rank + kRanks - 1) % kRanks, p.on());
                         group_end();
                       }),
              wanted(kN, [&](size_t j) { return value((rank + kRanks - 1) % kRanks, j); }));
    Floats on_host(8, static_cast<float>(rank));
    c.all_reduce(on_host.data(), on_host.data(), 8, type, RedOp::sum);  // besides
    EXPECT_EQ(on_host, Floats(8, 6));
  });
}

// All-reduce = reduce-scatter + all-gather: 2 (N-1)/N and (N-1)/N of the data, and the same bits.
TEST(CudaCommunicator, BytesSentAreThoseOfTheFormulas) {
  MUSTER_NEEDS_GPUS(2);
  constexpr size_t kCount = 3840;  // of which 2, 3 and 4 ranks have whole lines of 64 bytes
  const auto type = DataType::float32;
  for (const char* algorithm : {"ring", "direct"})
    for (const int n : {1, 2, 3, 4}) {
      SCOPED_TRACE(testing::Message() << algorithm << ", " << n << " ranks");
      const test::Variable forced("MUSTER_ALGO", algorithm);
      run_threads(n, [&](Communicator& c, int rank) {
        Place p(rank);
        const size_t share = kCount / static_cast<size_t>(n), part = 4 * (kCount - share);
        BytesSent sent, before = bytes_sent(c);
        const auto result = [&](size_t elements, auto call) {
          before = bytes_sent(c);
          const Floats got = p.result(elements, call);
          sent = bytes_sent(c) - before;
          EXPECT_EQ(sent.total(), sent.gpu);
          return got;
        };
        const Floats whole =
            result(kCount, [&] { gpu::all_reduce(c, p.send(), p.recv(), kCount, type, RedOp::sum, p.on()); });
        EXPECT_EQ(sent.gpu, 2 * part);
        const Floats mine = result(
            share, [&] { gpu::reduce_scatter(c, p.send(), p.recv(), share, type, RedOp::sum, p.on()); });
        EXPECT_EQ(sent.gpu, part);
        p.in.write(0, mine.data(), 4 * share);
        EXPECT_EQ(result(kCount, [&] { gpu::all_gather(c, p.send(), p.recv(), share, type, p.on()); }),
                  whole);
        EXPECT_EQ(sent.gpu, part);
        result(20, [&] {  // what goes to oneself isn't sent
          group_start();
          gpu::send(c, p.send(), 10, type, rank, p.on());
          gpu::recv(c, p.recv(), 10, type, rank, p.on());
          gpu::send(c, p.send(), 10, type, (rank + 1) % n, p.on());
          gpu::recv(c, p.recv() + 10, 10, type, (rank + n - 1) % n, p.on());
          group_end();
        });
        EXPECT_EQ(sent.gpu, n == 1 ? 0u : 40u);
        const std::vector<size_t> counts(static_cast<size_t>(n), 7);
        result(7 * counts.size(),
               [&] { gpu::all_gather_v(c, p.send(), 7, p.recv(), counts, {}, type, p.on()); });
        EXPECT_EQ(sent.gpu, 28 * (counts.size() - 1));
      });
    }
}

TEST(CudaCommunicator, HostMemoryIsRefused) {
  MUSTER_NEEDS_GPUS(2);
  run_threads(2, [](Communicator& c, int rank) {
    Place p(rank);
    Floats plain(kN);
    const auto both = outcome_of(
        [&] { gpu::all_reduce(c, plain.data(), plain.data(), kN, DataType::float32, RedOp::sum, p.on()); });
    EXPECT_EQ(both.code, Result::invalid_argument);
    EXPECT_THAT(both.text, HasSubstr("host memory"));
    const auto one =
        outcome_of([&] { gpu::all_gather(c, plain.data(), p.recv(), kN, DataType::float32, p.on()); });
    EXPECT_EQ(one.code, Result::invalid_argument);
    EXPECT_THAT(one.text, HasSubstr("GPUs don't reach"));
    gpu::all_reduce(c, p.send(), p.recv(), kN, DataType::float32, RedOp::sum, p.on());  // and it goes on
    p.stream.synchronize();
  });
}

// What a stream is stopped at until release().
class Stop {
 public:
  void put_on(GpuStream stream) {
    const auto wait = [](void* self) {
      while (!static_cast<Stop*>(self)->released_.load()) std::this_thread::yield();
    };
    ASSERT_EQ(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream.handle), wait, this), cudaSuccess);
  }
  void release() { released_.store(true); }

 private:
  std::atomic<bool> released_{false};
};

// It comes behind what the caller's stream has, and not behind what that gets later.
TEST(CudaLane, CommunicatesBesideTheCallersStream) {
  MUSTER_NEEDS_GPUS(2);
  run_threads(2, [](Communicator& c, int rank) {
    Place p(rank);
    const std::unique_ptr<TrainingDevice> device = gpu_training_device(p.on());
    device->connect(c);
    const std::unique_ptr<CommunicationLane> lane = device->make_lane();
    const StateMemory data = device->allocate(4 * kN);
    Stop before, after;
    const auto wait_until_reduced = [&](float want) {  // by another stream; the test's limit ends it
      Floats got(kN);
      do cuda::read_memory(p.device, data.data(), got.data(), 4 * kN);
      while (got != Floats(kN, want));
    };
    const Floats mine(kN, static_cast<float>(2 + 4 * rank));
    cuda::DeviceMemory late(p.device, 4 * kN);
    late.write(0, mine.data(), 4 * kN);
    before.put_on(p.on());
    device->copy(data.data(), late.data(), 4 * kN);
    lane->all_reduce(c, data.data(), kN, DataType::float32);
    after.put_on(p.on());
    before.release();
    wait_until_reduced(4);  // the average of 2 and 6, while the caller's stream stands still
    const uint64_t given = lane->given();
    EXPECT_FALSE(p.stream.idle());
    lane->await(given);
    device->add_elements(data.data(), data.data(), kN, DataType::float32);
    after.release();
    wait_until_reduced(8);
    device->settle();
  });
}

}  // namespace
}  // namespace muster
