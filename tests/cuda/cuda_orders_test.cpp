// What the memory checker and the race checker look at: each kind of step, access and wait of the kernels
// once.
#include <gtest/gtest.h>

#include "cuda/gpu_cases.h"
#include "cuda/gpus.h"
#include "exec/cuda/fusion.h"

namespace muster {
namespace {

using test::GpuCase;

GpuCase one_of(Coll coll, const char* algorithm, DataType type, size_t offset) {
  GpuCase k{.algorithm = find_algorithm(coll, algorithm),
            .nranks = 4,
            .count = 1531,
            .channels = 2,
            .type = type,
            .offset = offset};
  k.mailbox.slots = 2;
  return k;
}

TEST(CudaOrders, SlotsAreFilledAndFreedInOrder) {
  MUSTER_NEEDS_GPUS(2);
  for (const size_t offset : {0, 4})
    for (const char* algorithm : {"ring", "one_shot", "direct", "tree"}) {
      run_gpu_case(one_of(Coll::all_reduce, algorithm, DataType::int32, offset));
      if (HasFatalFailure()) return;
    }
  for (const size_t offset : {0, 1})
    run_gpu_case(one_of(Coll::all_to_all, "pairwise", DataType::uint8, offset));
  for (const bool in_place : {false, true}) {
    GpuCase k = one_of(Coll::all_gather, "bruck", DataType::uint8, 0);  // messages of several pieces
    k.channels = 1;
    k.count = 500;
    k.in_place = in_place;
    run_gpu_case(k);
  }
}

TEST(CudaOrders, NarrowElementsAreReadAndWrittenWhole) {
  MUSTER_NEEDS_GPUS(2);
  for (const size_t offset : {0, 2})
    run_gpu_case(one_of(Coll::reduce_scatter, "ring", DataType::bfloat16, offset));
}

// Lines are whole in halves of 8 bytes only, and nothing but their flags orders them.
TEST(CudaOrders, LinesSayThemselvesThatTheyAreThere) {
  MUSTER_NEEDS_GPUS(2);
  for (const size_t offset : {0, 4})
    for (const char* algorithm : {"ring", "tree"}) {
      GpuCase k = one_of(Coll::all_reduce, algorithm, DataType::int32, offset);
      k.protocol = Protocol::ll;
      run_gpu_case(k);
      if (HasFatalFailure()) return;
    }
  GpuCase k = one_of(Coll::all_gather, "bruck", DataType::uint8, 1);
  k.channels = 1;
  k.count = 500;
  k.protocol = Protocol::ll;
  run_gpu_case(k);
  k = one_of(Coll::reduce_scatter, "ring", DataType::bfloat16, 2);
  k.protocol = Protocol::ll;
  run_gpu_case(k);
}

TEST(CudaOrders, PeersBuffersAreReadBeforeTheyAreLeft) {
  MUSTER_NEEDS_GPUS(2);
  run_gpu_case(one_of(Coll::all_reduce, "window", DataType::int32, 0));
  run_gpu_case(one_of(Coll::broadcast, "window", DataType::uint8, 0));
}

// --- calls of one launch ---

// Ranks with plans of all-reduces of int32, and memory for what comes of them one after the other.
struct LaunchRanks {
  using Call = cuda::KernelExecutor::BoundCall;
  static constexpr int kRanks = 4;
  static constexpr size_t kCount = 700, kPart = 4096;  // bytes of a part, which has a guard behind its elements

