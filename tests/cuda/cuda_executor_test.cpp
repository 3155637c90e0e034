// Programs on GPUs: every algorithm, type and operation gives the same bits as on host memory.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <thread>

#include "cuda/gpu_cases.h"
#include "cuda/gpus.h"

namespace muster {
namespace {

using test::GpuCase;
using test::GpuRanks;

class CudaExecutor : public testing::TestWithParam<int> {};

void expect_exact(const Algorithm& a, Protocol protocol) {
  for (const int n : {1, 2, 3, 8})
    for (const int channels : {1, 2}) {
      if (a.whole && channels > 1) continue;
      if (n == 8 && channels == 2) continue;
      if (protocol == Protocol::ll && (n == 1 || (channels == 2) != (n == 3 && !a.whole))) continue;
      GpuCase k{.algorithm = &a,
                .nranks = n,
                .channels = channels,
                .tile = a.whole ? size_t{4096} : size_t{1024},
                .protocol = protocol};
      k.mailbox.slots = 2;  // the fewest that programs need
      k.mailbox.slot_bytes = 1 << 15;
      GpuRanks gpus(n, test::mailbox_of(k));  // one after the other, so counters go on
      for (const size_t count : {size_t{0}, size_t{1}, size_t{67}, size_t{2011}})
        for (const bool in_place : {false, true}) {
          if (a.whole && count > 100) continue;
          if (in_place && !a.in_place) continue;
          for (const int root : {0, n - 1}) {
            if (root != 0 && (!rooted(a.coll) || n == 1)) continue;
            if (in_place && rooted(a.coll) && a.coll != Coll::broadcast && a.coll != Coll::reduce &&
                root != n - 1)
              continue;
            k.count = count;
            k.in_place = in_place;
            k.root = root;
            k.offset = count == 67 ? 4 : 0;
            run_gpu_case(k, gpus);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
    }
}
TEST_P(CudaExecutor, EveryAlgorithmIsExact) {
  MUSTER_NEEDS_GPUS(1);
  expect_exact(algorithms()[static_cast<size_t>(GetParam())], Protocol::simple);
}
TEST_P(CudaExecutor, EveryAlgorithmIsExactByLines) {
  MUSTER_NEEDS_GPUS(1);
  const Algorithm& a = algorithms()[static_cast<size_t>(GetParam())];
  if (!a.windows) return expect_exact(a, Protocol::ll);
  const auto compile = [&](int rank) {
    cuda::compile_for_kernels(a.make({2, rank, 0}), {a.coll, DataType::uint8, RedOp::sum, 0, 100}, 1024, {2},
                              nullptr, Protocol::ll);
  };
  EXPECT_THROW((compile(0), compile(1)), Error);
}

INSTANTIATE_TEST_SUITE_P(All, CudaExecutor, testing::Range(0, static_cast<int>(algorithms().size())),
                         [](const auto& param) {
                           const Algorithm& a = algorithms()[static_cast<size_t>(param.param)];
                           return std::string(name_of(a.coll)) + "_" + a.name;
                         });

class CudaTypes : public testing::TestWithParam<int> {};

// Arbitrary bits: NaNs, infinities, subnormals, both zeros.
TEST_P(CudaTypes, EveryOperationGivesTheHostsBits) {
  MUSTER_NEEDS_GPUS(1);
  const auto type = static_cast<DataType>(GetParam());
  const GpuCase shape{.algorithm = find_algorithm(Coll::all_reduce, "ring"), .nranks = 3, .tile = 2048};
  GpuRanks gpus(3, test::mailbox_of(shape));
  for (int op = 0; op < kRedOps; ++op) {
    if (!is_defined(static_cast<RedOp>(op), type)) continue;
    for (const char* algorithm : {"ring", "one_shot"})
      for (const Protocol protocol : {Protocol::simple, Protocol::ll})
        for (const size_t offset : {size_t{0}, size_of(type)}) {
          GpuCase k = shape;
          k.protocol = protocol;
          k.algorithm = find_algorithm(Coll::all_reduce, algorithm);
          k.type = type;
          k.op = static_cast<RedOp>(op);
          k.count = 1531;
          k.offset = offset;
          k.weight_bits = 0x3fc0'0000'3e00'3c3b;  // some number of each type
          run_gpu_case(k, gpus);
          if (HasFatalFailure()) return;
        }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaTypes, testing::Range(0, kDataTypes), [](const auto& param) {
  return std::string(name_of(static_cast<DataType>(param.param)));
});

// --- what ends a kernel, and what it tells ---

struct TwoRanks {
  explicit TwoRanks(size_t count = 100, Protocol first = Protocol::simple, Protocol second = Protocol::simple)
      : k{.algorithm = find_algorithm(Coll::all_reduce, "ring"), .nranks = 2, .count = count},
        gpus(2, test::mailbox_of(k)) {
    for (int r = 0; r < 2; ++r) {
      plans.push_back(plan(r, k, r == 0 ? first : second));
      buffers.emplace_back(gpus.stream(r).device(), count * 4);
      gpus.executor(r).most_threads = k.threads;
    }
  }
  std::unique_ptr<cuda::LoadedPlan> plan(int r, const GpuCase& call, Protocol protocol) {
    return std::make_unique<cuda::LoadedPlan>(
        gpus.stream(r).device(),
        cuda::compile_for_kernels(test::program_of(call, r),
                                  {call.algorithm->coll, call.type, call.op, call.root, call.count},
                                  call.tile, test::mailbox_of(call), nullptr, protocol));
  }
  void run(int r, uint64_t fingerprint = test::kFingerprint) {
    const auto i = static_cast<size_t>(r);
    gpus.executor(r).run(*plans[i], {buffers[i].data(), buffers[i].data()}, fingerprint, {},
                         gpus.stream(r).handle());
  }
  void write(int r, int32_t v) {
    const std::vector<int32_t> values(k.count, v);
    buffers[static_cast<size_t>(r)].write(0, values.data(), 4 * k.count);
  }
  int32_t last(int r) const {
    int32_t v;
    buffers[static_cast<size_t>(r)].read(4 * (k.count - 1), &v, 4);
    return v;
  }
  GpuCase k;
  GpuRanks gpus;
  std::vector<std::unique_ptr<cuda::LoadedPlan>> plans;
  std::vector<cuda::DeviceMemory> buffers;
};

class CudaExecutorEnds : public testing::TestWithParam<Protocol> {};
INSTANTIATE_TEST_SUITE_P(By, CudaExecutorEnds, testing::Values(Protocol::simple, Protocol::ll),
                         [](const auto& param) { return std::string(name_of(param.param)); });

TEST_P(CudaExecutorEnds, AbortEndsAKernelThatWaits) {
  MUSTER_NEEDS_GPUS(1);
  TwoRanks two(100, GetParam(), GetParam());
  two.run(0);  // rank 1 never comes
  while (two.gpus.executor(0).waiting_for() < 0) std::this_thread::yield();
  EXPECT_EQ(two.gpus.executor(0).waiting_for(), 1);
  EXPECT_FALSE(two.gpus.stream(0).idle());
  two.gpus.executor(0).abort();
  two.gpus.stream(0).synchronize();
  two.run(0);  // ends, too
  two.gpus.stream(0).synchronize();
}

void expect_mismatch(TwoRanks& two) {
  two.run(0, 7);
  two.run(1, 8);
  while (!two.gpus.executor(0).mismatch() && !two.gpus.executor(1).mismatch()) std::this_thread::yield();
  for (int r = 0; r < 2; ++r) two.gpus.executor(r).abort();
  for (int r = 0; r < 2; ++r) two.gpus.stream(r).synchronize();
  const int noticed = two.gpus.executor(0).mismatch() ? 0 : 1;
  const FingerprintMismatch m = *two.gpus.executor(noticed).mismatch();
  EXPECT_EQ(m.peer, 1 - noticed);
  EXPECT_EQ(m.expected, noticed == 0 ? 7u : 8u);
  EXPECT_EQ(m.found, noticed == 0 ? 8u : 7u);
}
TEST_P(CudaExecutorEnds, AMessageOfAnotherCallIsNoticed) {
  MUSTER_NEEDS_GPUS(1);
  TwoRanks two(100, GetParam(), GetParam());
  expect_mismatch(two);
}
TEST_P(CudaExecutorEnds, AMessageOfAnotherProtocolIsNoticed) {
  MUSTER_NEEDS_GPUS(1);
  TwoRanks two(100, GetParam(), GetParam() == Protocol::ll ? Protocol::simple : Protocol::ll);
  expect_mismatch(two);
}
// Rank 0 waits for lines that rank 1, whose call is shorter, doesn't send.
TEST_P(CudaExecutorEnds, AShorterMessageOfAnotherCallIsNoticed) {
  MUSTER_NEEDS_GPUS(1);
  TwoRanks two(200, GetParam(), GetParam());
  GpuCase shorter = two.k;
  shorter.count = 20;
  two.plans[1] = two.plan(1, shorter, GetParam());
  expect_mismatch(two);
}

TEST_P(CudaExecutorEnds, ALateRankIsWaitedFor) {
  MUSTER_NEEDS_GPUS(1);
  TwoRanks two(5000, GetParam(), GetParam());
  two.write(0, 3);
  two.write(1, 4);
  two.run(0);
  while (two.gpus.executor(0).waiting_for() < 0) std::this_thread::yield();
  two.run(1);
  for (int r = 0; r < 2; ++r) two.gpus.stream(r).synchronize();
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(two.last(r), 7);
    EXPECT_EQ(two.gpus.executor(r).waiting_for(), -1);
  }
}

// --- lines and counters over a long time ---

// Messages of lines and others follow each other on a connection.
TEST(CudaLines, ProtocolsTakeTurns) {
  MUSTER_NEEDS_GPUS(1);
  GpuCase k{.algorithm = find_algorithm(Coll::all_reduce, "ring"), .nranks = 3};
  k.mailbox.slots = 2;
  GpuRanks gpus(3, test::mailbox_of(k));
  for (int turn = 0; turn < 12; ++turn) {
    k.protocol = turn % 3 == 0 ? Protocol::simple : Protocol::ll;
    k.count = static_cast<size_t>(1 + turn * 211 % 700);
    run_gpu_case(k, gpus);
    if (HasFatalFailure()) return;
  }
}

// Flags begin again after 2^32 - 1 messages.
TEST(CudaLines, FlagsBeginAgain) {
  MUSTER_NEEDS_GPUS(1);
  for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
    GpuCase k{.algorithm = find_algorithm(Coll::all_reduce, "ring"), .nranks = 2, .protocol = protocol};
    GpuRanks gpus(2, test::mailbox_of(k), (uint64_t{1} << 32) - 7);
    for (int turn = 0; turn < 5; ++turn) {
      k.count = static_cast<size_t>(400 - 90 * turn);
      run_gpu_case(k, gpus);
      if (HasFatalFailure()) return;
    }
  }
}

// What messages left in a slot long ago, with the flag that is next, isn't taken for the next one.
TEST(CudaLines, OldLinesAreWipedBeforeTheirFlagComesAgain) {
  MUSTER_NEEDS_GPUS(1);
  for (const Protocol wiping :
       {Protocol::ll, Protocol::simple}) {  // whatever the messages at that time are of
    GpuCase k{.algorithm = find_algorithm(Coll::all_reduce, "one_shot"),
              .nranks = 2,
              .count = 1,
              .protocol = wiping};
    k.mailbox.slots = 2;
    const cuda::MailboxShape shape = test::mailbox_of(k);
    constexpr uint64_t kPeriod = uint64_t{1} << 31;
    GpuRanks gpus(2, shape, kPeriod - 2);
    const uint64_t next = kPeriod + 2;  // sent after two that wipe and two that don't
    std::vector<uint64_t> old(shape.line_bytes / 8, (next + 1) << 32 | 0xbad);
    std::byte* const mailbox = gpus.mailbox(0);
    std::byte* const slot = shape.lines(mailbox, 1, 0) + next % shape.slots * shape.line_bytes;
    ASSERT_EQ(cudaMemcpy(slot, old.data(), shape.line_bytes, cudaMemcpyDefault), cudaSuccess);
    for (int turn = 0; turn < 4; ++turn) {
      run_gpu_case(k, gpus);
      if (HasFatalFailure()) return;
    }
    ASSERT_EQ(cudaMemcpy(old.data(), slot, shape.line_bytes, cudaMemcpyDefault), cudaSuccess);
    for (size_t i = 2; i < old.size(); ++i) ASSERT_NE(old[i] >> 32, next + 1) << "word " << i;
    k.count = 200;
    k.protocol = Protocol::ll;
    run_gpu_case(k, gpus);
    if (HasFatalFailure()) return;
  }
}

TEST(CudaExecutorGraphs, ACapturedCallIsReplayed) {
  MUSTER_NEEDS_GPUS(1);
  TwoRanks two(3000);
  cudaGraph_t graphs[2];
  cudaGraphExec_t runs[2];
  for (int r = 0; r < 2; ++r) {
    const cudaStream_t stream = two.gpus.stream(r).handle();
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    two.run(r);
    ASSERT_EQ(cudaStreamEndCapture(stream, &graphs[r]), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&runs[r], graphs[r], 0), cudaSuccess);
  }
  for (int turn = 1; turn <= 3; ++turn) {
    two.write(0, turn);
    two.write(1, 10 * turn);
    for (int r = 0; r < 2; ++r) ASSERT_EQ(cudaGraphLaunch(runs[r], two.gpus.stream(r).handle()), cudaSuccess);
    for (int r = 0; r < 2; ++r) two.gpus.stream(r).synchronize();
    for (int r = 0; r < 2; ++r) EXPECT_EQ(two.last(r), 11 * turn);
  }
  for (int r = 0; r < 2; ++r) {
    cudaGraphExecDestroy(runs[r]);
    cudaGraphDestroy(graphs[r]);
  }
}

}  // namespace
}  // namespace muster
