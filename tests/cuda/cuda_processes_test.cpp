// GPUs of several processes, by NCCL's interface: each process has some ranks, as devices of one thread.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cuda/gpus.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "muster/muster.h"
#include "nccl.h"
#include "support/outcome.h"
#include "support/processes.h"

namespace muster {
namespace {

using test::run_processes;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

// In each process: its ranks of one communicator.
struct GpuJob {
  explicit GpuJob(int ranks_here = 1)
      : host(Communicator::from_environment()), here(ranks_here), size(host.size() * here) {
    ncclUniqueId id{};
    if (host.rank() == 0) {
      EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    }
    host.broadcast(&id, &id, sizeof id, DataType::uint8, 0);
    comms.resize(static_cast<size_t>(here));
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int i = 0; i < here; ++i) {
      devices.push_back(rank(i) % cuda::devices().count);
      EXPECT_EQ(cudaSetDevice(devices.back()), cudaSuccess);
      EXPECT_EQ(ncclCommInitRank(&comm(i), size, id, rank(i)), ncclSuccess);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    for (const int d : devices) {
      streams.push_back(std::make_unique<cuda::Stream>(d));
      in.emplace_back(d, kBytes);
      out.emplace_back(d, kBytes);
    }
  }

  int rank(int i) const { return host.rank() * here + i; }
  ncclComm_t& comm(int i) { return comms[static_cast<size_t>(i)]; }
  cudaStream_t stream(int i) const { return streams[static_cast<size_t>(i)]->handle(); }
  float* input(int i) const { return reinterpret_cast<float*>(in[static_cast<size_t>(i)].data()); }
  float* output(int i) const { return reinterpret_cast<float*>(out[static_cast<size_t>(i)].data()); }
  static float value(int r, size_t i) {
    return static_cast<float>((r * 31 + static_cast<int>(i % 1009)) % 97);
  }
  void fill(size_t n) {
    for (int i = 0; i < here; ++i) {
      std::vector<float> values(n);
      for (size_t k = 0; k < n; ++k) values[k] = value(rank(i), k);
      in[static_cast<size_t>(i)].write(0, values.data(), 4 * n);
      std::fill(values.begin(), values.end(), -1.f);
      out[static_cast<size_t>(i)].write(0, values.data(), 4 * n);
    }
  }
  std::vector<float> result(int i, size_t n) const {
    std::vector<float> values(n);
    out[static_cast<size_t>(i)].read(0, values.data(), 4 * n);
    return values;
  }
  ncclResult_t all_reduce(int i, size_t n) {
    return ncclAllReduce(input(i), output(i), n, ncclFloat, ncclSum, comm(i), stream(i));
  }
  // `call(i)` of this process's ranks, in a group, to its end.
  void all(const std::function<ncclResult_t(int)>& call) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int i = 0; i < here; ++i) ASSERT_EQ(call(i), ncclSuccess) << ncclGetLastError(comm(i));
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    for (auto& s : streams) s->synchronize();
  }
  float sum(size_t k) const {
    float s = 0;
    for (int r = 0; r < size; ++r) s += value(r, k);
    return s;
  }
  void expect_all_reduce(size_t n) {
    fill(n);
    all([&](int i) { return all_reduce(i, n); });
    for (int i = 0; i < here; ++i) {
      const auto got = result(i, n);
      for (size_t k = 0; k < n; ++k)
        ASSERT_EQ(got[k], sum(k)) << "all-reduce, rank " << rank(i) << " element " << k;
    }
  }
  void expect_calls() {
    for (const size_t n : {size_t{1}, size_t{1001}, kMost}) {
      SCOPED_TRACE(testing::Message() << n << " elements");
      expect_all_reduce(n);
      const size_t part = n / static_cast<size_t>(size) + 1;
      fill(part * static_cast<size_t>(size));
      all([&](int i) { return ncclAllGather(input(i), output(i), part, ncclFloat, comm(i), stream(i)); });
      for (int i = 0; i < here; ++i) {
        const auto got = result(i, part * static_cast<size_t>(size));
        for (size_t k = 0; k < got.size(); ++k)
          ASSERT_EQ(got[k], value(static_cast<int>(k / part), k % part))
              << "all-gather, rank " << rank(i) << " element " << k;
      }
      all([&](int i) {
        return ncclReduceScatter(input(i), output(i), part, ncclFloat, ncclSum, comm(i), stream(i));
      });
      for (int i = 0; i < here; ++i) {
        const auto got = result(i, part);
        for (size_t k = 0; k < part; ++k)
          ASSERT_EQ(got[k], sum(static_cast<size_t>(rank(i)) * part + k))
              << "reduce-scatter, rank " << rank(i) << " element " << k;
      }
      all([&](int i) {
        return ncclBroadcast(input(i), output(i), n, ncclFloat, size - 1, comm(i), stream(i));
      });
      for (int i = 0; i < here; ++i) EXPECT_EQ(result(i, n).back(), value(size - 1, n - 1));
      fill(n);
      all([&](int i) {
        const ncclResult_t sent = ncclSend(input(i), n, ncclFloat, (rank(i) + 1) % size, comm(i), stream(i));
        if (sent != ncclSuccess) return sent;
        return ncclRecv(output(i), n, ncclFloat, (rank(i) + size - 1) % size, comm(i), stream(i));
      });
      for (int i = 0; i < here; ++i) {
        const auto got = result(i, n);
        for (size_t k = 0; k < n; ++k)
          ASSERT_EQ(got[k], value((rank(i) + size - 1) % size, k))
              << "message to rank " << rank(i) << " element " << k;
      }
    }
  }
  // Of local rank 0.
  std::string await_error() {
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) {
      EXPECT_EQ(ncclCommGetAsyncError(comm(0), &state), ncclSuccess);
      std::this_thread::sleep_for(2ms);
    }
    EXPECT_NE(all_reduce(0, 1), ncclSuccess);
    return ncclGetLastError(comm(0));
  }
  void destroy() {
    for (ncclComm_t c : comms) EXPECT_EQ(ncclCommDestroy(c), ncclSuccess);
  }

  static constexpr size_t kMost = 50'000, kBytes = 4 * (kMost + 100);
  Communicator host;  // of the processes
  const int here, size;
  std::vector<int> devices;
  std::vector<ncclComm_t> comms;
  std::vector<std::unique_ptr<cuda::Stream>> streams;
  std::vector<cuda::DeviceMemory> in, out;
};