  explicit LaunchRanks(int most_channels) {
    GpuCase k = one_of(Coll::all_reduce, "ring", DataType::int32, 0);
    k.channels = most_channels;
    mailbox = test::mailbox_of(k);
    gpus.emplace(kRanks, mailbox);
    for (int r = 0; r < kRanks; ++r) {
      gpus->executor(r).most_threads = k.threads;
      memory.emplace_back(gpus->stream(r).device(), 4 * kPart);
      std::vector<int32_t> values(4 * kPart / 4, -5);
      for (size_t i = 0; i < kCount; ++i) values[i] = test::value(r, i);
      memory.back().write(0, values.data(), 4 * kPart);
    }
  }
  cuda::LoadedPlan& plan(int r, int channels, Protocol protocol, RedOp op = RedOp::sum, DataType type = DataType::int32) {
    GpuCase k = one_of(Coll::all_reduce, "ring", type, 0);
    k.channels = channels;
    return *plans.emplace_back(std::make_unique<cuda::LoadedPlan>(
        gpus->stream(r).device(), cuda::compile_for_kernels(test::program_of(k, r), {Coll::all_reduce, type, op, 0, kCount}, k.tile, mailbox,
                                                            nullptr, protocol)));
  }
  // From one part of the rank's memory to another.
  Call call(int r, const cuda::LoadedPlan& p, size_t from, size_t to, uint64_t fingerprint = 1) {
    std::byte* const base = memory[static_cast<size_t>(r)].data();
    return {&p, {base + from * kPart, base + to * kPart}, fingerprint, {}};
  }
  void expect(int r, size_t part, int32_t factor) {
    std::vector<int32_t> got(kPart / 4);
    memory[static_cast<size_t>(r)].read(part * kPart, got.data(), kPart);
    for (size_t i = 0; i < got.size(); ++i) {
      int32_t want = i < kCount ? 0 : -5;
      for (int from = 0; i < kCount && from < kRanks; ++from) want += factor * test::value(from, i);
      ASSERT_EQ(got[i], want) << "rank " << r << " part " << part << " element " << i;
    }
  }
  cuda::MailboxShape mailbox;
  std::optional<test::GpuRanks> gpus;
  std::vector<cuda::DeviceMemory> memory;
  std::vector<std::unique_ptr<cuda::LoadedPlan>> plans;
};

TEST(CudaOrders, ABlocksCallsFollowEachOther) {
  MUSTER_NEEDS_GPUS(2);
  LaunchRanks all(1);
  for (int r = 0; r < LaunchRanks::kRanks; ++r) {
    const auto& simple = all.plan(r, 1, Protocol::simple);
    const auto& lines = all.plan(r, 1, Protocol::ll);
    const std::vector calls = {all.call(r, lines, 0, 1, 1), all.call(r, simple, 1, 2, 2), all.call(r, lines, 2, 3, 3)};
    EXPECT_TRUE(fits({calls.data(), 1}, calls[1]) && fits({calls.data(), 2}, calls[2]));
    all.gpus->executor(r).run(calls, all.gpus->stream(r).handle());
  }
  for (int r = 0; r < LaunchRanks::kRanks; ++r) {
    all.gpus->stream(r).synchronize();
    for (size_t part = 1, factor = 1; part < 4; ++part, factor *= 4) all.expect(r, part, static_cast<int32_t>(factor));
  }
}

TEST(CudaOrders, BlocksOfCallsWithMemoryOfTheirOwnRunApart) {
  MUSTER_NEEDS_GPUS(2);
  LaunchRanks all(2);
  for (int r = 0; r < LaunchRanks::kRanks; ++r) {
    const auto& two = all.plan(r, 2, Protocol::simple);
    const auto& one = all.plan(r, 1, Protocol::ll);
    const std::vector calls = {all.call(r, two, 0, 1, 1), all.call(r, one, 0, 2, 2), all.call(r, two, 0, 3, 3)};
    EXPECT_TRUE(fits({calls.data(), 1}, calls[1]) && fits({calls.data(), 2}, calls[2]));
    all.gpus->executor(r).run(calls, all.gpus->stream(r).handle());
  }
  for (int r = 0; r < LaunchRanks::kRanks; ++r) {
    all.gpus->stream(r).synchronize();
    for (size_t part = 1; part < 4; ++part) all.expect(r, part, 1);
  }
}

TEST(CudaOrders, CallsThatBlocksMustNotMixStayApart) {
  MUSTER_NEEDS_GPUS(2);
  LaunchRanks all(2);
  const auto& two = all.plan(0, 2, Protocol::simple);
  const auto& one = all.plan(0, 1, Protocol::simple);
  const auto apart = [](const LaunchRanks::Call& a, const LaunchRanks::Call& b) { return !fits({&a, 1}, b); };
  const auto call = [&](const cuda::LoadedPlan& p, size_t from, size_t to) { return all.call(0, p, from, to); };
  EXPECT_TRUE(apart(call(two, 0, 1), call(two, 1, 2))) << "reads what was written";
  EXPECT_TRUE(apart(call(two, 0, 1), call(two, 2, 0))) << "overwrites what is read";
  EXPECT_TRUE(apart(call(two, 0, 1), call(two, 2, 1))) << "writes what was written";
  EXPECT_TRUE(apart(call(one, 0, 1), call(two, 1, 2))) << "one block, then two";
  EXPECT_FALSE(apart(call(two, 0, 1), call(two, 0, 2)));
  EXPECT_FALSE(apart(call(one, 0, 1), call(one, 1, 0)));
  LaunchRanks::Call weighed = call(two, 2, 3);
  weighed.weight.at = all.memory[0].data() + LaunchRanks::kPart + 4 * (LaunchRanks::kCount - 1);
  EXPECT_TRUE(apart(call(two, 0, 1), weighed)) << "reads a scalar that was written";
  EXPECT_TRUE(apart(call(one, 0, 1), call(all.plan(0, 1, Protocol::simple, RedOp::bit_or), 2, 3))) << "another kernel";
  EXPECT_FALSE(apart(call(one, 0, 1), call(all.plan(0, 1, Protocol::simple, RedOp::max), 2, 3)));
  // A program of one channel with connections of two lanes meets a block of the other one's second channel.
  GpuCase k = one_of(Coll::all_reduce, "ring", DataType::int32, 0);
  Program wide = k.algorithm->make({k.nranks, 0, 0});
  for (Channel& c : wide.channels)
    for (Loop& l : c.loops)
      for (Step& s : l.steps) {
        for (Ref& r : s.sources) r.lane = r.kind == Ref::Kind::slot;
        for (Ref& r : s.destinations) r.lane = r.kind == Ref::Kind::slot;
      }
  const cuda::LoadedPlan other(all.gpus->stream(0).device(),
                               cuda::compile_for_kernels(wide, {Coll::all_reduce, DataType::int32, RedOp::sum, 0, LaunchRanks::kCount}, k.tile, all.mailbox));
  EXPECT_TRUE(apart(call(two, 0, 1), call(other, 2, 3))) << "other lanes";
  EXPECT_FALSE(apart(call(one, 0, 1), call(other, 2, 3)));
  const std::vector full(cuda::kMostCallsOfLaunch, call(one, 0, 1));
  EXPECT_FALSE(fits(full, full[0])) << "no room";
  EXPECT_TRUE(fits(std::span(full).subspan(1), full[0]));
}

}  // namespace
}  // namespace muster
