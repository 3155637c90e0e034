// What the memory checker and the scheduler notice: each test does one thing that a GPU punishes or silently
// gets wrong.
#include <cstdlib>
#include <filesystem>

#include "child.h"

namespace {

using cuda_sim_test::Child;
using cuda_sim_test::in_child;

__global__ void poke(int* p, long i) { p[i] = 7; }
__global__ void mismatched() {
  if (threadIdx.x < 16)
    __shfl_sync(0xffffffffu, 1, 0);
  else
    __ballot_sync(0xffffffffu, 1);
}
__global__ void not_in_mask() { __shfl_sync(0x0000ffffu, 1, 0); }
__global__ void trap() { __trap(); }
__global__ void diverged(int* p) {
  if (threadIdx.x == 0)
    asm volatile("bar.sync 1, 64;" ::: "memory");
  else
    asm volatile("bar.sync 2, 64;" ::: "memory");
  *p = 1;
}
__global__ void wait_for(volatile int* flag) {
  while (*flag == 0) {
  }
}
__global__ void __launch_bounds__(256, 2) bounded(int* p) {
  __shared__ int s[500];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = s[255 - threadIdx.x];
}
__global__ void grid_barrier(int* arrived, int wanted) {
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1);
    while (*(volatile int*)arrived < wanted) {
    }
  }
  __syncthreads();
}

int* device_ints(int n) {
  int* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, n * sizeof(int)), cudaSuccess);
  EXPECT_EQ(cudaMemset(p, 0, n * sizeof(int)), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return p;
}

Child checked(const std::function<void()>& body, cudaError_t wanted) {
  Child child = in_child({"CUDASIM_CHECK=1"}, [&] {
    body();
    EXPECT_EQ(cudaDeviceSynchronize(), wanted);
    return 0;
  });
  EXPECT_EQ(child.exit_code, 0) << child.output;
  return child;
}

TEST(MemoryChecker, OnePastTheEnd) {
  Child child = checked([] { poke<<<1, 1>>>(device_ints(250), 250); }, cudaErrorIllegalAddress);
  EXPECT_TRUE(child.says("memory checker: 4 bytes")) << child.output;
  EXPECT_TRUE(child.says("block (0,0,0), thread (0,0,0)")) << child.output;
}
TEST(MemoryChecker, AcrossTheEnd) {
  Child child =
      checked([] { poke<<<1, 1>>>((int*)((char*)device_ints(250) + 998), 0); }, cudaErrorIllegalAddress);
  EXPECT_TRUE(child.says("runs past the end")) << child.output;
}
TEST(MemoryChecker, UseAfterFree) {
  Child child = checked(
      [] {
        int* p = device_ints(250);
        EXPECT_EQ(cudaFree(p), cudaSuccess);
        poke<<<1, 1>>>(p, 0);
      },
      cudaErrorIllegalAddress);
  EXPECT_TRUE(child.says("no allocation is there")) << child.output;
}
TEST(MemoryChecker, PageableHostMemory) {
  Child child = checked([] { poke<<<1, 1>>>(static_cast<int*>(malloc(64)), 0); }, cudaErrorIllegalAddress);
  EXPECT_TRUE(child.says("no allocation is there")) << child.output;
}
TEST(MemoryChecker, PeerWithoutAccess) {
  Child child = checked(
      [] {
        int* p = device_ints(250);
        EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
        poke<<<1, 1>>>(p, 0);
      },
      cudaErrorIllegalAddress);
  EXPECT_TRUE(child.says("without peer access")) << child.output;
}
TEST(MemoryChecker, PeerWithAccess) {
  checked(
      [] {
        int* p = device_ints(250);
        EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
        EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
        poke<<<1, 1>>>(p, 249);
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        int v = 0;
        EXPECT_EQ(cudaMemcpy(&v, p + 249, 4, cudaMemcpyDeviceToHost), cudaSuccess);
        EXPECT_EQ(v, 7);
      },
      cudaSuccess);
}
TEST(MemoryChecker, HostReadsDeviceMemory) {
  Child child = in_child({"CUDASIM_CHECK=1"}, [] {
    volatile int* p = device_ints(1);
    return *p;
  });
  EXPECT_EQ(child.signal, SIGSEGV) << child.output;
}
// Without the checker, too: no page is there.
TEST(MemoryChecker, WildAddress) {
  Child child = in_child({}, [] {
    poke<<<1, 1>>>(nullptr, 1);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    void* p;
    EXPECT_EQ(cudaMalloc(&p, 4), cudaErrorIllegalAddress);  // all later calls say so
    return 0;
  });
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_TRUE(child.says("illegal address 0x4 in kernel")) << child.output;
}

