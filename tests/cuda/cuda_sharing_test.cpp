// Memory of cuMemCreate and of cudaMalloc: made, offered to other processes and mapped there.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>

#include "comm/cuda/memory_offer.h"
#include "cuda/gpu_memory.h"
#include "cuda/gpus.h"
#include "device/cuda/memory.h"
#include "device/cuda/virtual_memory.h"
#include "exec/cuda/peer_proof.h"
#include "muster/muster.h"
#include "nccl.h"
#include "support/outcome.h"
#include "support/processes.h"

namespace muster::cuda {
namespace {

using test::Bytes;
using test::difference;
using test::outcome_of;
using test::pattern;
using test::run_processes;
using test::Variable;
using testing::HasSubstr;
using Kind = SharedPiece::Kind;

constexpr size_t kPage = 2 << 20;  // of the driver

TEST(CudaVirtualMemory, IsZeroedAndReachedByAllDevices) {
  MUSTER_NEEDS_GPUS(2);
  ASSERT_EQ(why_no_virtual_memory(0), "");
  const size_t before = test::free_memory(1);
  {
    const auto memory = make_virtual_memory(1, kPage + 1);
    EXPECT_EQ(memory->size(), 2 * kPage);
    EXPECT_EQ(test::free_memory(1), before - 2 * kPage);
    EXPECT_EQ(inspect(memory->data() + kPage).kind, MemoryKind::device);
    EXPECT_EQ(inspect(memory->data() + kPage).device, 1);
    EXPECT_EQ(difference(test::get(memory->data(), memory->size()), Bytes(memory->size(), 0)), "");
    for (const int device : {0, 1}) {
      auto* const at = reinterpret_cast<uint64_t*>(memory->data() + kPage) + static_cast<size_t>(device) * kProofWords;
      write_proofs(device, {{at, 40u + static_cast<uint64_t>(device)}});
      uint64_t words[kProofWords];
      read_memory(1, reinterpret_cast<std::byte*>(at), words, sizeof words);
      EXPECT_EQ(compare_proof(words, 40u + static_cast<uint64_t>(device)), Arrived::all);
    }
  }
  EXPECT_EQ(test::free_memory(1), before);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  const auto huge = outcome_of([] { make_virtual_memory(0, size_t{1} << 45); });
  EXPECT_EQ(huge.code, Result::unhandled_device_error);
  EXPECT_THAT(huge.text, testing::AllOf(HasSubstr("allocating 35184372088832 bytes on GPU 0 ("), HasSubstr("out of memory"),
                                        HasSubstr("NCCL_BUFFSIZE")));
  EXPECT_EQ(test::free_memory(0), test::free_memory(1));
}

TEST(CudaVirtualMemory, MemAllocIsFreedAgain) {
  MUSTER_NEEDS_GPUS(2);
  for (const char* enable : {"-2", "0", "1"}) {
    const Variable option("NCCL_CUMEM_ENABLE", enable);
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    const size_t before = test::free_memory(1), open = test::descriptors_of_gpu_memory();
    void* p = nullptr;
    ASSERT_EQ(ncclMemAlloc(&p, 5000), ncclSuccess) << ncclGetLastError(nullptr);
    EXPECT_EQ(inspect(p).device, 1);
    EXPECT_EQ(PhysicalMemory::at(p).has_value(), enable[0] != '0');
    test::put(p, pattern(5000, 1));
    EXPECT_EQ(difference(test::get(p, 5000), pattern(5000, 1)), "");
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(ncclMemFree(p), ncclSuccess);
    EXPECT_EQ(current_device(), 0);
    EXPECT_EQ(inspect(p).kind, MemoryKind::host);
    EXPECT_EQ(test::free_memory(1), before);
    EXPECT_EQ(test::descriptors_of_gpu_memory(), open);
  }
}

TEST(CudaVirtualMemory, WhereTheDriverLacksItMemAllocIsCudaMalloc) {
  MUSTER_NEEDS_GPUS(1);
  const Variable without("CUDASIM_VMM", "0");
  EXPECT_THAT(why_no_virtual_memory(0), HasSubstr("has no virtual memory management"));
  void* p = nullptr;
  ASSERT_EQ(ncclMemAlloc(&p, 5000), ncclSuccess);
  EXPECT_FALSE(PhysicalMemory::at(p));
  EXPECT_EQ(inspect(p).kind, MemoryKind::device);
  EXPECT_EQ(ncclMemFree(p), ncclSuccess);
}

// --- between processes ---

// What a process tells the other of a range; enough pieces for these tests.
struct Told {
  uint64_t offset = 0, count = 0;
  SharedPiece pieces[3];
};

// Each of two processes maps the range that the other one made, reads all of it and writes its second half.
void share(Communicator& host, int device, std::byte* range, size_t bytes, Kind kind, size_t pieces) {
  const int me = host.rank(), other = 1 - me;
  test::put(range, pattern(bytes, me));
  std::optional<MemoryOffer> offer(std::in_place, range, bytes);
  ASSERT_EQ(offer->pieces().size(), pieces);
  Told mine{offer->offset(), pieces, {}}, all[2];
  std::ranges::copy(offer->pieces(), mine.pieces);
  host.all_gather(&mine, all, sizeof mine, DataType::uint8);
  const Told& theirs = all[other];
  EXPECT_EQ(theirs.pieces[0].kind, kind) << name_of(theirs.pieces[0].kind);
  Reached reached = reach_memory(device, {theirs.pieces, theirs.count}, theirs.offset, "the other");
  host.barrier();
  offer.reset();  // what is mapped stays so
  EXPECT_EQ(difference(test::get(reached.get(), bytes), pattern(bytes, other)), "");
  host.barrier();
  test::put(reached.get() + bytes / 2, pattern(bytes - bytes / 2, 10 + me));
  host.barrier();
  Bytes wanted = pattern(bytes, me);
  const Bytes written = pattern(bytes - bytes / 2, 10 + other);
  std::ranges::copy(written, wanted.begin() + static_cast<std::ptrdiff_t>(bytes / 2));
  EXPECT_EQ(difference(test::get(range, bytes), wanted), "");
  reached.reset();
  host.barrier();
}

TEST(CudaSharing, MemAllocsMemoryBetweenProcesses) {
  MUSTER_NEEDS_GPUS(2);
  for (const auto& [name, value, kind] : {std::tuple{"NCCL_CUMEM_ENABLE", "1", Kind::descriptor},
                                          {"NCCL_CUMEM_ENABLE", "0", Kind::ipc},
                                          {"CUDASIM_VMM", "0", Kind::ipc},
                                          {"CUDASIM_FABRIC", "1", Kind::descriptor},
                                          {"CUDASIM_FABRIC", "2", Kind::descriptor}}) {
    SCOPED_TRACE(testing::Message() << name << "=" << value);
    const Variable option(name, value);
    run_processes(2, [kind = kind](int rank) {
      Communicator host = Communicator::from_environment();
      ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
      constexpr size_t kBytes = 3 * kPage + 12345, kGuard = 4096;
      void* p = nullptr;
      ASSERT_EQ(ncclMemAlloc(&p, kBytes), ncclSuccess) << ncclGetLastError(nullptr);
      auto* const all = static_cast<std::byte*>(p);
      const size_t before = test::free_memory(rank);
      size_t open = 0;
      for (int i = 0; i < 3; ++i) {
        test::put(all, Bytes(kBytes, 0x77));
        share(host, rank, all + kGuard, kBytes - 2 * kGuard, kind, 1);
        EXPECT_EQ(difference(test::get(all, kGuard), Bytes(kGuard, 0x77)), "");
        EXPECT_EQ(difference(test::get(all + kBytes - kGuard, kGuard), Bytes(kGuard, 0x77)), "");
        if (i == 0) open = test::descriptors_of_gpu_memory();
      }
      EXPECT_EQ(test::descriptors_of_gpu_memory(), open);
      EXPECT_EQ(test::free_memory(rank), before);
      EXPECT_EQ(ncclMemFree(p), ncclSuccess);
    });
  }
}

// As allocators make it that grow their blocks: several allocations at one range of addresses.
TEST(CudaSharing, ARangeOfSeveralAllocations) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2, [](int rank) {
    Communicator host = Communicator::from_environment();
    ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
    std::vector<PhysicalMemory> made;
    for (const size_t pages : {1, 3, 2}) made.push_back(PhysicalMemory::create(rank, pages * kPage));
    const MappedMemory memory(std::move(made), std::span(&rank, 1));
    ASSERT_EQ(memory.size(), 6 * kPage);
    share(host, rank, memory.data() + 1000, memory.size() - 3000, Kind::descriptor, 3);
    share(host, rank, memory.data() + kPage, 3 * kPage, Kind::descriptor, 1);
    share(host, rank, memory.data() + 2 * kPage - 8, 2 * kPage + 9, Kind::descriptor, 2);
    const auto beyond = outcome_of([&] { const MemoryOffer offer(memory.data(), memory.size() + 1); });
    EXPECT_EQ(beyond.code, Result::unhandled_device_error);
    EXPECT_THAT(beyond.text, HasSubstr("only the first 12582912 are mapped memory"));
  });
}

