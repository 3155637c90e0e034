// Collectives that copy engines run, by NCCL's interface: CTA policy zero and symmetric windows, in processes
// of some ranks each. The simulator's trace says which kernels were launched.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/math.h"
#include "cuda/gpus.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "muster/bytes_sent.h"
#include "muster/muster.h"
#include "nccl.h"
#include "nccl/comm_handle.h"
#include "support/outcome.h"
#include "support/processes.h"

namespace muster {
namespace {

using test::run_processes;
using test::Variable;
using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

// Kernels that were launched while `f` ran, but for those that look whether GPUs reach each other.
int launches_in(const std::function<void()>& f) {
  testing::internal::CaptureStderr();
  f();
  std::istringstream lines(testing::internal::GetCapturedStderr());
  int launches = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.find(": launch of ") != std::string::npos)
      launches += line.find("store_proofs") == std::string::npos;
    else
      fprintf(stderr, "%s\n", line.c_str());
  return launches;
}

// The log of this process; before its first communicator.
class LogFile {
 public:
  LogFile() : file_(std::filesystem::temp_directory_path() / ("muster_copies_log." + std::to_string(getpid()))) {
    setenv("NCCL_DEBUG_FILE", file_.c_str(), 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "REG,TUNING", 1);
  }
  ~LogFile() { std::filesystem::remove(file_); }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(file_).rdbuf();
    return all.str();
  }

 private:
  std::filesystem::path file_;
};

struct Wish {
  int here = 1;                        // ranks of each process
  int policy = NCCL_CTA_POLICY_ZERO;
  int flags = NCCL_WIN_COLL_SYMMETRIC;
  bool registers = true;
};

// In each process: its ranks of one communicator, each with a send buffer and a window in which it receives.
struct CopyJob {
  explicit CopyJob(const Wish& wish)
      : host(Communicator::from_environment()), here(wish.here), size(host.size() * here), windows(static_cast<size_t>(here)) {
    ncclUniqueId id{};
    if (host.rank() == 0) {
      EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    }
    host.broadcast(&id, &id, sizeof id, DataType::uint8, 0);
    comms.resize(static_cast<size_t>(here));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = wish.policy;
    group([&](int i) {
      const int device = rank(i) % cuda::devices().count;
      EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
      streams.push_back(std::make_unique<cuda::Stream>(device));
      in.emplace_back(device, kBytes);
      out.emplace_back(device, kBytes + NCCL_WIN_REQUIRED_ALIGNMENT);
      return ncclCommInitRankConfig(&comm(i), size, id, rank(i), &config);
    });
    if (!wish.registers) return;
    group([&](int i) {
      return ncclCommWindowRegister(comm(i), base(i), kBytes, &windows[static_cast<size_t>(i)], wish.flags);
    });
  }
  ~CopyJob() {
    for (int i = 0; i < here; ++i) {
      if (!comm(i)) continue;
      if (windows[static_cast<size_t>(i)]) {
        EXPECT_EQ(ncclCommWindowDeregister(comm(i), windows[static_cast<size_t>(i)]), ncclSuccess);
      }
      EXPECT_EQ(ncclCommDestroy(comm(i)), ncclSuccess);
    }
  }

  int rank(int i) const { return host.rank() * here + i; }
  ncclComm_t& comm(int i) { return comms[static_cast<size_t>(i)]; }
  cudaStream_t stream(int i) const { return streams[static_cast<size_t>(i)]->handle(); }
  float* input(int i) const { return reinterpret_cast<float*>(in[static_cast<size_t>(i)].data()); }
  std::byte* base(int i) const {
    auto* const p = out[static_cast<size_t>(i)].data();
    return p + (align_up(reinterpret_cast<uintptr_t>(p), NCCL_WIN_REQUIRED_ALIGNMENT) - reinterpret_cast<uintptr_t>(p));
  }
  float* output(int i) const { return reinterpret_cast<float*>(base(i)) + kGuard; }

