// Collectives of one group on GPU memory: few launches, and the results of calls that come one after the other. The
// simulator's trace counts launches.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cuda/gpus.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "nccl.h"
#include "support/outcome.h"

namespace muster {
namespace {

using test::Variable;

constexpr int kRanks = 4;
constexpr size_t kGuard = 256, kBytes = size_t{1} << 20;
constexpr auto kPoison = std::byte{0xee};

// Ranks of one process on so many GPUs, with a stream and two pieces of memory each.
class GroupRanks {
 public:
  explicit GroupRanks(int gpus) {
    std::vector<int> devices;
    for (int r = 0; r < kRanks; ++r) devices.push_back(r % gpus);
    EXPECT_EQ(ncclCommInitAll(comms_.data(), kRanks, devices.data()), ncclSuccess) << ncclGetLastError(nullptr);
    for (const int device : devices) {
      streams_.push_back(std::make_unique<cuda::Stream>(device));
      in_.emplace_back(device, kBytes);
      out_.emplace_back(device, kBytes);
    }
    fill();
    // Connects them, which launches kernels, too.
    group([&](int r) { return ncclAllReduce(in(r), out(r), 1, ncclInt32, ncclSum, comm(r), stream(r)); });
    fill();
  }
  ~GroupRanks() {
    for (const ncclComm_t c : comms_) {
      if (!c) continue;
      EXPECT_EQ(ncclCommDestroy(c), ncclSuccess);
    }
  }
  GroupRanks(const GroupRanks&) = delete;
  GroupRanks& operator=(const GroupRanks&) = delete;

  ncclComm_t comm(int r) const { return comms_[static_cast<size_t>(r)]; }
  cudaStream_t stream(int r) const { return streams_[static_cast<size_t>(r)]->handle(); }
  int device(int r) const { return streams_[static_cast<size_t>(r)]->device(); }
  std::byte* in(int r, size_t offset = 0) const { return in_[static_cast<size_t>(r)].data() + offset; }
  std::byte* out(int r, size_t offset = 0) const { return out_[static_cast<size_t>(r)].data() + offset; }
  void write_input(int r, size_t offset, const void* from, size_t bytes) { in_[static_cast<size_t>(r)].write(offset, from, bytes); }
  std::vector<std::byte> output(int r) const {
    std::vector<std::byte> all(kBytes);
    out_[static_cast<size_t>(r)].read(0, all.data(), kBytes);
    return all;
  }
  void fill() {
    const std::vector<std::byte> poison(kBytes, kPoison);
    for (auto& m : out_) m.write(0, poison.data(), kBytes);
  }
  void synchronize() {
    for (auto& s : streams_) s->synchronize();
  }
  // `calls(r)` of all ranks in one group.
  void group(const std::function<ncclResult_t(int)>& calls) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int r = 0; r < kRanks; ++r) ASSERT_EQ(calls(r), ncclSuccess) << ncclGetLastError(comm(r));
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    synchronize();
  }
  void abort() {
    for (ncclComm_t& c : comms_) {
      EXPECT_EQ(ncclCommAbort(c), ncclSuccess);
      c = nullptr;
    }
    synchronize();
  }

 private:
  std::vector<ncclComm_t> comms_ = std::vector<ncclComm_t>(kRanks);
  std::vector<std::unique_ptr<cuda::Stream>> streams_;
  std::vector<cuda::DeviceMemory> in_, out_;
};

// Kernels that were launched while `f` ran.
int launches_of(const std::function<void()>& f) {
  testing::internal::CaptureStderr();
  f();
  std::istringstream lines(testing::internal::GetCapturedStderr());
  int launches = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.find(": launch of ") != std::string::npos)
      ++launches;
    else
      fprintf(stderr, "%s\n", line.c_str());
  return launches;
}

// --- an all-reduce of some type somewhere in the ranks' memory ---

