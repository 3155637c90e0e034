// Ranks of a check on GPUs, as threads or as processes, which meet through NCCL's interface.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <functional>
#include <string>

namespace gpu_check {

enum class Kind { threads, processes };

// What the command line says.
struct Setup {
  int ranks = 1;
  Kind kind = Kind::threads;
  bool spread = false;  // over all GPUs; else all ranks share the first
  bool quick = false;   // few and small: simulated GPUs, compute-sanitizer
};

struct Rank {
  int rank = 0, ranks = 1;
  bool quick = false;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  // GPU memory. Bodies get and free none: that may wait for all kernels of the GPU, and so for other ranks'.
  char* in = nullptr;
  char* out = nullptr;

  void upload(char* to, const void* from, size_t bytes) const;
  void download(void* to, const char* from, size_t bytes) const;  // behind what the stream has
};

// Ends the program: status 1, "rank R: WHAT: REASON".
[[noreturn]] void fail(const std::string& what, const std::string& reason);
// The same, if the call failed.
void cuda(cudaError_t error, const char* what);
void nccl(ncclResult_t result, const char* what, ncclComm_t comm = nullptr);

int device_of(const Setup& setup, int rank);

// Each rank with a communicator, a stream and two buffers of its own, at once. Returns when all are through.
void run_ranks(const Setup& setup, size_t bytes, const std::function<void(Rank&)>& body);

}  // namespace gpu_check