  void group(const std::function<ncclResult_t(int)>& call) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int i = 0; i < here; ++i) ASSERT_EQ(call(i), ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  }
  void all(const std::function<ncclResult_t(int)>& call) {
    group(call);
    for (auto& s : streams) s->synchronize();
  }
  static float value(int r, size_t k, int turn) {
    return static_cast<float>((r * 31 + turn * 7 + static_cast<int>(k % 1009)) % 97);
  }
  std::vector<float> sent(int r, size_t n, int turn) const {
    std::vector<float> v(n);
    for (size_t k = 0; k < n; ++k) v[k] = value(r, k, turn);
    return v;
  }
  void write(int i, const float* at, const std::vector<float>& v) {
    auto& memory = reinterpret_cast<const std::byte*>(at) >= out[static_cast<size_t>(i)].data() &&
                           reinterpret_cast<const std::byte*>(at) < out[static_cast<size_t>(i)].data() + kBytes + NCCL_WIN_REQUIRED_ALIGNMENT
                       ? out[static_cast<size_t>(i)]
                       : in[static_cast<size_t>(i)];
    memory.write(static_cast<size_t>(reinterpret_cast<const std::byte*>(at) - memory.data()), v.data(), 4 * v.size());
  }
  // Its ranks' results of n elements have the poison's guards at both ends, which this one looks at, too.
  void poison(int i) { write(i, output(i) - kGuard, std::vector<float>(kBytes / 4, kPoison)); }
  void expect(int i, const std::vector<float>& want, const char* what) {
    std::vector<float> got(want.size() + 2 * kGuard);
    out[static_cast<size_t>(i)].read(static_cast<size_t>(base(i) - out[static_cast<size_t>(i)].data()), got.data(), 4 * got.size());
    for (size_t k = 0; k < kGuard; ++k) {
      ASSERT_EQ(got[k], kPoison) << what << ", rank " << rank(i) << ", before the result";
      ASSERT_EQ(got[kGuard + want.size() + k], kPoison) << what << ", rank " << rank(i) << ", behind the result";
    }
    for (size_t k = 0; k < want.size(); ++k) ASSERT_EQ(got[kGuard + k], want[k]) << what << ", rank " << rank(i) << " element " << k;
  }
  std::vector<float> gathered(size_t n, int turn) const {
    std::vector<float> want;
    for (int r = 0; r < size; ++r)
      for (const float v : sent(r, n, turn)) want.push_back(v);
    return want;
  }
  std::vector<float> exchanged(int i, size_t n, int turn) const {
    std::vector<float> want;
    for (int r = 0; r < size; ++r)
      for (size_t k = 0; k < n; ++k) want.push_back(value(r, static_cast<size_t>(rank(i)) * n + k, turn));
    return want;
  }

  // Other data each time.
  void expect_all_gather(size_t n, bool in_place = false) {
    const int turn = ++turns;
    host.barrier();
    const auto from = [&](int i) { return in_place ? output(i) + static_cast<size_t>(rank(i)) * n : input(i); };
    for (int i = 0; i < here; ++i) {
      poison(i);
      write(i, from(i), sent(rank(i), n, turn));
    }
    host.barrier();  // nobody poisons what has come
    all([&](int i) { return ncclAllGather(from(i), output(i), n, ncclFloat, comm(i), stream(i)); });
    for (int i = 0; i < here; ++i) expect(i, gathered(n, turn), "all-gather");
  }
  void expect_all_to_all(size_t n, bool in_place = false) {
    const int turn = ++turns;
    host.barrier();
    const auto from = [&](int i) { return in_place ? output(i) : input(i); };
    for (int i = 0; i < here; ++i) {
      poison(i);
      write(i, from(i), sent(rank(i), n * static_cast<size_t>(size), turn));
    }
    host.barrier();
    all([&](int i) { return ncclAlltoAll(from(i), output(i), n, ncclFloat, comm(i), stream(i)); });
    for (int i = 0; i < here; ++i) expect(i, exchanged(i, n, turn), "all-to-all");
  }
  void expect_all_reduce(size_t n) {
    const int turn = ++turns;
    host.barrier();
    std::vector<float> want(n);
    for (int r = 0; r < size; ++r)
      for (size_t k = 0; k < n; ++k) want[k] += value(r, k, turn);
    for (int i = 0; i < here; ++i) {
      poison(i);
      write(i, input(i), sent(rank(i), n, turn));
    }
    all([&](int i) { return ncclAllReduce(input(i), output(i), n, ncclFloat, ncclSum, comm(i), stream(i)); });
    for (int i = 0; i < here; ++i) expect(i, want, "all-reduce");
  }
  ncclResult_t all_gather(int i, size_t n) { return ncclAllGather(input(i), output(i), n, ncclFloat, comm(i), stream(i)); }
  // Of local rank 0.
  std::string await_error() {
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) {
      EXPECT_EQ(ncclCommGetAsyncError(comm(0), &state), ncclSuccess);
      std::this_thread::sleep_for(2ms);
    }
    EXPECT_NE(all_gather(0, 1), ncclSuccess);
    return ncclGetLastError(comm(0));
  }
  void abort() {
    for (ncclComm_t& c : comms) {
      EXPECT_EQ(ncclCommAbort(c), ncclSuccess);
      c = nullptr;
    }
  }

  static constexpr size_t kGuard = 300, kMost = 20'000, kBytes = 4 * (4 * kMost + 2 * kGuard);
  static constexpr float kPoison = -1;
  Communicator host;  // of the processes
  const int here, size;
  int turns = 0;
  std::vector<ncclComm_t> comms;
  std::vector<std::unique_ptr<cuda::Stream>> streams;
  std::vector<cuda::DeviceMemory> in, out;
  std::vector<ncclWindow_t> windows;
};