// Memory that has no descriptor, since it came by a fabric handle, is passed on by one.
TEST(CudaSharing, ByFabricHandles) {
  MUSTER_NEEDS_GPUS(2);
  const Variable fabric("CUDASIM_FABRIC", "1");
  run_processes(2, [](int rank) {
    Communicator host = Communicator::from_environment();
    ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
    const PhysicalMemory made = PhysicalMemory::create(rank, 2 * kPage);
    const FabricHandle mine = made.fabric_handle();
    FabricHandle all[2];
    host.all_gather(&mine, all, sizeof mine, DataType::uint8);
    std::vector<PhysicalMemory> theirs;
    theirs.push_back(PhysicalMemory::import(all[1 - rank], 2 * kPage));
    const MappedMemory mapped(std::move(theirs), std::span(&rank, 1));
    EXPECT_EQ(inspect(mapped.data()).device, 1 - rank);
    share(host, rank, mapped.data() + 100, kPage, Kind::fabric, 1);
  });
}

TEST(CudaSharing, WhatCantBeSharedSaysWhy) {
  MUSTER_NEEDS_GPUS(1);
  const DeviceMemory memory(0, 1000);
  const auto over = outcome_of([&] { const MemoryOffer offer(memory.data() + 10, 991); });
  EXPECT_EQ(over.code, Result::unhandled_device_error);
  EXPECT_THAT(over.text, HasSubstr("reach over the end of their allocation, of 1000 bytes"));
  int plain = 0;
  EXPECT_THAT(outcome_of([&] { const MemoryOffer offer(&plain, sizeof plain); }).text, HasSubstr("the allocation that"));
  const SharedPiece none;
  EXPECT_THAT(outcome_of([&] { reach_memory(0, {&none, 1}, 0, "rank 3 (host a, pid 1)"); }).text,
              HasSubstr("rank 3 (host a, pid 1) shares no GPU memory"));
}

}  // namespace
}  // namespace muster::cuda
