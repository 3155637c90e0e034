// GPUs of several hosts, emulated with NCCL_HOSTID: messages between those go by the network.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/gpu_job.h"
#include "muster.h"
#include "nccl.h"
#include "support/needs_network.h"
#include "support/outcome.h"
#include "support/processes.h"

namespace muster {
namespace {

using test::GpuJob;
using test::run_processes;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;

// A process each, on the host that `host_of` says.
void on_hosts(const std::vector<int>& host_of, const std::function<void(int process)>& fn,
              const test::ProcessExpectations& expected = {}) {
  run_processes(
      static_cast<int>(host_of.size()),
      [&](int process) {
        const Variable host("NCCL_HOSTID", "host" + std::to_string(host_of[static_cast<size_t>(process)]));
        fn(process);
      },
      expected);
}

// What GpuJob::expect_calls leaves out.
void expect_more_calls(GpuJob& job) {
  const auto n = static_cast<size_t>(job.size);
  for (const size_t count : {size_t{1}, size_t{777}, size_t{9001}}) {
    SCOPED_TRACE(testing::Message() << count << " elements");
    const int root = job.size - 1;
    job.fill(count * n);
    job.all([&](int i) {
      return ncclReduce(job.input(i), job.output(i), count, ncclFloat, ncclSum, root, job.comm(i),
                        job.stream(i));
    });
    for (int i = 0; i < job.here; ++i) {
      const auto got = job.result(i, count + 1);
      for (size_t k = 0; k < count; ++k)
        ASSERT_EQ(got[k], job.rank(i) == root ? job.sum(k) : -1.f) << "reduce, rank " << job.rank(i);
    }
    job.fill(count * n);
    job.all([&](int i) {
      return ncclAlltoAll(job.input(i), job.output(i), count, ncclFloat, job.comm(i), job.stream(i));
    });
    for (int i = 0; i < job.here; ++i) {
      const auto got = job.result(i, count * n);
      for (size_t k = 0; k < got.size(); ++k)
        ASSERT_EQ(got[k], GpuJob::value(static_cast<int>(k / count),
                                        static_cast<size_t>(job.rank(i)) * count + k % count))
            << "all-to-all, rank " << job.rank(i) << " element " << k;
    }
  }
}

// Counts that differ from rank to rank, one of them 0.
void expect_uneven_calls(GpuJob& job) {
  const auto n = static_cast<size_t>(job.size);
  std::vector<size_t> counts(n), displs(n);
  size_t all = 0;
  for (size_t r = 0; r < n; ++r) {
    counts[r] = r == 1 ? 0 : 500 * (r + 1);
    displs[r] = all;
    all += counts[r];
  }
  job.fill(all);
  job.all([&](int i) {
    return musterAllGatherV(job.input(i), counts[static_cast<size_t>(job.rank(i))], job.output(i),
                            counts.data(), displs.data(), ncclFloat, job.comm(i), job.stream(i));
  });
  for (int i = 0; i < job.here; ++i) {
    const auto got = job.result(i, all);
    for (size_t r = 0; r < n; ++r)
      for (size_t k = 0; k < counts[r]; ++k)
        ASSERT_EQ(got[displs[r] + k], GpuJob::value(static_cast<int>(r), k)) << "all-gather-v, from " << r;
  }
  job.fill(all);
  job.all([&](int i) {
    return musterReduceScatterV(job.input(i), job.output(i), counts.data(), ncclFloat, ncclSum, job.comm(i),
                                job.stream(i));
  });
  for (int i = 0; i < job.here; ++i) {
    const auto r = static_cast<size_t>(job.rank(i));
    const auto got = job.result(i, counts[r] + 1);
    for (size_t k = 0; k < counts[r]; ++k) ASSERT_EQ(got[k], job.sum(displs[r] + k)) << "reduce-scatter-v";
  }
}

void expect_all_calls(int ranks_here) {
  GpuJob job(ranks_here);
  job.expect_calls();
  expect_more_calls(job);
  expect_uneven_calls(job);
  job.destroy();
}

TEST(CudaHosts, AGpuEach) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  on_hosts({0, 1}, [](int) { expect_all_calls(1); });
}

TEST(CudaHosts, TwoGpusEach) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  on_hosts({0, 1}, [](int) { expect_all_calls(2); });
}