// The log of this process, from now on; before its first communicator.
class Log {
 public:
  Log() : file_(std::filesystem::temp_directory_path() / ("muster_gpu_log." + std::to_string(getpid()))) {
    setenv("NCCL_DEBUG_FILE", file_.c_str(), 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "P2P", 1);
  }
  ~Log() { std::filesystem::remove(file_); }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(file_).rdbuf();
    return all.str();
  }

 private:
  std::filesystem::path file_;
};

TEST(CudaProcesses, AGpuEach) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(3, [](int) {
    GpuJob job;
    job.expect_calls();
    job.destroy();
  });
}

TEST(CudaProcesses, TwoGpusEach) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2, [](int) {
    const Log log;
    GpuJob job(2);
    job.expect_calls();
    job.destroy();
    EXPECT_THAT(log.text(), Not(HasSubstr("by way of host memory")));
  });
}

// --- where GPUs don't reach each other ---

TEST(CudaProcesses, WithoutPeerAccessMessagesGoThroughHostMemory) {
  MUSTER_NEEDS_GPUS(2);
  const Variable without("CUDASIM_P2P", "0");
  run_processes(2, [](int) {
    const Log log;
    GpuJob job(2);
    job.expect_calls();
    job.destroy();
    EXPECT_THAT(log.text(), HasSubstr("by way of host memory: the driver gives no peer access"));
  });
}

