// What the race checker reports: two devices pass data by a flag, with one thing left out.
#include "child.h"

namespace {

using cuda_sim_test::Child;
using cuda_sim_test::in_child;

enum Way { kAcquireRelease, kFences, kNoAcquire, kNoRelease, kNoFences, kNoBarrier };

__device__ void post(Way way, int* flag) {
  if (way == kFences) __threadfence_system();
  if (way == kFences || way == kNoFences || way == kNoRelease)
    asm volatile("st.relaxed.sys.global.s32 [%0], 1;" ::"l"(flag) : "memory");
  else
    asm volatile("st.release.sys.global.s32 [%0], 1;" ::"l"(flag) : "memory");
}

__device__ void await(Way way, int* flag) {
  for (int seen = 0; !seen;)
    if (way == kFences || way == kNoFences || way == kNoAcquire)
      asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    else
      asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
  if (way == kFences) __threadfence_system();
}

__global__ void give(Way way, int* data, int* flag) {
  data[threadIdx.x] = threadIdx.x + 1;
  if (way != kNoBarrier) __syncthreads();  // the flag is for all threads' data
  if (threadIdx.x == 0) post(way, flag);
}

__global__ void take(Way way, int* data, int* flag, int* sum, int* started) {
  if (threadIdx.x == 31) *static_cast<volatile int*>(started) = 1;
  if (threadIdx.x == 0) await(way, flag);
  __syncthreads();
  atomicAdd(sum, data[threadIdx.x]);
}

int pass_data(Way way) {
  int *data, *sum, *started;
  EXPECT_EQ(cudaHostAlloc(&started, 4, 0), cudaSuccess);
  *started = 0;
  EXPECT_EQ(cudaMalloc(&data, 256), cudaSuccess);
  EXPECT_EQ(cudaMemset(data, 0, 256), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&sum, 4), cudaSuccess);
  EXPECT_EQ(cudaMemset(sum, 0, 4), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  take<<<1, 32>>>(way, data, data + 32, sum, started);
  // Kernels one after the other may be seen as ordered, for they may share what runs them.
  while (*static_cast<volatile int*>(started) == 0) usleep(100);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  give<<<1, 32>>>(way, data, data + 32);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return 0;
}

void expect_races(Way way, bool wanted) {
  Child child = in_child({"LD_LIBRARY_PATH=" CUDA_SIM_RACED, "LD_PRELOAD=libtsan.so.2"},
                         [way] { return pass_data(way); });
  EXPECT_EQ(child.says("WARNING: ThreadSanitizer: data race"), wanted) << child.output;
  EXPECT_EQ(child.exit_code, wanted ? 66 : 0) << child.output;                   // 66: ThreadSanitizer's
  if (wanted) EXPECT_TRUE(child.says("race_checker_test.cu:")) << child.output;  // a line of the kernel
}

TEST(RaceChecker, AcquireAndReleaseAreRight) { expect_races(kAcquireRelease, false); }
TEST(RaceChecker, FencesAreRight) { expect_races(kFences, false); }
TEST(RaceChecker, NoAcquire) { expect_races(kNoAcquire, true); }
TEST(RaceChecker, NoRelease) { expect_races(kNoRelease, true); }
TEST(RaceChecker, NoFences) { expect_races(kNoFences, true); }
TEST(RaceChecker, NoBarrierBeforeTheFlag) { expect_races(kNoBarrier, true); }

}  // namespace