TEST(CudaHosts, TwoProcessesAndOne) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  on_hosts({0, 0, 1}, [](int) { expect_all_calls(1); });
}

// Of values whose sums are rounded.
TEST(CudaHosts, AllRanksHaveTheSameBits) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  on_hosts({0, 0, 1}, [](int p) {
    constexpr size_t kCount = 20'001;
    GpuJob job;
    std::vector<float> values(kCount);
    for (size_t k = 0; k < kCount; ++k)
      values[k] = 1.f / static_cast<float>(1 + k % 613 + 7 * static_cast<size_t>(p));
    job.in[0].write(0, values.data(), sizeof(float) * kCount);
    job.all([&](int i) { return job.all_reduce(i, kCount); });
    std::vector<float> got = job.result(0, kCount), first = got;
    job.host.broadcast(first.data(), first.data(), sizeof(float) * kCount, DataType::uint8, 0);
    EXPECT_EQ(std::memcmp(got.data(), first.data(), sizeof(float) * kCount), 0) << "rank " << p;
    for (size_t k = 0; k < kCount; ++k) {
      double sum = 0;
      for (size_t r = 0; r < 3; ++r) sum += 1. / static_cast<double>(1 + k % 613 + 7 * r);
      ASSERT_NEAR(got[k], sum, 1e-6) << "element " << k;
    }
    job.destroy();
  });
}

// On the network that is named, if it is here.
void expect_over(const char* network) {
  const Variable only("NCCL_NET", network);
  NEED_NETWORK();
  on_hosts({0, 0, 1}, [](int) {
    GpuJob job;
    job.expect_calls();
    job.destroy();
  });
}
TEST(CudaHosts, OverTcp) {
  MUSTER_NEEDS_GPUS(2);
  expect_over("Socket");
}
TEST(CudaHosts, OverUcx) {
  MUSTER_NEEDS_GPUS(2);
  expect_over("ucx");
}

TEST(CudaHosts, OverAPlugin) {
  MUSTER_NEEDS_GPUS(2);
  const Variable plugin("NCCL_NET_PLUGIN", NET_PLUGIN);
  on_hosts({0, 0, 1}, [](int) { expect_all_calls(1); });
}

