// A user's program with a kernel of its own, compiled against the bundle by nvcc: two ranks of one process
// sum what it wrote.
#include <nccl.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call, good)                                               \
  do {                                                                  \
    const int result = static_cast<int>(call);                          \
    if (result != (good)) {                                             \
      printf("%s: %d: %s\n", #call, result, ncclGetLastError(nullptr)); \
      exit(1);                                                          \
    }                                                                   \
  } while (0)

__global__ void fill(float* values, int count, float first) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] = first + static_cast<float>(i);
}

int main() {
  constexpr int kRanks = 2, kCount = 10'000;
  const int devices[kRanks] = {0, 0};
  ncclComm_t comms[kRanks];
  cudaStream_t streams[kRanks];
  float* values[kRanks];
  CHECK(ncclCommInitAll(comms, kRanks, devices), ncclSuccess);
  for (int r = 0; r < kRanks; ++r) {
    CHECK(cudaStreamCreate(&streams[r]), cudaSuccess);
    CHECK(cudaMalloc(&values[r], kCount * sizeof(float)), cudaSuccess);
    fill<<<(kCount + 255) / 256, 256, 0, streams[r]>>>(values[r], kCount, static_cast<float>(r));
  }
  CHECK(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r)
    CHECK(ncclAllReduce(values[r], values[r], kCount, ncclFloat, ncclSum, comms[r], streams[r]), ncclSuccess);
  CHECK(ncclGroupEnd(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r) {
    static float got[kCount];
    CHECK(cudaStreamSynchronize(streams[r]), cudaSuccess);
    CHECK(cudaMemcpy(got, values[r], sizeof got, cudaMemcpyDeviceToHost), cudaSuccess);
    for (int i = 0; i < kCount; ++i)
      if (got[i] != 1.f + 2.f * static_cast<float>(i)) {
        printf("rank %d: element %d is %f\n", r, i, static_cast<double>(got[i]));
        return 1;
      }
    CHECK(ncclCommDestroy(comms[r]), ncclSuccess);
  }
  printf("%d ranks of one process have the sums of %d elements of GPU memory\n", kRanks, kCount);
  return 0;
}
