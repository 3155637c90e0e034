#include "ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace gpu_check {
namespace {

thread_local int this_rank = -1;

struct Work {
  const Setup& setup;
  size_t bytes;
  const std::function<void(Rank&)>& body;
};

void run_rank(const Work& work, int rank, const ncclUniqueId& id) {
  const Setup& setup = work.setup;
  this_rank = rank;
  cuda(cudaSetDevice(device_of(setup, rank)), "cudaSetDevice");
  Rank r;
  r.rank = rank;
  r.ranks = setup.ranks;
  r.quick = setup.quick;
  cuda(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  cuda(cudaMalloc(reinterpret_cast<void**>(&r.in), work.bytes), "cudaMalloc");
  cuda(cudaMalloc(reinterpret_cast<void**>(&r.out), work.bytes), "cudaMalloc");
  nccl(ncclCommInitRank(&r.comm, setup.ranks, id, rank), "ncclCommInitRank");
  work.body(r);
  cuda(cudaStreamSynchronize(r.stream), "cudaStreamSynchronize");
  if (r.comm) nccl(ncclCommDestroy(r.comm), "ncclCommDestroy");
  cuda(cudaStreamDestroy(r.stream), "cudaStreamDestroy");
  cuda(cudaFree(r.in), "cudaFree");
  cuda(cudaFree(r.out), "cudaFree");
}

void run_threads(const Work& work) {
  ncclUniqueId id;
  nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::vector<std::thread> threads;
  for (int r = 0; r < work.setup.ranks; ++r) threads.emplace_back([&, r] { run_rank(work, r, id); });
  for (auto& t : threads) t.join();
}

// CUDA doesn't outlive a fork, so this process leaves it alone; rank 0 makes the id and sends it to the
// others.
void run_processes(const Work& work) {
  const int ranks = work.setup.ranks;
  int ids[2];
  if (pipe(ids) != 0) fail("pipe", "no descriptors are left");
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child < 0) fail("fork", "no process can be made");
    if (child == 0) {
      this_rank = r;
      ncclUniqueId id;
      if (r == 0) {
        nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
        for (int other = 1; other < ranks; ++other)  // 128 bytes: whole, each
          if (write(ids[1], &id, sizeof id) != sizeof id) fail("pipe", "rank 0's id can't be sent");
      } else if (read(ids[0], &id, sizeof id) != sizeof id) {
        fail("pipe", "rank 0 sent no id");
      }
      run_rank(work, r, id);
      fflush(nullptr);
      _exit(0);
    }
    children.push_back(child);
  }
  bool failed = false;
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (ended < 0) break;
    if (status == 0 || failed) continue;
    failed = true;
    if (WIFSIGNALED(status)) printf("a rank was ended by signal %d\n", WTERMSIG(status));
    for (const pid_t other : children)
      if (other != ended) kill(other, SIGKILL);
  }
  if (failed) {
    fflush(nullptr);
    _exit(1);
  }
}

}  // namespace

void fail(const std::string& what, const std::string& reason) {
  if (this_rank >= 0) printf("rank %d: ", this_rank);
  printf("%s: %s\n", what.c_str(), reason.c_str());
  fflush(nullptr);
  _exit(1);  // other ranks may wait for this one
}

void cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    fail(what, std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + ")");
}

void nccl(ncclResult_t result, const char* what, ncclComm_t comm) {
  if (result != ncclSuccess)
    fail(what, std::string(ncclGetErrorString(result)) + ": " + ncclGetLastError(comm));
}

int device_of(const Setup& setup, int rank) {
  int devices = 1;
  if (setup.spread) cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  return rank % devices;
}

void run_ranks(const Setup& setup, size_t bytes, const std::function<void(Rank&)>& body) {
  const Work work{setup, bytes, body};
  if (setup.kind == Kind::threads)
    run_threads(work);
  else
    run_processes(work);
}

void Rank::upload(char* to, const void* from, size_t bytes) const {
  cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

void Rank::download(void* to, const char* from, size_t bytes) const {
  cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
  cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

}  // namespace gpu_check