TEST(CudaProcesses, P2pIsDisabledAndBoundedByOptions) {
  MUSTER_NEEDS_GPUS(2);
  {
    const Variable disable("NCCL_P2P_DISABLE", "1");
    run_processes(2, [](int) {
      const Log log;
      GpuJob job(2);
      job.expect_calls();
      job.destroy();
      EXPECT_THAT(log.text(), HasSubstr("by way of host memory: NCCL_P2P_DISABLE=1"));
    });
  }
  // The topology doesn't know simulated GPUs, so they are far from each other.
  for (const auto& [level, direct] :
       {std::pair{"LOC", false}, {"0", false}, {"PHB", false}, {"SYS", true}, {"4", true}}) {
    const Variable limit("NCCL_P2P_LEVEL", level);
    run_processes(2, [level = level, direct = direct](int) {
      const Log log;
      GpuJob job;
      job.expect_all_reduce(10);
      job.destroy();
      if (direct) {
        EXPECT_THAT(log.text(), Not(HasSubstr("by way of host memory")));
      } else {
        EXPECT_THAT(log.text(), HasSubstr(std::string("their path is SYS, and NCCL_P2P_LEVEL allows ") +
                                          (level[0] == '0' ? "LOC" : level)));
      }
    });
  }
  const Variable wrong("NCCL_P2P_LEVEL", "near");
  run_processes(1, [](int) {
    GpuJob job;
    EXPECT_EQ(job.all_reduce(0, 1), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(job.comm(0)),
                HasSubstr("NCCL_P2P_LEVEL='near': LOC, NVL, PIX, PXB, PHB or SYS"));
    job.destroy();
  });
}

// Access that the driver offers and that isn't: found by what arrives.
TEST(CudaProcesses, WhatDoesntArriveGoesThroughHostMemory) {
  MUSTER_NEEDS_GPUS(2);
  for (const auto& [fault, arrived] : {std::pair{"drop", "nothing"}, {"garbage", "other bytes"}}) {
    const Variable faulty("CUDASIM_P2P_FAULT", fault);
    for (const int n : {1, 2})
      run_processes(n, [n, arrived = arrived](int) {
        const Log log;
        GpuJob job(4 / n);
        for (const size_t count : {size_t{1}, size_t{1001}, GpuJob::kMost}) job.expect_all_reduce(count);
        job.destroy();
        EXPECT_THAT(log.text(),
                    AllOf(HasSubstr(std::string("but ") + arrived + " of what rank"),
                          HasSubstr("turn ACS off"), HasSubstr("reaches the memory of the GPU at 0000:"),
                          HasSubstr("NCCL_P2P_DISABLE=1 spares the attempt")));
      });
  }
}

// --- ends ---

TEST(CudaProcesses, AKilledProcessEndsTheKernelsThatWaitForIt) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(3,
                [](int p) {
                  GpuJob job;
                  job.fill(100);
                  job.all([&](int i) { return job.all_reduce(i, 100); });
                  if (p != 1) {
                    ASSERT_EQ(job.all_reduce(0, 100), ncclSuccess);
                  }
                  job.host.barrier();
                  if (p == 1) {
                    kill(getpid(), SIGKILL);
                    pause();
                  }
                  job.streams[0]->synchronize();  // nobody asks for the error
                  EXPECT_THAT(job.await_error(), HasSubstr("rank 1 (host "));
                  EXPECT_EQ(ncclCommAbort(job.comm(0)), ncclSuccess);
                },
                {.killed = {1}});
}

TEST(CudaProcesses, AnAbortEndsTheKernelsOfOtherProcesses) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2, [](int p) {
    GpuJob job(2);
    job.fill(100);
    job.all([&](int i) { return job.all_reduce(i, 100); });
    if (p == 0) {
      ASSERT_EQ(job.all_reduce(0, 100), ncclSuccess);
      job.host.barrier();
      job.streams[0]->synchronize();
      EXPECT_THAT(job.await_error(), AllOf(HasSubstr("aborted by rank"), HasSubstr("(host ")));
    } else {
      job.host.barrier();
    }
    for (ncclComm_t c : job.comms) EXPECT_EQ(ncclCommAbort(c), ncclSuccess);
  });
}