class CudaCopies : public testing::Test {
  const Variable trace_{"CUDASIM_TRACE", "1"};  // which the processes see, too
};

constexpr size_t kCounts[] = {1, 1001, CopyJob::kMost};

// Processes, and ranks of each.
constexpr std::pair<int, int> kJobs[] = {{1, 4}, {1, 1}, {2, 1}, {3, 1}, {2, 2}};

TEST_F(CudaCopies, NoKernelRuns) {
  MUSTER_NEEDS_GPUS(2);
  for (const auto& [processes, here] : kJobs) {
    SCOPED_TRACE(testing::Message() << processes << " processes of " << here << " ranks");
    run_processes(processes, [here = here](int) {
      CopyJob job({.here = here});
      EXPECT_EQ(launches_in([&] {
                  for (const size_t n : kCounts)
                    for (const bool in_place : {false, true}) {
                      job.expect_all_gather(n, in_place);
                      job.expect_all_to_all(n, in_place);
                    }
                }),
                0);
      // What reduces is for kernels, and what copy engines do goes on behind it.
      EXPECT_GE(launches_in([&] { job.expect_all_reduce(1001); }), job.size > 1 ? here : 0);
      EXPECT_EQ(launches_in([&] { job.expect_all_gather(1001); }), 0);
    });
  }
}

TEST_F(CudaCopies, WhatIsCopiedToPeersCountsAsSent) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2, [](int) {
    CopyJob job({.here = 2});
    const auto sent_by = [&](auto call) {
      const Communicator& c = nccl::require_comm(job.comm(0)).communicator;
      const BytesSent before = bytes_sent(c);
      call();
      const BytesSent sent = bytes_sent(c) - before;
      EXPECT_EQ(sent.total(), sent.gpu);
      return sent.gpu;
    };
    for (const bool in_place : {false, true}) {
      EXPECT_EQ(sent_by([&] { job.expect_all_gather(1001, in_place); }), 3u * 4004);
      EXPECT_EQ(sent_by([&] { job.expect_all_to_all(1001, in_place); }), 3u * 4004);
    }
  });
}