int small_value(int rank, size_t i, size_t salt) { return static_cast<int>((static_cast<size_t>(rank) * 7 + i + salt) % 13); }

struct Reduction {
  ncclDataType_t type;
  size_t count, at;  // at: in both memories
  size_t width() const { return type == ncclInt8 ? 1 : type == ncclInt32 || type == ncclFloat ? 4 : 8; }
  void store(std::vector<std::byte>& bytes, size_t i, int v) const {
    const auto put = [&](auto value) { std::memcpy(&bytes[i * width()], &value, sizeof value); };
    if (type == ncclInt8) return put(static_cast<int8_t>(v));
    if (type == ncclInt32) return put(static_cast<int32_t>(v));
    if (type == ncclFloat) return put(static_cast<float>(v));
    if (type == ncclDouble) return put(static_cast<double>(v));
    put(static_cast<int64_t>(v));
  }
  // Of all ranks: their sum.
  std::vector<std::byte> values(int rank) const {
    std::vector<std::byte> bytes(count * width());
    for (size_t i = 0; i < count; ++i) {
      int v = 0;
      for (int r = 0; r < kRanks; ++r)
        if (rank < 0 || rank == r) v += small_value(r, i, at);
      store(bytes, i, v);
    }
    return bytes;
  }
  ncclResult_t start(const GroupRanks& ranks, int r) const {
    return ncclAllReduce(ranks.in(r, at), ranks.out(r, at), count, type, ncclSum, ranks.comm(r), ranks.stream(r));
  }
};

void write_inputs(GroupRanks& ranks, const std::vector<Reduction>& all) {
  for (int r = 0; r < kRanks; ++r)
    for (const Reduction& k : all) {
      const auto bytes = k.values(r);
      ranks.write_input(r, k.at, bytes.data(), bytes.size());
    }
}

// Every byte of the output memory: sums, and poison around them.
void expect_outputs(const GroupRanks& ranks, const std::vector<Reduction>& all) {
  std::vector<std::byte> want(kBytes, kPoison);
  for (const Reduction& k : all) {
    const auto bytes = k.values(-1);
    std::memcpy(&want[k.at], bytes.data(), bytes.size());
  }
  for (int r = 0; r < kRanks; ++r) {
    const auto got = ranks.output(r);
    for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(got[i], want[i]) << "rank " << r << " byte " << i;
  }
}

// Twenty of different sizes: seven of a type, six of the next one, seven of the third.
std::vector<Reduction> twenty(size_t longest) {
  std::vector<Reduction> all;
  size_t at = kGuard;
  for (size_t i = 0; i < 20; ++i) {
    Reduction k{i < 7 ? ncclFloat : i < 13 ? ncclInt8 : ncclInt64, i % 5 == 2 ? longest : 1 + i * 37 % 300, at};
    at += (k.count * k.width() + kGuard + 15) / 16 * 16 + (i % 3 == 0 ? 8 : 0);
    all.push_back(k);
  }
  EXPECT_LE(at, kBytes);
  return all;
}

