// Launches on the simulated runtime: threads, blocks, shared memory, warps, and blocks that wait for each
// other.
#include "device_memory.h"

namespace {

using cuda_sim_test::DeviceInts;

__global__ void add(int* p, int v) { atomicAdd(p, v); }

__global__ void reverse(int* p) {
  __shared__ int s[256];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

__global__ void lanes(int* out) {
  int v = threadIdx.x;
  for (int step = 16; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  out[threadIdx.x] = v;
}

// A flag is posted and waited for by system-scope release and acquire, as between devices.
__global__ void ping(int* data, int* mine, int* theirs, int rounds, bool first) {
  for (int i = 1; i <= rounds; i++) {
    if (first) {
      *data = i;
      asm volatile("st.release.sys.global.s32 [%0], %1;" ::"l"(theirs), "r"(i) : "memory");
    }
    for (int seen = 0; seen < i;)
      asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(seen) : "l"(mine) : "memory");
    if (first) continue;
    *data += 1000;
    asm volatile("st.release.sys.global.s32 [%0], %1;" ::"l"(theirs), "r"(i) : "memory");
  }
}

TEST(Launch, EveryThreadOfEveryBlockRuns) {
  DeviceInts d(1);
  add<<<3, 64>>>(d.data, 2);
  EXPECT_EQ(d.value(), 384);
}

TEST(Launch, SharedMemoryAndBarriers) {
  DeviceInts d(256);
  std::vector<int> v(256);
  for (int i = 0; i < 256; i++) v[i] = i;
  ASSERT_EQ(cudaMemcpy(d.data, v.data(), 1024, cudaMemcpyHostToDevice), cudaSuccess);
  reverse<<<1, 256>>>(d.data);
  v = d.values();
  for (int i = 0; i < 256; i++) EXPECT_EQ(v[i], 255 - i);
}

TEST(Launch, Shuffles) {
  DeviceInts d(64);
  lanes<<<1, 64>>>(d.data);
  std::vector<int> v = d.values();
  for (int i = 0; i < 64; i++) EXPECT_EQ(v[i], i < 32 ? 496 : 496 + 32 * 32);
}

TEST(Launch, DevicesWaitForEachOther) {
  constexpr int kRounds = 200;
  DeviceInts a(2);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  DeviceInts b(1);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  ping<<<1, 1>>>(a.data + 1, b.data, a.data, kRounds, false);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ping<<<1, 1>>>(a.data + 1, a.data, b.data, kRounds, true);
  for (int device : {0, 1}) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(a.values()[1], kRounds + 1000);
}

// Threads and blocks that wait for others in ways that a simple scheduler would hang in.
__global__ void wait_within_block(volatile int* flag, int setter) {
  if (threadIdx.x == 0)
    while (*flag == 0) {
    }
  if (static_cast<int>(threadIdx.x) == setter) *flag = 1;
  __syncthreads();
}
__global__ void grid_barriers(int* arrived, volatile int* go, int rounds) {
  for (int r = 1; r <= rounds; r++) {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      if (atomicAdd(arrived, 1) == r * static_cast<int>(gridDim.x) - 1) *go = r;
      while (*go < r) {
      }
    }
    __syncthreads();
  }
}
__global__ void poll_by_atomics(int* flag) {
  if (blockIdx.x == gridDim.x - 1)
    atomicExch(flag, 1);
  else
    while (atomicAdd(flag, 0) == 0) {
    }
}
__global__ void poll_with_barriers(volatile int* flag) {
  if (blockIdx.x == gridDim.x - 1) {
    if (threadIdx.x == 0) *flag = 1;
    return;
  }
  int done;
  do {
    done = threadIdx.x == 0 ? *flag : 0;
  } while (!__syncthreads_or(done));
}

TEST(ForwardProgress, WithinABlock) {
  for (int setter : {1, 31, 33, 255}) {
    DeviceInts d(1);
    wait_within_block<<<1, 256>>>(d.data, setter);
    EXPECT_EQ(d.value(), 1);
  }
}
TEST(ForwardProgress, GridBarriers) {
  for (int blocks : {2, 8, 32}) {
    DeviceInts d(2);
    grid_barriers<<<blocks, 4>>>(d.data, d.data + 1, 20);
    EXPECT_EQ(d.value(), 20 * blocks);
  }
}
TEST(ForwardProgress, ManyBlocksPollForTheLast) {
  DeviceInts atomics(1), barriers(1);
  poll_by_atomics<<<40, 1>>>(atomics.data);
  EXPECT_EQ(atomics.value(), 1);
  poll_with_barriers<<<40, 4>>>(barriers.data);
  EXPECT_EQ(barriers.value(), 1);
}
TEST(ForwardProgress, KernelsOfTwoStreamsRunTogether) {
  DeviceInts d(1);
  cudaStream_t a, b;
  ASSERT_EQ(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), cudaSuccess);
  wait_within_block<<<1, 1, 0, a>>>(d.data, 1);
  add<<<1, 1, 0, b>>>(d.data, 5);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(d.value(), 5);
  EXPECT_EQ(cudaStreamDestroy(a), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(b), cudaSuccess);
}

}  // namespace