// As NCCL wants windows to be: between processes it isn't memory of cudaMalloc.
TEST_F(CudaCopies, AWindowMayBeMemoryOfNcclMemAlloc) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2, [](int) {
    constexpr size_t kCount = 5001, kBytes = 2 * kCount * sizeof(float);
    CopyJob job({.registers = false});
    void* memory = nullptr;
    ncclWindow_t window = nullptr;
    ASSERT_EQ(ncclMemAlloc(&memory, kBytes), ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_EQ(cudaMemset(memory, 0xff, kBytes), cudaSuccess);
    ASSERT_EQ(ncclCommWindowRegister(job.comm(0), memory, kBytes, &window, NCCL_WIN_COLL_SYMMETRIC), ncclSuccess)
        << ncclGetLastError(job.comm(0));
    job.write(0, job.input(0), job.sent(job.rank(0), kCount, 1));
    job.host.barrier();
    EXPECT_EQ(launches_in([&] {
                job.all([&](int i) { return ncclAllGather(job.input(i), memory, kCount, ncclFloat, job.comm(i), job.stream(i)); });
              }),
              0);
    std::vector<float> got(2 * kCount);
    ASSERT_EQ(cudaMemcpy(got.data(), memory, kBytes, cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(got, job.gathered(kCount, 1));
    EXPECT_EQ(ncclCommWindowDeregister(job.comm(0), window), ncclSuccess);
    job.host.barrier();
    EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  });
}

TEST_F(CudaCopies, KernelsRunWhereCopyEnginesCannotAndTheLogSaysWhy) {
  MUSTER_NEEDS_GPUS(2);
  struct Case {
    Wish wish;
    const char* variable;  // "" for none
    const char* value;
    const char* reason;
  };
  const Case cases[] = {
      {{.here = 2, .registers = false}, "", "", "its receive buffer is in no window of ncclCommWindowRegister"},
      {{.here = 2, .flags = NCCL_WIN_DEFAULT}, "", "", "window 0: it isn't registered with NCCL_WIN_COLL_SYMMETRIC"},
      {{.here = 2}, "NCCL_P2P_DISABLE", "1", "not every GPU reaches every other one's memory"},
      {{.here = 2}, "CUDASIM_P2P_FAULT", "drop", "not every GPU reaches every other one's memory"},
      {{.here = 2}, "", "", ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.reason);
    const Variable set(*c.variable ? c.variable : "MUSTER_COPIES_TEST_UNUSED", c.value);
    run_processes(2, [&](int) {
      const LogFile log;
      CopyJob job(c.wish);
      const int launches = launches_in([&] {
        job.expect_all_gather(1001);
        job.expect_all_to_all(1001);
      });
      if (*c.reason) {
        EXPECT_GT(launches, 0);
        EXPECT_THAT(log.text(), HasSubstr("runs by kernels though the CTA policy is zero: "));
        EXPECT_THAT(log.text(), HasSubstr(c.reason));
      } else {
        EXPECT_EQ(launches, 0);
        EXPECT_THAT(log.text(), HasSubstr("window 0 is GPU memory, and copy engines copy to it"));
        EXPECT_THAT(log.text(), Not(HasSubstr("runs by kernels")));
      }
    });
  }
  run_processes(2, [](int p) {  // ranks that differ
    const LogFile log;
    CopyJob job({.policy = p == 0 ? NCCL_CTA_POLICY_ZERO : NCCL_CTA_POLICY_DEFAULT});
    EXPECT_GT(launches_in([&] { job.expect_all_gather(1001); }), 0);
    EXPECT_THAT(log.text(), HasSubstr("the CTA policy of rank 1 (host "));
  });
}

TEST_F(CudaCopies, TheOptionGoesBeforeTheConfiguration) {
  MUSTER_NEEDS_GPUS(2);
  for (const char* zero : {"ZERO", "zero", "2", "3", "EFFICIENCY|ZERO"}) {
    const Variable option("NCCL_CTA_POLICY", zero);
    run_processes(2, [](int) {
      CopyJob job({.policy = NCCL_CTA_POLICY_DEFAULT});
      EXPECT_EQ(launches_in([&] { job.expect_all_gather(100); }), 0);
    });
  }
  const Variable option("NCCL_CTA_POLICY", "DEFAULT");
  run_processes(2, [](int) {
    CopyJob job({});
    EXPECT_GT(launches_in([&] { job.expect_all_gather(100); }), 0);
  });
  const Variable wrong("NCCL_CTA_POLICY", "none");
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_NE(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("NCCL_CTA_POLICY='none': DEFAULT, EFFICIENCY or ZERO is wanted"));
}

TEST_F(CudaCopies, CapturedCallsAreReplayedBesideOthers) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2, [](int) {
    CopyJob job({.here = 2});
    constexpr size_t kCount = 501;
    job.expect_all_gather(kCount);
    std::vector<cudaGraphExec_t> runs(2);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaStreamBeginCapture(job.stream(i), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    job.group([&](int i) { return job.all_gather(i, kCount); });
    for (int i = 0; i < 2; ++i) {
      cudaGraph_t graph = nullptr;
      ASSERT_EQ(cudaStreamEndCapture(job.stream(i), &graph), cudaSuccess);
      ASSERT_EQ(cudaGraphInstantiate(&runs[static_cast<size_t>(i)], graph, 0), cudaSuccess);
      cudaGraphDestroy(graph);
    }
    for (int turn = 100; turn < 103; ++turn) {
      job.host.barrier();
      for (int i = 0; i < 2; ++i) {
        job.poison(i);
        job.write(i, job.input(i), job.sent(job.rank(i), kCount, turn));
      }
      job.host.barrier();
      for (int again = 0; again < 3; ++again)
        for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(runs[static_cast<size_t>(i)], job.stream(i)), cudaSuccess);
      for (auto& s : job.streams) s->synchronize();
      for (int i = 0; i < 2; ++i) job.expect(i, job.gathered(kCount, turn), "replayed all-gather");
      job.expect_all_to_all(77);
    }
    for (cudaGraphExec_t run : runs) cudaGraphExecDestroy(run);
  });
}