// What is sent lies in GPU memory, which the plugin reads; only the sender need know. A plugin that doesn't
// read it, or nobody's wish, leaves it in pinned memory.
TEST(CudaHosts, APluginReadsWhatGpusSend) {
  MUSTER_NEEDS_GPUS(2);
  const Variable plugin("NCCL_NET_PLUGIN", NET_PLUGIN);
  for (const bool able : {true, false}) {
    const Variable reads("MUSTER_TEST_PLUGIN_GPU", able ? std::optional<std::string>("1") : std::nullopt);
    on_hosts({0, 0, 1}, [&](int p) {
      const bool wished = p != 1;
      const Variable wish("NCCL_NET_GDR_READ", wished ? "1" : "0");
      expect_all_calls(1);
      void* const library = dlopen(NET_PLUGIN, RTLD_NOW | RTLD_NOLOAD);
      ASSERT_TRUE(library);
      const auto ask = [&]<class T>(T (*)(), const char* what) {
        return reinterpret_cast<T (*)()>(dlsym(library, what))();
      };
      const long sends = ask(static_cast<long (*)()>(nullptr), "plugin_gpu_sends");
      if (able && wished)
        EXPECT_GT(sends, 10);
      else
        EXPECT_EQ(sends, 0);
      EXPECT_STREQ(ask(static_cast<const char* (*)()>(nullptr), "plugin_complaint"), "");
      const auto objects = [&] { return ask(static_cast<int (*)()>(nullptr), "plugin_objects"); };
      // A helper thread that was just looking after the network ends it, perhaps.
      for (int i = 0; i < 1000 && objects() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_EQ(objects(), 0);
    });
  }
}

// Ranks 0 and 2, of two hosts, in one communicator, rank 1 in another; both are used beside the first.
TEST(CudaHosts, OfASplitCommunicator) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  on_hosts({0, 0, 1}, [](int p) {
    GpuJob job;
    job.expect_all_reduce(1000);
    ncclComm_t part = nullptr;
    ASSERT_EQ(ncclCommSplit(job.comm(0), p % 2, p, &part, nullptr), ncclSuccess)
        << ncclGetLastError(job.comm(0));
    for (const size_t n : {size_t{3}, size_t{20'000}}) {
      job.fill(n);
      job.all([&](int i) {
        return ncclAllReduce(job.input(i), job.output(i), n, ncclFloat, ncclSum, part, job.stream(i));
      });
      const auto got = job.result(0, n);
      for (size_t k = 0; k < n; ++k)
        ASSERT_EQ(got[k], p == 1 ? GpuJob::value(1, k) : GpuJob::value(0, k) + GpuJob::value(2, k));
      job.expect_all_reduce(n);
    }
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
    job.destroy();
  });
}

// The rest of a job goes on without the rank that has died.
TEST(CudaHosts, OfASurvivingRest) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  on_hosts({0, 0, 1, 2},
           [](int p) {
             GpuJob job;
             job.expect_all_reduce(1000);
             job.host.barrier();
             if (p == 1) {
               job.host.destroy();  // the others have what it sent them
               kill(getpid(), SIGKILL);
               pause();
             }
             (void)job.all_reduce(0, 1000);  // fails where the death is known already
             job.streams[0]->synchronize();
             EXPECT_THAT(job.await_error(), HasSubstr("rank 1 (host "));
             ncclComm_t rest = nullptr;
             int dead = 1;
             ASSERT_EQ(ncclCommShrink(job.comm(0), &dead, 1, &rest, nullptr, NCCL_SHRINK_ABORT), ncclSuccess)
                 << ncclGetLastError(job.comm(0));
             job.fill(1000);
             job.all([&](int i) {
               return ncclAllReduce(job.input(i), job.output(i), 1000, ncclFloat, ncclSum, rest,
                                    job.stream(i));
             });
             const auto got = job.result(0, 1000);
             for (size_t k = 0; k < got.size(); ++k)
               ASSERT_EQ(got[k], GpuJob::value(0, k) + GpuJob::value(2, k) + GpuJob::value(3, k));
             EXPECT_EQ(ncclCommDestroy(rest), ncclSuccess);
             EXPECT_EQ(ncclCommAbort(job.comm(0)), ncclSuccess);
           },
           {.killed = {1}});
}

// Processes of one host that may not share memory have the network, too.
TEST(CudaHosts, RanksThatShallNotShareMemory) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  const Variable apart("NCCL_SHM_DISABLE", "1");
  run_processes(2, [](int) { expect_all_calls(1); });
}

// Each length up to some lines of 16 bytes, for the network carries short messages otherwise.
TEST(CudaHosts, ShortMessagesOfEveryLength) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  on_hosts({0, 1}, [](int p) {
    GpuJob job;
    for (size_t bytes = 0; bytes <= 80; ++bytes) {
      job.fill(32);
      job.all([&](int i) {
        return p == 0 ? ncclSend(job.input(i), bytes, ncclChar, 1, job.comm(i), job.stream(i))
                      : ncclRecv(job.output(i), bytes, ncclChar, 0, job.comm(i), job.stream(i));
      });
      if (p == 0) continue;
      std::vector<float> want(32, -1.f);
      std::vector<float> sent(32);
      for (size_t k = 0; k < 32; ++k) sent[k] = GpuJob::value(0, k);
      std::memcpy(want.data(), sent.data(), bytes);
      const auto got = job.result(0, 32);
      ASSERT_EQ(std::memcmp(got.data(), want.data(), sizeof(float) * 32), 0) << bytes << " bytes";
    }
    job.destroy();
  });
}

