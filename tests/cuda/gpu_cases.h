// Runs an algorithm on GPUs and on host memory, on equal inputs, so that every byte of all buffers can be
// compared.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "algorithms/algorithms.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "exec/cuda/executor.h"
#include "support/program_cases.h"
#include "transports/shm/segment.h"

namespace muster::test {

struct GpuCase {
  const Algorithm* algorithm = nullptr;
  int nranks = 2;
  size_t count = 1000;
  int root = 0;
  bool in_place = false;
  int channels = 1;
  size_t tile = 1024;
  DataType type = DataType::int32;
  RedOp op = RedOp::sum;
  size_t offset = 0;  // bytes of the buffers' starts from a multiple of 256
  uint64_t weight_bits = 0;
  uint32_t threads = 64;
  cuda::MailboxShape mailbox = {};
  Protocol protocol = Protocol::simple;
};

inline std::string to_string(const GpuCase& k) {
  return fmt::format(
      "{} {}, {} ranks, {} x {}, {}, root {}{}, {} channels, tiles of {} bytes, {} bytes off, {}",
      name_of(k.algorithm->coll), k.algorithm->name, k.nranks, k.count, name_of(k.type), name_of(k.op),
      k.root, k.in_place ? ", in place" : "", k.channels, k.tile, k.offset, name_of(k.protocol));
}

inline Program program_of(const GpuCase& k, int rank) {
  Program p = k.algorithm->make({k.nranks, rank, k.root});
  return k.channels > 1 ? replicate(std::move(p), k.channels) : p;
}

// A rank's input and output in one piece of memory, with bytes around them that nobody may write.
struct RankMemory {
  size_t input = 0, output = 0;  // offsets
  std::vector<std::byte> bytes;
};
inline constexpr size_t kGuardBytes = 256;

// The ranks' memory before the call: int32 sums get numbers that are known, everything else arbitrary bits.
inline std::vector<RankMemory> memory_before(const GpuCase& k) {
  const Blocks b = blocks(k.algorithm->coll, k.nranks);
  const size_t block = k.count * size_of(k.type), in = b.in * block, out = b.out * block;
  std::vector<RankMemory> ranks(static_cast<size_t>(k.nranks));
  std::mt19937_64 random(k.count * 31 + static_cast<uint64_t>(k.type));
  for (size_t r = 0; r < ranks.size(); ++r) {
    RankMemory& m = ranks[r];
    const size_t first = kGuardBytes + k.offset,
                 second = align_up(first + std::max(in, out) + kGuardBytes, 256) + k.offset;
    m.input = first;
    m.output = second;
    if (k.in_place) {
      m.output = first;
      if (b.in > b.out)
        m.output = first + r * block;
      else if (b.out > b.in)
        m.input = first + r * block;
    }
    m.bytes.assign(second + out + kGuardBytes, std::byte{0xee});
    for (size_t i = 0; i < in; i += 8) {
      const uint64_t word = random();
      std::memcpy(&m.bytes[m.input + i], &word, std::min<size_t>(8, in - i));
    }
    if (k.type == DataType::int32 && k.op == RedOp::sum)
      for (size_t i = 0; i < in / 4; ++i) {
        const int32_t v = value(static_cast<int>(r), i);
        std::memcpy(&m.bytes[m.input + 4 * i], &v, 4);
      }
  }
  return ranks;
}

inline constexpr uint64_t kFingerprint = 42;

// What the host's executor leaves.
inline void run_on_host(const GpuCase& k, std::vector<RankMemory>& ranks) {
  Fd descriptor;
  const auto segment = Segment::create({k.nranks, std::max(1, k.channels), 1 << 16, 1 << 16}, 1, &descriptor);
  Choice choice;
  choice.algorithm = k.algorithm;
  choice.tile_bytes = k.tile;
  choice.channels = k.channels;
  std::vector<std::byte*> inputs, outputs;
  for (RankMemory& m : ranks) {
    inputs.push_back(&m.bytes[m.input]);
    outputs.push_back(&m.bytes[m.output]);
  }
  // One thread drives all ranks.
  struct Rank {
    std::unique_ptr<ShmTransport> transport;
    CompiledPlan plan;
    std::vector<std::byte> scratch;
    std::byte* buffers[3];
    std::unique_ptr<Run> run;
  };
  std::vector<Rank> all(ranks.size());
  for (size_t r = 0; r < all.size(); ++r) {
    Rank& rank = all[r];
    rank.transport = std::make_unique<ShmTransport>(segment, static_cast<int>(r));
    rank.plan = compile(program_of(k, static_cast<int>(r)),
                        {k.algorithm->coll, k.type, k.op, k.root, k.count}, choice, rank.transport.get());
    rank.scratch.resize(rank.plan.scratch_bytes);
    rank.buffers[kInput] = inputs[r];
    rank.buffers[kOutput] = outputs[r];
    rank.buffers[kScratch] = rank.scratch.data();
    rank.run = std::make_unique<Run>(rank.plan, rank.buffers, &kFingerprint, k.weight_bits,
                                     WindowTable{inputs.data(), outputs.data()});
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (Rank& rank : all) moved |= !rank.run->done() && rank.run->advance();
  }
  for (size_t r = 0; r < all.size(); ++r)
    ASSERT_TRUE(all[r].run->done()) << "rank " << r << " on the host waits for ever";
}

// Executors of all ranks, connected; rank r is on GPU r modulo their number.
class GpuRanks {
 public:
  // `first`: number of each connection's first message.
  GpuRanks(int nranks, const cuda::MailboxShape& shape, uint64_t first = 0) {
    const int gpus = cuda::devices().count;
    for (int r = 0; r < nranks; ++r) {
      const int gpu = r % gpus;
      for (int other = 0; other < std::min(nranks, gpus); ++other)
        EXPECT_TRUE(cuda::enable_peer_access(gpu, other));
      executors_.push_back(std::make_unique<cuda::KernelExecutor>(gpu, r, shape));
      streams_.push_back(std::make_unique<cuda::Stream>(gpu));
      const auto mailbox = std::make_shared<const cuda::DeviceMemory>(gpu, shape.bytes());
      mailboxes_.emplace_back(mailbox, mailbox->data());
      for (int peer = 0; first && peer < nranks; ++peer)
        for (int lane = 0; lane < shape.lanes; ++lane)
          EXPECT_EQ(
              cudaMemcpy(shape.taken(mailbox->data(), peer, lane), &first, sizeof first, cudaMemcpyDefault),
              cudaSuccess);
    }
    for (int r = 0; r < nranks; ++r) {
      std::vector<cuda::KernelExecutor::Connection> connections;
      for (const auto& there : mailboxes_) connections.push_back({mailboxes_[static_cast<size_t>(r)], there});
      executor(r).connect(connections, first);
    }
  }
  cuda::KernelExecutor& executor(int r) { return *executors_[static_cast<size_t>(r)]; }
  cuda::Stream& stream(int r) { return *streams_[static_cast<size_t>(r)]; }
  std::byte* mailbox(int r) { return mailboxes_[static_cast<size_t>(r)].get(); }
  size_t size() const { return executors_.size(); }