TEST_F(CudaCopies, CallsOnSeveralStreamsComeInTheirOrder) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2, [](int) {
    CopyJob job({});
    constexpr size_t kCount = 5000;
    const int device = job.streams[0]->device();
    cuda::Stream other(device);
    job.poison(0);
    job.write(0, job.input(0), job.sent(job.rank(0), kCount * 2, 1));
    job.host.barrier();
    // The second call sends what the first one brought, and its result overwrites that.
    ASSERT_EQ(ncclAlltoAll(job.input(0), job.output(0), kCount, ncclFloat, job.comm(0), job.stream(0)), ncclSuccess);
    ASSERT_EQ(ncclAlltoAll(job.output(0), job.output(0), kCount, ncclFloat, job.comm(0), other.handle()), ncclSuccess);
    ASSERT_EQ(ncclAllReduce(job.output(0), job.output(0), kCount, ncclFloat, ncclSum, job.comm(0), job.stream(0)), ncclSuccess);
    ASSERT_EQ(ncclAllGather(job.output(0), job.output(0) + kCount, kCount, ncclFloat, job.comm(0), other.handle()), ncclSuccess);
    other.synchronize();
    std::vector<float> want(3 * kCount);
    for (size_t k = 0; k < kCount; ++k)
      want[k] = want[kCount + k] = want[2 * kCount + k] = CopyJob::value(0, k, 1) + CopyJob::value(1, k, 1);
    job.expect(0, want, "four calls");
  });
}

// --- ends ---

TEST_F(CudaCopies, AbortEndsTheWaitForRanksThatDontCome) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(1, [](int) {
    CopyJob job({.here = 2});
    job.expect_all_gather(100);
    ASSERT_EQ(job.all_gather(0, 100), ncclSuccess);
    ASSERT_EQ(job.all_gather(0, 100), ncclSuccess);  // and what is behind it
    EXPECT_FALSE(job.streams[0]->idle());
    job.abort();
    job.streams[0]->synchronize();
  });
}

TEST_F(CudaCopies, AKilledProcessEndsTheWaitForIt) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2,
                [](int p) {
                  CopyJob job({});
                  job.expect_all_gather(100);
                  job.host.barrier();
                  if (p == 1) {
                    kill(getpid(), SIGKILL);
                    pause();
                  }
                  ASSERT_EQ(job.all_gather(0, 100), ncclSuccess);
                  job.streams[0]->synchronize();  // nobody asks for the error
                  EXPECT_THAT(job.await_error(), HasSubstr("rank 1 (host "));
                  job.abort();
                },
                {.killed = {1}});
}

TEST_F(CudaCopies, ADifferentCallOfAnotherRankBecomesTheError) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(1, [](int) {
    CopyJob job({.here = 2});
    job.expect_all_gather(100);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(job.all_gather(i, i == 1 ? 101 : 100), ncclSuccess);
    EXPECT_THAT(job.await_error(), HasSubstr("calls on GPU memory don't match"));
    job.abort();
    for (auto& s : job.streams) s->synchronize();
  });
}

// What is symmetric is the program's word; a rank that breaks it waits in a kernel, and the others in a meeting.
TEST_F(CudaCopies, ARankThatReceivesElsewhereThanTheOthersIsFound) {
  MUSTER_NEEDS_GPUS(2);
  for (const bool outside : {false, true}) {
    run_processes(1, [outside](int) {
      CopyJob job({.here = 2});
      job.expect_all_gather(100);
      float* const other_place = outside ? job.input(1) + 1000 : job.output(1) + 4;
      ASSERT_EQ(job.all_gather(0, 100), ncclSuccess);
      ASSERT_EQ(ncclAllGather(job.input(1), other_place, 100, ncclFloat, job.comm(1), job.stream(1)), ncclSuccess);
      EXPECT_THAT(job.await_error(), HasSubstr("match"));
      job.abort();
      for (auto& s : job.streams) s->synchronize();
    });
  }
}

}  // namespace
}  // namespace muster