TEST(Scheduler, MismatchedCollectives) {
  Child child = checked([] { mismatched<<<1, 32>>>(); }, cudaErrorLaunchFailure);
  EXPECT_TRUE(child.says("met in different collectives")) << child.output;
}
TEST(Scheduler, LaneNotInItsMask) {
  Child child = checked([] { not_in_mask<<<1, 32>>>(); }, cudaErrorLaunchFailure);
  EXPECT_TRUE(child.says("mask 0000ffff it isn't in")) << child.output;
}
TEST(Scheduler, Trap) {
  Child child = checked([] { trap<<<1, 1>>>(); }, cudaErrorLaunchFailure);
  EXPECT_TRUE(child.says("trap in kernel")) << child.output;
}
TEST(Scheduler, DifferentBarriers) {
  Child child = checked([] { diverged<<<1, 64>>>(device_ints(1)); }, cudaErrorLaunchFailure);
  EXPECT_TRUE(child.says("deadlock in kernel")) << child.output;
  EXPECT_TRUE(child.says("barrier 1: 1 of 64")) << child.output;
}
TEST(Scheduler, HangIsReported) {
  Child child = in_child({"CUDASIM_HANG_SEC=1"}, [] {
    int report[2];
    EXPECT_EQ(pipe(report), 0);
    EXPECT_EQ(dup2(report[1], 2), 2);
    wait_for<<<1, 1>>>(device_ints(1));
    char text[300] = {};
    EXPECT_GT(read(report[0], text, sizeof text - 1), 0);
    puts(text);
    fflush(stdout);
    _exit(testing::Test::HasFailure());  // the kernel never ends
    return 0;
  });
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_TRUE(child.says("has spun for about 1 s")) << child.output;
}

int four_blocks_wait_for_each_other() {
  grid_barrier<<<4, 1024>>>(device_ints(1), 4);
  return static_cast<int>(cudaDeviceSynchronize());
}
size_t compiled_kernels() {
  size_t n = 0;
  for (const auto& file : std::filesystem::directory_iterator(getenv("CUDASIM_CACHE")))
    n += file.path().extension() == ".so";
  return n;
}

// A program asks many kernels that it never launches.
TEST(Kernels, WhatCanBeAskedIsSaidWithoutCompilingThem) {
  const auto folder = std::filesystem::temp_directory_path() / ("cuda_sim_asked." + std::to_string(getpid()));
  if (!getenv("CUDA_SIM_CHILD")) std::filesystem::create_directory(folder);
  Child c = in_child({"CUDASIM_CACHE=" + folder.string()}, [] {
    cudaFuncAttributes a;
    int blocks = 0;
    EXPECT_EQ(cudaFuncGetAttributes(&a, bounded), cudaSuccess);
    EXPECT_EQ(a.maxThreadsPerBlock, 256);
    EXPECT_EQ(a.sharedSizeBytes, 2048u);
    EXPECT_EQ(a.numRegs, 128);  // those of an SM among two blocks
    EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 256, 0), cudaSuccess);
    EXPECT_EQ(blocks, 2);
    EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 512, 0), cudaErrorInvalidValue);
    EXPECT_EQ(cudaFuncGetAttributes(&a, poke), cudaSuccess);
    EXPECT_EQ(a.maxThreadsPerBlock, 1024);
    EXPECT_EQ(a.sharedSizeBytes, 0u);
    EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, poke, 512, 0), cudaSuccess);
    EXPECT_EQ(blocks, 4);
    EXPECT_EQ(compiled_kernels(), 0u);
    int* p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, 1024), cudaSuccess);
    bounded<<<1, 256>>>(p);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(compiled_kernels(), 1u);
    EXPECT_EQ(cudaFuncGetAttributes(&a, bounded), cudaSuccess);
    EXPECT_EQ(a.sharedSizeBytes, 2048u);
    return 0;
  }, 240);  // a new cache takes a precompiled header
  std::filesystem::remove_all(folder);
  EXPECT_EQ(c.exit_code, 0) << c.output;
}

TEST(Scheduler, BlocksThatFitAreResident) {  // two SMs hold 4096 threads
  Child child = in_child({"CUDASIM_SMS=2"}, four_blocks_wait_for_each_other);
  EXPECT_EQ(child.exit_code, 0) << child.output;
}
TEST(Scheduler, BlocksThatDoNotFitWait) {
  Child child = in_child({"CUDASIM_SMS=1"}, four_blocks_wait_for_each_other, 2);
  EXPECT_EQ(child.signal, SIGALRM) << child.output;
}

// Threads take numbers in the order in which they are run; the exit code is a hash of it.
__global__ void take_numbers(int* next, int* taken) {
  for (int i = 0; i < 4; i++) {
    taken[atomicAdd(next, 1)] = blockIdx.x * 1000 + threadIdx.x;
    for (unsigned naps = (threadIdx.x * 7 + i) % 5; naps; naps--) __nanosleep(10);
  }
}
int hash_of_order() {
  constexpr int kNumbers = 3 * 64 * 4;
  int *next = device_ints(1), *taken = device_ints(kNumbers), host[kNumbers];
  take_numbers<<<3, 64>>>(next, taken);
  EXPECT_EQ(cudaMemcpy(host, taken, sizeof host, cudaMemcpyDeviceToHost), cudaSuccess);
  unsigned hash = 1;
  for (int number : host) hash = hash * 31 + number;
  return hash % 251;
}
TEST(Scheduler, OrderIsTheSeeds) {
  std::vector<int> order;
  for (const char* seed : {"CUDASIM_SEED=1", "CUDASIM_SEED=1", "CUDASIM_SEED=2"})
    order.push_back(in_child({seed, "CUDASIM_WORKERS=1"}, hash_of_order).exit_code);
  EXPECT_GE(order[0], 0);
  EXPECT_EQ(order[0], order[1]);
  EXPECT_NE(order[0], order[2]);
}

}  // namespace