 private:
  std::vector<std::shared_ptr<std::byte>> mailboxes_;
  std::vector<std::unique_ptr<cuda::KernelExecutor>> executors_;
  std::vector<std::unique_ptr<cuda::Stream>> streams_;
};

inline cuda::MailboxShape mailbox_of(const GpuCase& k) {
  cuda::MailboxShape shape = k.mailbox;
  shape.ranks = k.nranks;
  shape.lanes = k.channels;
  return shape;
}

// What GPUs leave, with connections that may have been used before.
inline void run_on_gpus(const GpuCase& k, GpuRanks& gpus, std::vector<RankMemory>& ranks) {
  const cuda::MailboxShape shape = mailbox_of(k);
  std::vector<cuda::DeviceMemory> memory, tables;
  std::vector<std::unique_ptr<cuda::LoadedPlan>> plans;
  std::vector<std::byte*> addresses;
  for (const bool output : {false, true})
    for (int r = 0; r < k.nranks; ++r) {
      RankMemory& m = ranks[static_cast<size_t>(r)];
      const int gpu = gpus.stream(r).device();
      if (!output) {
        memory.emplace_back(gpu, m.bytes.size());
        memory.back().write(0, m.bytes.data(), m.bytes.size());
      }
      addresses.push_back(memory[static_cast<size_t>(r)].data() + (output ? m.output : m.input));
    }
  for (int r = 0; r < k.nranks; ++r) {
    const int gpu = gpus.stream(r).device();
    const cuda::KernelImage image =
        compile_for_kernels(program_of(k, r), {k.algorithm->coll, k.type, k.op, k.root, k.count}, k.tile,
                            shape, nullptr, k.protocol);
    plans.push_back(std::make_unique<cuda::LoadedPlan>(gpu, image));
    tables.emplace_back(gpu, addresses.size() * sizeof addresses[0]);
    tables.back().write(0, addresses.data(), tables.back().size());
  }
  for (int r = 0; r < k.nranks; ++r) {
    const auto i = static_cast<size_t>(r);
    gpus.executor(r).most_threads = k.threads;
    auto* const table = reinterpret_cast<std::byte**>(tables[i].data());
    gpus.executor(r).run(
        *plans[i], {addresses[i], addresses[static_cast<size_t>(k.nranks) + i], table, table + k.nranks},
        kFingerprint, {k.weight_bits}, gpus.stream(r).handle());
  }
  for (int r = 0; r < k.nranks; ++r) {
    gpus.stream(r).synchronize();
    const auto mismatch = gpus.executor(r).mismatch();
    ASSERT_FALSE(mismatch.has_value()) << "rank " << r << " met a message of rank " << mismatch->peer;
    RankMemory& m = ranks[static_cast<size_t>(r)];
    memory[static_cast<size_t>(r)].read(0, m.bytes.data(), m.bytes.size());
  }
}

inline void expect_equal(const std::vector<RankMemory>& gpu, const std::vector<RankMemory>& host) {
  for (size_t r = 0; r < gpu.size(); ++r) {
    const auto& a = gpu[r].bytes;
    const auto& b = host[r].bytes;
    const auto differs = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    ASSERT_TRUE(differs.first == a.end())
        << "rank " << r << ": byte " << differs.first - a.begin() << " of " << a.size() << " (input from "
        << gpu[r].input << ", output from " << gpu[r].output << ") is " << static_cast<int>(*differs.first)
        << " on the GPU and " << static_cast<int>(*differs.second) << " on the host";
  }
}

// The case on GPUs gives the host's bits; sums of int32 what addition gives.
inline void run_gpu_case(const GpuCase& k, GpuRanks& gpus) {
  SCOPED_TRACE(to_string(k));
  std::vector<RankMemory> gpu = memory_before(k), host = gpu;
  run_on_host(k, host);
  run_on_gpus(k, gpus, gpu);
  if (testing::Test::HasFatalFailure()) return;
  expect_equal(gpu, host);
  if (testing::Test::HasFatalFailure() || k.type != DataType::int32 || k.op != RedOp::sum) return;
  for (int r = 0; r < k.nranks; ++r) {
    const RankMemory& m = gpu[static_cast<size_t>(r)];
    const auto want = expected({k.algorithm, k.nranks, k.count, k.root, k.in_place, k.channels, k.tile}, r);
    for (size_t i = 0; i < want.size(); ++i) {
      int32_t got;
      std::memcpy(&got, &m.bytes[m.output + 4 * i], 4);
      ASSERT_EQ(got, want[i]) << "rank " << r << " element " << i;
    }
  }
}
inline void run_gpu_case(const GpuCase& k) {
  GpuRanks gpus(k.nranks, mailbox_of(k));
  run_gpu_case(k, gpus);
}

}  // namespace muster::test