TEST(CudaGroups, CallsOfAKernelAreOneLaunch) {
  MUSTER_NEEDS_GPUS(4);
  const Variable channels("MUSTER_CHANNELS", "3");
  for (const int gpus : {1, 2, 4}) {
    SCOPED_TRACE(gpus);
    GroupRanks ranks(gpus);
    for (const size_t longest : {size_t{500}, size_t{9000}}) {
      const auto all = twenty(longest);
      ranks.fill();
      write_inputs(ranks, all);
      EXPECT_EQ(launches_of([&] {
                  ranks.group([&](int r) {
                    for (const Reduction& k : all)
                      if (const auto e = k.start(ranks, r); e != ncclSuccess) return e;
                    return ncclSuccess;
                  });
                }),
                3 * kRanks);
      expect_outputs(ranks, all);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CudaGroups, ManyCallsAreSeveralLaunches) {
  MUSTER_NEEDS_GPUS(2);
  GroupRanks ranks(2);
  std::vector<Reduction> all;
  for (size_t i = 0; i < 45; ++i) all.push_back({ncclInt32, 1 + i, kGuard + i * 512});
  write_inputs(ranks, all);
  EXPECT_EQ(launches_of([&] {
              ranks.group([&](int r) {
                for (const Reduction& k : all)
                  if (const auto e = k.start(ranks, r); e != ncclSuccess) return e;
                return ncclSuccess;
              });
            }),
            3 * kRanks);
  expect_outputs(ranks, all);
}

// What only moves goes along with what reduces, whatever the types.
TEST(CudaGroups, MovesShareALaunchWithReductions) {
  MUSTER_NEEDS_GPUS(2);
  GroupRanks ranks(2);
  constexpr size_t kCount = 400, kPart = 8192;
  const Reduction sum{ncclInt64, kCount, kGuard}, last{ncclInt64, 7, kGuard + 5 * kPart};
  write_inputs(ranks, {sum, last});
  EXPECT_EQ(launches_of([&] {
              ranks.group([&](int r) {
                const ncclComm_t c = ranks.comm(r);
                const cudaStream_t s = ranks.stream(r);
                ncclAllGather(ranks.in(r, kGuard), ranks.out(r, kGuard + kPart), 25, ncclInt64, c, s);
                sum.start(ranks, r);
                ncclBroadcast(ranks.in(r, kGuard), ranks.out(r, kGuard + 2 * kPart), 99, ncclUint8, 3, c, s);
                return last.start(ranks, r);
              });
            }),
            kRanks);
  for (int r = 0; r < kRanks; ++r) {
    const auto got = ranks.output(r);
    std::vector<std::byte> want(kBytes, kPoison);
    for (const Reduction& k : {sum, last}) std::memcpy(&want[k.at], k.values(-1).data(), k.count * 8);
    for (int from = 0; from < kRanks; ++from)
      std::memcpy(&want[kGuard + kPart + static_cast<size_t>(from) * 200], sum.values(from).data(), 200);
    std::memcpy(&want[kGuard + 2 * kPart], sum.values(3).data(), 99);
    for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(got[i], want[i]) << "rank " << r << " byte " << i;
  }
}

// out = sum of in; out behind it = sum of out; in place again.
constexpr int32_t kChained = kRanks * kRanks;
ncclResult_t chain(const GroupRanks& ranks, int r, size_t count, cudaStream_t second) {
  const Reduction first{ncclInt32, count, kGuard};
  std::byte* const next = ranks.out(r, 2 * kGuard + 4 * count);
  if (const auto e = first.start(ranks, r); e != ncclSuccess) return e;
  if (const auto e = ncclAllReduce(ranks.out(r, kGuard), next, count, ncclInt32, ncclSum, ranks.comm(r), second); e != ncclSuccess) return e;
  return ncclAllReduce(next, next, count, ncclInt32, ncclSum, ranks.comm(r), ranks.stream(r));
}
void expect_chained(const GroupRanks& ranks, size_t count, int32_t sign = 1) {
  for (int r = 0; r < kRanks; ++r) {
    const auto got = ranks.output(r);
    std::vector<std::byte> want(kBytes, kPoison);
    for (size_t i = 0; i < count; ++i) {
      int32_t v = 0;
      for (int from = 0; from < kRanks; ++from) v += sign * small_value(from, i, kGuard);
      std::memcpy(&want[kGuard + 4 * i], &v, 4);
      v *= kChained;
      std::memcpy(&want[2 * kGuard + 4 * (count + i)], &v, 4);
    }
    for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(got[i], want[i]) << "rank " << r << " byte " << i;
  }
}

TEST(CudaGroups, ACallReadsWhatTheOneBeforeItWrote) {
  MUSTER_NEEDS_GPUS(4);
  // One block each in a launch; blocks of several have no order, so three launches.
  struct Case {
    const char* channels;
    size_t count;
    int launches;
  };
  for (const auto& [channels, count, launches] : {Case{"1", 10, 1}, {"1", 9'000, 1}, {"3", 30'000, 3}}) {
    const Variable wish("MUSTER_CHANNELS", channels);
    GroupRanks ranks(4);
    for (const bool other_stream : {false, true}) {
      SCOPED_TRACE(testing::Message() << count << (other_stream ? " on two streams" : ""));
      std::vector<std::unique_ptr<cuda::Stream>> others;
      for (int r = 0; r < kRanks; ++r) others.push_back(std::make_unique<cuda::Stream>(ranks.device(r)));
      ranks.fill();
      write_inputs(ranks, {{ncclInt32, count, kGuard}});
      const int launched = launches_of([&] {
        ranks.group([&](int r) {
          return chain(ranks, r, count, other_stream ? others[static_cast<size_t>(r)]->handle() : ranks.stream(r));
        });
      });
      EXPECT_EQ(launched, kRanks * (other_stream ? 3 : launches));
      expect_chained(ranks, count);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Who makes the calls one by one meets those of a group.
TEST(CudaGroups, RanksMayGroupDifferently) {
  MUSTER_NEEDS_GPUS(2);
  const Variable channels("MUSTER_CHANNELS", "3");
  GroupRanks ranks(2);
  const auto all = twenty(9000);
  write_inputs(ranks, all);
  std::vector<std::thread> running;
  for (int r = 0; r < kRanks; ++r)
    running.emplace_back([&, r] {
      for (size_t i = 0; i < all.size(); ++i) {
        const bool begins = r == 0 ? i == 0 : r == 1 ? i % 4 == 0 : r == 2 && i % 2 == 0,
                   ends = r == 0 ? i + 1 == all.size() : r == 1 ? i % 4 == 3 : r == 2 && i % 2 == 1;
        if (begins) {
          EXPECT_EQ(ncclGroupStart(), ncclSuccess);
        }
        EXPECT_EQ(all[i].start(ranks, r), ncclSuccess);
        if (ends) {
          EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
        }
      }
    });
  for (auto& t : running) t.join();
  ranks.synchronize();
  expect_outputs(ranks, all);
}

// A rank waits for a host's collective in the middle of its group, and others only make that when the first call is done.
TEST(CudaGroups, WhatIsBeforeAHostCollectiveHasBegunThen) {
  MUSTER_NEEDS_GPUS(2);
  GroupRanks ranks(2);
  const std::vector<Reduction> all = {{ncclFloat, 50, kGuard}, {ncclFloat, 60, 4 * kGuard}};
  write_inputs(ranks, all);
  std::vector<std::vector<int>> host(kRanks, std::vector<int>(9, 1));
  std::vector<std::thread> running;
  for (int r = 0; r < kRanks; ++r)
    running.emplace_back([&, r] {
      int* const mine = host[static_cast<size_t>(r)].data();
      if (r == 0) {
        EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      }
      EXPECT_EQ(all[0].start(ranks, r), ncclSuccess);
      if (r != 0) {
        EXPECT_EQ(cudaStreamSynchronize(ranks.stream(r)), cudaSuccess);
      }
      EXPECT_EQ(ncclAllReduce(mine, mine, 9, ncclInt32, ncclSum, ranks.comm(r), nullptr), ncclSuccess);
      EXPECT_EQ(all[1].start(ranks, r), ncclSuccess);
      if (r == 0) {
        EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      }
    });
  for (auto& t : running) t.join();
  ranks.synchronize();
  expect_outputs(ranks, all);
  for (const auto& values : host) EXPECT_EQ(values, std::vector<int>(9, kRanks));
}

// A scalar that an earlier call of the group brings is not read before.
TEST(CudaGroups, AScalarIsReadWhenItIsThere) {
  MUSTER_NEEDS_GPUS(2);
  const Variable channels("MUSTER_CHANNELS", "3");
  GroupRanks ranks(2);
  const Reduction scalars{ncclFloat, 30'000, kGuard}, weighted{ncclFloat, 300, kGuard + 130'000};
  write_inputs(ranks, {scalars, weighted});
  std::vector<ncclRedOp_t> ops(kRanks);
  for (int r = 0; r < kRanks; ++r)
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&ops[static_cast<size_t>(r)], ranks.out(r, kGuard + 4 * 29'999), ncclFloat, ncclScalarDevice, ranks.comm(r)),
              ncclSuccess);
  const std::vector<float> zeros(30'000);
  for (int r = 0; r < kRanks; ++r) ASSERT_EQ(cudaMemcpy(ranks.out(r, kGuard), zeros.data(), 120'000, cudaMemcpyDefault), cudaSuccess);
  ranks.group([&](int r) {
    if (const auto e = scalars.start(ranks, r); e != ncclSuccess) return e;
    return ncclAllReduce(ranks.in(r, weighted.at), ranks.out(r, weighted.at), weighted.count, ncclFloat, ops[static_cast<size_t>(r)], ranks.comm(r),
                         ranks.stream(r));
  });
  float scalar = 0;
  for (int from = 0; from < kRanks; ++from) scalar += static_cast<float>(small_value(from, 29'999, scalars.at));
  for (int r = 0; r < kRanks; ++r) {
    const auto got = ranks.output(r);
    for (size_t i = 0; i < weighted.count; ++i) {
      float want = 0, have = 0;
      for (int from = 0; from < kRanks; ++from) want += scalar * static_cast<float>(small_value(from, i, weighted.at));
      std::memcpy(&have, &got[weighted.at + 4 * i], 4);
      ASSERT_EQ(have, want) << "rank " << r << " element " << i;
    }
  }
}

TEST(CudaGroups, ACapturedGroupIsOneNode) {
  MUSTER_NEEDS_GPUS(2);
  GroupRanks ranks(2);
  constexpr size_t kCount = 100;
  std::vector<cudaGraphExec_t> runs(kRanks);
  for (int r = 0; r < kRanks; ++r) ASSERT_EQ(cudaStreamBeginCapture(ranks.stream(r), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r) ASSERT_EQ(chain(ranks, r, kCount, ranks.stream(r)), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  for (int r = 0; r < kRanks; ++r) {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(ranks.stream(r), &graph), cudaSuccess);
    size_t nodes = 0;
    ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
    EXPECT_EQ(nodes, 1u);
    ASSERT_EQ(cudaGraphInstantiate(&runs[static_cast<size_t>(r)], graph, 0), cudaSuccess);
    cudaGraphDestroy(graph);
  }
  for (const int32_t sign : {1, -1}) {
    ranks.fill();
    for (int r = 0; r < kRanks; ++r) {
      std::vector<int32_t> values(kCount);
      for (size_t i = 0; i < kCount; ++i) values[i] = sign * small_value(r, i, kGuard);
      ranks.write_input(r, kGuard, values.data(), 4 * kCount);
    }
    for (int r = 0; r < kRanks; ++r) ASSERT_EQ(cudaGraphLaunch(runs[static_cast<size_t>(r)], ranks.stream(r)), cudaSuccess);
    ranks.synchronize();
    expect_chained(ranks, kCount, sign);
  }
  for (const cudaGraphExec_t run : runs) cudaGraphExecDestroy(run);
}

TEST(CudaGroups, AbortEndsALaunchOfSeveral) {
  MUSTER_NEEDS_GPUS(2);
  GroupRanks ranks(2);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (const Reduction& k : twenty(9000)) ASSERT_EQ(k.start(ranks, 0), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(cudaStreamQuery(ranks.stream(0)), cudaErrorNotReady);
  ranks.abort();
}

}  // namespace
}  // namespace muster