// What one rank alone can't do becomes the others' error, too.
TEST(CudaProcesses, ARankThatCantLaunchFailsTheOthers) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2, [](int p) {
    GpuJob job;
    job.expect_all_reduce(100);
    if (p == 1) {
      job.host.barrier();
      setenv("CUDASIM_FAIL_ALLOC_ABOVE", "0", 1);  // another shape needs tables
      EXPECT_EQ(job.all_reduce(0, 200), ncclUnhandledCudaError);
    } else {
      ASSERT_EQ(job.all_reduce(0, 200), ncclSuccess);
      job.host.barrier();
      job.streams[0]->synchronize();
    }
    EXPECT_THAT(job.await_error(), HasSubstr("on GPU 1 ("));
    EXPECT_EQ(ncclCommAbort(job.comm(0)), ncclSuccess);
  });
}

// One that destroyed its communicator sends nothing more, and one that only doesn't come is waited for as
// long as is wanted.
TEST(CudaProcesses, ARankThatHasLeftOrIsTooLateIsNamed) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2, [](int p) {
    GpuJob job;
    job.expect_all_reduce(100);
    job.host.barrier();
    if (p == 0) {
      ASSERT_EQ(job.all_reduce(0, 100), ncclSuccess);
      job.streams[0]->synchronize();
      EXPECT_THAT(job.await_error(), AllOf(HasSubstr("rank 1 (host "),
                                           HasSubstr("has destroyed its communicator while rank 0")));
    }
    EXPECT_EQ(ncclCommDestroy(job.comm(0)), ncclSuccess);
  });
  const Variable limit("MUSTER_TIMEOUT", "0.3"), warning("MUSTER_STALL_WARN", "0.1");
  run_processes(2, [](int p) {
    const Log log;
    GpuJob job;
    job.expect_all_reduce(100);
    if (p == 0) {
      ASSERT_EQ(job.all_reduce(0, 100), ncclSuccess);
      job.streams[0]->synchronize();
      EXPECT_THAT(log.text(), HasSubstr("s in a call on GPU memory, waiting for rank 1 (host "));
    }
    EXPECT_THAT(job.await_error(), AllOf(HasSubstr("rank 0 (host "), HasSubstr(" timed out after 0.3"),
                                         HasSubstr("waiting for rank 1 (host ")));
    EXPECT_EQ(ncclCommAbort(job.comm(0)), ncclSuccess);
  });
}

size_t free_bytes(int device) {
  const cuda::DeviceGuard guard(device);
  size_t free = 0, all = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &all), cudaSuccess);
  return free;
}

// Memory that another process's kernels may store to isn't given to anybody else.
TEST(CudaProcesses, MailboxesStayUntilTheOthersHaveLeft) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2, [](int p) {
    GpuJob job(2);
    const int gpu = job.devices[0];
    const auto barrier = [&] { job.host.barrier(); };
    const size_t before = free_bytes(gpu);
    job.fill(100);
    job.all([&](int i) { return job.all_reduce(i, 100); });
    EXPECT_LT(free_bytes(gpu), before - (4 << 20));
    barrier();
    job.destroy();  // all at once: nothing is left
    EXPECT_GE(free_bytes(gpu) + (64 << 10), before);
    barrier();

    GpuJob late(2);
    const size_t after = free_bytes(gpu);
    late.fill(100);
    late.all([&](int i) { return late.all_reduce(i, 100); });
    barrier();
    if (p == 0) late.destroy();
    barrier();
    if (p == 0) {
      EXPECT_LT(free_bytes(gpu), after - (4 << 20));
    } else {
      late.destroy();
    }
    EXPECT_EQ(p == 1, free_bytes(gpu) + (64 << 10) >= after);
  });
}

}  // namespace
}  // namespace muster
