#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "checks.h"

namespace gpu_check {

void check_graphs(const Setup& setup) {
  constexpr size_t kCount = 4099;
  run_ranks(setup, 4 * kCount, [](Rank& r) {
    std::vector<float> values(kCount);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    cuda(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    nccl(ncclAllReduce(r.in, r.out, kCount, ncclFloat, ncclSum, r.comm, r.stream), "ncclAllReduce", r.comm);
    nccl(ncclAllReduce(r.out, r.out, kCount, ncclFloat, ncclMax, r.comm, r.stream), "ncclAllReduce", r.comm);
    cuda(cudaStreamEndCapture(r.stream, &graph), "cudaStreamEndCapture");
    cuda(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
    const int turns = r.quick ? 2 : 20;
    for (int turn = 0; turn < turns; ++turn) {
      for (size_t i = 0; i < kCount; ++i)
        values[i] = static_cast<float>((turn + r.rank + static_cast<int>(i)) % 100);
      cuda(cudaMemcpyAsync(r.in, values.data(), 4 * kCount, cudaMemcpyHostToDevice, r.stream),
           "cudaMemcpyAsync");
      cuda(cudaGraphLaunch(replay, r.stream), "cudaGraphLaunch");
      cuda(cudaMemcpyAsync(values.data(), r.out, 4 * kCount, cudaMemcpyDeviceToHost, r.stream),
           "cudaMemcpyAsync");
      cuda(cudaStreamSynchronize(r.stream), "cudaStreamSynchronize");
      for (size_t i = 0; i < kCount; ++i) {
        float want = 0;
        for (int rank = 0; rank < r.ranks; ++rank)
          want += static_cast<float>((turn + rank + static_cast<int>(i)) % 100);
        if (values[i] != want)
          fail("replay " + std::to_string(turn), "element " + std::to_string(i) + " is " +
                                                     std::to_string(values[i]) + ", " + std::to_string(want) +
                                                     " is right");
      }
    }
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    if (r.rank == 0) printf("%d replays of two calls by %d ranks: every element is right\n", turns, r.ranks);
  });
}

void check_abort(const Setup& setup) {
  run_ranks(setup, 4000, [](Rank& r) {
    const auto call = [&] {
      nccl(ncclAllReduce(r.in, r.out, 1000, ncclFloat, ncclSum, r.comm, r.stream), "ncclAllReduce", r.comm);
    };
    call();
    cuda(cudaStreamSynchronize(r.stream), "cudaStreamSynchronize");
    if (r.rank == 0) {
      call();
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (r.ranks > 1 && cudaStreamQuery(r.stream) != cudaErrorNotReady)
        fail("abort", "a call that no other rank has made is over");
    } else {  // told of rank 0's abort
      for (ncclResult_t state = ncclSuccess; state == ncclSuccess;)
        nccl(ncclCommGetAsyncError(r.comm, &state), "ncclCommGetAsyncError");
    }
    const auto before = std::chrono::steady_clock::now();
    nccl(ncclCommAbort(r.comm), "ncclCommAbort");
    r.comm = nullptr;
    cuda(cudaStreamSynchronize(r.stream), "cudaStreamSynchronize");
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - before;
    if (r.rank == 0)
      printf("rank 0 of %d, alone in a call, was free %.1f ms after its abort\n", r.ranks, took.count());
  });
}

}  // namespace gpu_check
