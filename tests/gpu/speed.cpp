#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "checks.h"

namespace gpu_check {
namespace {

// Milliseconds of one call, the least of several turns.
double milliseconds(cudaStream_t stream, int calls, const std::function<void()>& call) {
  cudaEvent_t begin = nullptr, end = nullptr;
  cuda(cudaEventCreate(&begin), "cudaEventCreate");
  cuda(cudaEventCreate(&end), "cudaEventCreate");
  call();
  double best = 1e30;
  for (int turn = 0; turn < 3; ++turn) {
    cuda(cudaEventRecord(begin, stream), "cudaEventRecord");
    for (int i = 0; i < calls; ++i) call();
    cuda(cudaEventRecord(end, stream), "cudaEventRecord");
    cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    float ms = 0;
    cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    best = std::min(best, static_cast<double>(ms) / calls);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best;
}

constexpr double kMost = 0.90;  // of a plain copy's bytes per second, wanted from kFrom up
constexpr size_t kFrom = size_t{64} << 20;

}  // namespace

void measure_bandwidth(const Setup& setup) {
  std::vector<size_t> sizes = {size_t{1} << 20, size_t{16} << 20, kFrom, size_t{256} << 20};
  if (setup.quick) sizes = {size_t{1} << 16};
  run_ranks(setup, sizes.back(), [&sizes](Rank& r) {
    cuda(cudaMemsetAsync(r.in, 0, sizes.back(), r.stream), "cudaMemsetAsync");
    std::string slow;
    for (const size_t bytes : sizes) {
      const int calls = r.quick ? 1 : bytes >= kFrom ? 5 : 20;
      const double all_reduce = milliseconds(r.stream, calls, [&] {
        nccl(ncclAllReduce(r.in, r.out, bytes / 4, ncclFloat, ncclSum, r.comm, r.stream), "ncclAllReduce",
             r.comm);
      });
      if (r.rank != 0) continue;
      const double copy = milliseconds(r.stream, calls, [&] {
        cuda(cudaMemcpyAsync(r.out, r.in, bytes, cudaMemcpyDeviceToDevice, r.stream), "cudaMemcpyAsync");
      });
      const auto gigabytes = [&](double ms) { return static_cast<double>(bytes) / ms / 1e6; };
      printf("%8zu KiB: all-reduce of %d ranks %8.1f GB/s, copy within the GPU %8.1f GB/s, %.2f of it\n",
             bytes >> 10, r.ranks, gigabytes(all_reduce), gigabytes(copy), copy / all_reduce);
      if (r.ranks == 1 && bytes >= kFrom && copy / all_reduce < kMost)
        slow += " " + std::to_string(bytes >> 20) + " MiB";
    }
    if (!slow.empty()) fail("bandwidth", "below 90 % of a plain copy at" + slow);
  });
}

void measure_latency(const Setup& setup) {
  run_ranks(setup, 8, [](Rank& r) {
    const int calls = r.quick ? 2 : 200;
    const auto call = [&] {
      nccl(ncclAllReduce(r.in, r.in, 2, ncclFloat, ncclSum, r.comm, r.stream), "ncclAllReduce", r.comm);
    };
    const double launched = milliseconds(r.stream, calls, call);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    cuda(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < 10; ++i) call();
    cuda(cudaStreamEndCapture(r.stream, &graph), "cudaStreamEndCapture");
    cuda(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
    const double replayed = milliseconds(r.stream, r.quick ? 1 : 20,
                                         [&] { cuda(cudaGraphLaunch(replay, r.stream), "cudaGraphLaunch"); });
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    if (r.rank == 0)
      printf("8 bytes, %d ranks: %.2f us a call, %.2f us in a graph of ten\n", r.ranks, 1000 * launched,
             100 * replayed);
  });
}

}  // namespace gpu_check