// A rank that runs ahead leaves its messages with the network, and may destroy its communicator.
TEST(CudaHosts, ASenderRunsAheadAndLeaves) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  on_hosts({0, 1}, [](int p) {
    GpuJob job;
    job.expect_all_reduce(100);
    job.fill(3000);
    if (p == 0) {
      job.all([&](int i) { return ncclSend(job.input(i), 3000, ncclFloat, 1, job.comm(i), job.stream(i)); });
      job.destroy();
      job.host.barrier();
      return;
    }
    job.host.barrier();  // the sender has gone
    job.all([&](int i) { return ncclRecv(job.output(i), 3000, ncclFloat, 0, job.comm(i), job.stream(i)); });
    const auto got = job.result(0, 3000);
    for (size_t k = 0; k < got.size(); ++k) ASSERT_EQ(got[k], GpuJob::value(0, k)) << "element " << k;
    job.destroy();
  });
}

TEST(CudaHosts, CapturedCallsAreReplayed) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  on_hosts({0, 1}, [](int) {
    constexpr size_t kCount = 30'000;
    GpuJob job;
    ASSERT_EQ(cudaStreamBeginCapture(job.stream(0), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ASSERT_EQ(job.all_reduce(0, kCount), ncclSuccess) << ncclGetLastError(job.comm(0));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(job.stream(0), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
    cudaGraphDestroy(graph);
    for (int turn = 0; turn < 3; ++turn) {
      job.fill(kCount);
      ASSERT_EQ(cudaGraphLaunch(replay, job.stream(0)), cudaSuccess);
      job.streams[0]->synchronize();
      const auto got = job.result(0, kCount);
      for (size_t k = 0; k < kCount; ++k)
        ASSERT_EQ(got[k], job.sum(k)) << "replay " << turn << " element " << k;
      job.expect_all_reduce(10);
    }
    cudaGraphExecDestroy(replay);
    job.destroy();
  });
}

// --- ends ---

TEST(CudaHosts, AKilledProcessEndsTheKernelsThatWaitForIt) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  on_hosts({0, 0, 1},
           [](int p) {
             GpuJob job;
             job.expect_all_reduce(100);
             if (p != 2) {
               ASSERT_EQ(job.all_reduce(0, 100), ncclSuccess);
             }
             job.host.barrier();
             if (p == 2) {
               job.host.destroy();  // the others have what it sent them
               kill(getpid(), SIGKILL);
               pause();
             }
             job.streams[0]->synchronize();  // nobody asks for the error
             EXPECT_THAT(job.await_error(), HasSubstr("rank 2 (host "));
             EXPECT_EQ(ncclCommAbort(job.comm(0)), ncclSuccess);
           },
           {.killed = {2}});
}

TEST(CudaHosts, AnAbortEndsTheKernelsOfOtherHosts) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  on_hosts({0, 1}, [](int p) {
    GpuJob job(2);
    job.expect_all_reduce(100);
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

TEST(CudaHosts, ARankThatIsTooLateIsNamed) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  const Variable limit("MUSTER_TIMEOUT", "0.3");
  on_hosts({0, 1}, [](int p) {
    GpuJob job;
    job.expect_all_reduce(100);
    if (p == 0) {
      ASSERT_EQ(job.all_reduce(0, 100), ncclSuccess);
      job.streams[0]->synchronize();
    }
    EXPECT_THAT(job.await_error(), AllOf(HasSubstr("rank 0 (host "), HasSubstr(" timed out after 0.3"),
                                         HasSubstr("waiting for rank 1 (host ")));
    EXPECT_EQ(ncclCommAbort(job.comm(0)), ncclSuccess);
  });
}

TEST(CudaHosts, OtherCallsAreNoticed) {
  MUSTER_NEEDS_GPUS(2);
  NEED_NETWORK();
  on_hosts({0, 1}, [](int p) {
    GpuJob job;
    job.expect_all_reduce(100);
    ASSERT_EQ(job.all_reduce(0, p == 0 ? 100 : 99), ncclSuccess);
    job.streams[0]->synchronize();
    EXPECT_THAT(job.await_error(), HasSubstr("don't match"));
    EXPECT_EQ(ncclCommAbort(job.comm(0)), ncclSuccess);
  });
}

}  // namespace
}  // namespace muster
