// GPUs of several processes, by NCCL's interface: each process has some ranks, as devices of one thread.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "cuda/gpu_job.h"
#include "cuda/gpu_memory.h"
#include "nccl.h"
#include "support/outcome.h"
#include "support/processes.h"

namespace muster {
namespace {

using test::GpuJob;
using test::Log;
using test::run_processes;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

// --- what mailboxes are made of ---

TEST(CudaProcesses, MailboxesAreOfMappedMemoryWhereTheDriverHasIt) {
  MUSTER_NEEDS_GPUS(2);
  const struct {
    const char *name, *value, *by, *refusal;
  } cases[] = {{"NCCL_CUMEM_ENABLE", "-2", "file descriptor", nullptr},
               {"NCCL_CUMEM_ENABLE", "0", "cudaIpc", "memory of cudaMalloc: NCCL_CUMEM_ENABLE=0"},
               {"CUDASIM_VMM", "0", "cudaIpc", "memory of cudaMalloc: GPU 0 (cuda_sim H100-like, 0000:10:00.0) has no virtual memory"},
               {"CUDASIM_FABRIC", "2", "file descriptor", nullptr}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.name << "=" << c.value);
    const Variable option(c.name, c.value);
    run_processes(2, [&c](int p) {
      const Log log;
      GpuJob job;
      const size_t free = test::free_memory(job.devices[0]);
      job.expect_all_reduce(1001);
      EXPECT_LT(test::free_memory(job.devices[0]), free - (4 << 20));
      EXPECT_EQ(test::descriptors_of_gpu_memory(), c.refusal ? 0u : 2u);  // its own, and the one it has mapped
      job.host.barrier();
      job.destroy();
      EXPECT_GE(test::free_memory(job.devices[0]) + (64 << 10), free);
      EXPECT_EQ(test::descriptors_of_gpu_memory(), 0u);
      EXPECT_THAT(log.text(), AllOf(HasSubstr(std::string("other processes reach its mailbox by ") + c.by),
                                    Not(HasSubstr("by way of host memory"))));
      if (c.refusal && p == 0) {
        EXPECT_THAT(log.text(), HasSubstr(c.refusal));
      }
      if (!c.refusal) {
        EXPECT_THAT(log.text(), Not(HasSubstr("cudaMalloc")));
      }
    });
  }
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

// Memory that another process's kernels may store to isn't given to anybody else.
TEST(CudaProcesses, MailboxesStayUntilTheOthersHaveLeft) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2, [](int p) {
    GpuJob job(2);
    const int gpu = job.devices[0];
    const auto barrier = [&] { job.host.barrier(); };
    const size_t before = test::free_memory(gpu);
    job.fill(100);
    job.all([&](int i) { return job.all_reduce(i, 100); });
    EXPECT_LT(test::free_memory(gpu), before - (4 << 20));
    barrier();
    job.destroy();  // all at once: nothing is left
    EXPECT_GE(test::free_memory(gpu) + (64 << 10), before);
    barrier();

    GpuJob late(2);
    const size_t after = test::free_memory(gpu);
    late.fill(100);
    late.all([&](int i) { return late.all_reduce(i, 100); });
    barrier();
    if (p == 0) late.destroy();
    barrier();
    if (p == 0) {
      EXPECT_LT(test::free_memory(gpu), after - (4 << 20));
    } else {
      late.destroy();
    }
    EXPECT_EQ(p == 1, test::free_memory(gpu) + (64 << 10) >= after);
  });
}

}  // namespace
}  // namespace muster
