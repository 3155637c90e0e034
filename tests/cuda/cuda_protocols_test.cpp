// Protocols of collectives on GPU memory: which is chosen, by prices and by NCCL_PROTO, and that all give the
// same bits; and how many blocks ranks that share a GPU may have.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
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

constexpr size_t kFew = 100, kMany = 300'000, kGuard = 64;  // floats

// What this process plans, from now on; before its first communicator.
class PlanLog {
 public:
  PlanLog() : file_(std::filesystem::temp_directory_path() / ("muster_plans." + std::to_string(getpid()))) {
    setenv("NCCL_DEBUG_FILE", file_.c_str(), 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "TUNING", 1);
  }
  ~PlanLog() { std::filesystem::remove(file_); }
  // Of what was made since the last time.
  std::string news() {
    std::ifstream in(file_);
    in.seekg(read_);
    std::ostringstream all;
    all << in.rdbuf();
    read_ += static_cast<std::streamoff>(all.str().size());
    return all.str();
  }

 private:
  std::filesystem::path file_;
  std::streamoff read_ = 0;
};

// This process's rank of a communicator of all processes, on GPU `device`.
class GpuMember {
 public:
  GpuMember(Communicator& host, int device)
      : rank_(host.rank()), size_(host.size()), stream_(device), in_(device, kBytes), out_(device, kBytes) {
    ncclUniqueId id{};
    if (rank_ == 0) {
      EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    }
    host.broadcast(&id, &id, sizeof id, DataType::uint8, 0);
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    made_ = ncclCommInitRank(&comm_, size_, id, rank_);
  }
  ~GpuMember() {
    if (comm_) {
      EXPECT_EQ(ncclCommDestroy(comm_), ncclSuccess);
    }
  }
  GpuMember(const GpuMember&) = delete;
  GpuMember& operator=(const GpuMember&) = delete;

  ncclResult_t made() const { return made_; }
  ncclComm_t comm() const { return comm_; }
  int rank() const { return rank_; }
  // Such that sums depend on how they are rounded.
  static float value(int r, size_t i) {
    return static_cast<float>(r * 7 + 1) / static_cast<float>(i % 101 + 3);
  }

  ncclResult_t start(size_t n, ncclResult_t (*call)(const GpuMember&, size_t)) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = value(rank_, i);
    in_.write(0, values.data(), 4 * n);
    const std::vector<float> poison(n + 2 * kGuard, kPoison);
    out_.write(0, poison.data(), 4 * poison.size());
    return call(*this, n);
  }
  // What it leaves, when it is done; nothing may be written around it.
  std::vector<float> result(size_t n) {
    stream_.synchronize();
    std::vector<float> all(n + 2 * kGuard);
    out_.read(0, all.data(), 4 * all.size());
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(all[i], kPoison) << "before the result";
      EXPECT_EQ(all[kGuard + n + i], kPoison) << "behind the result";
    }
    return {all.begin() + kGuard, all.end() - kGuard};
  }
  std::vector<float> all_reduce(size_t n) {
    EXPECT_EQ(start(n, &sum), ncclSuccess) << ncclGetLastError(comm_);
    return result(n);
  }
  static ncclResult_t sum(const GpuMember& m, size_t n) {
    return ncclAllReduce(m.in(), m.out(), n, ncclFloat, ncclSum, m.comm_, m.stream_.handle());
  }
  static ncclResult_t broadcast(const GpuMember& m, size_t n) {
    return ncclBroadcast(m.in(), m.out(), n, ncclFloat, 0, m.comm_, m.stream_.handle());
  }
  static ncclResult_t pass_on(const GpuMember& m, size_t n) {
    ncclGroupStart();
    ncclSend(m.in(), n, ncclFloat, (m.rank_ + 1) % m.size_, m.comm_, m.stream_.handle());
    ncclRecv(m.out(), n, ncclFloat, (m.rank_ + m.size_ - 1) % m.size_, m.comm_, m.stream_.handle());
    return ncclGroupEnd();
  }
  void expect_sums(size_t n) {
    const std::vector<float> got = all_reduce(n);
    for (size_t i = 0; i < n; ++i) {
      double want = 0;
      for (int r = 0; r < size_; ++r) want += static_cast<double>(value(r, i));
      ASSERT_NEAR(got[i], want, 1e-5 * want) << "rank " << rank_ << " element " << i;
    }
  }
  void expect_passed_on(size_t n) {
    ASSERT_EQ(start(n, &pass_on), ncclSuccess) << ncclGetLastError(comm_);
    const std::vector<float> got = result(n);
    for (size_t i = 0; i < n; ++i)
      ASSERT_EQ(got[i], value((rank_ + size_ - 1) % size_, i)) << "element " << i;
  }

 private:
  static constexpr size_t kBytes = 4 * (kMany + 2 * kGuard);
  static constexpr float kPoison = -77.f;
  float* in() const { return reinterpret_cast<float*>(in_.data()); }
  float* out() const { return reinterpret_cast<float*>(out_.data()) + kGuard; }
  const int rank_, size_;
  cuda::Stream stream_;
  cuda::DeviceMemory in_, out_;
  ncclComm_t comm_ = nullptr;
  ncclResult_t made_ = ncclSuccess;
};

TEST(GpuProtocols, ShortCallsTakeLlAndLongOnesSimple) {
  MUSTER_NEEDS_GPUS(2);
  run_processes(2, [](int rank) {
    PlanLog log;
    Communicator host = Communicator::from_environment();
    GpuMember m(host, rank);
    m.expect_sums(kFew);
    EXPECT_THAT(log.news(), AllOf(HasSubstr("2 ranks on GPUs: "), HasSubstr("), LL, 1 channel"),
                                  HasSubstr("cheapest on GPUs (CPU interconnect): ")));
    m.expect_sums(kMany);
    EXPECT_THAT(log.news(), AllOf(HasSubstr("2 ranks on GPUs: "), HasSubstr("), simple, ")));
    m.expect_sums(kFew);
    EXPECT_THAT(log.news(), Not(HasSubstr("on GPUs")));
  });
}

TEST(GpuProtocols, ExplainSaysIt) {
  MUSTER_NEEDS_GPUS(2);
  const Variable explain("MUSTER_EXPLAIN", "1");
  run_processes(2, [](int rank) {
    PlanLog log;
    Communicator host = Communicator::from_environment();
    GpuMember m(host, rank);
    (void)log.news();
    m.expect_sums(kFew);
    const auto said = HasSubstr("), LL, 1 channel");
    if (rank == 0) {
      EXPECT_THAT(log.news(), AllOf(said, HasSubstr("; predicted ")));
    }
  });
}

// The bits are those of the other protocol, also where messages go by way of host memory.
TEST(GpuProtocols, NcclProtoIsHonouredAndBitsAreTheSame) {
  MUSTER_NEEDS_GPUS(2);
  const Variable ring("MUSTER_ALGO", "ring");
  for (const char* p2p : {"1", "0"}) {
    const Variable reach("CUDASIM_P2P", p2p);
    run_processes(3, [](int rank) {
      PlanLog log;
      Communicator host = Communicator::from_environment();
      std::vector<std::vector<float>> results;
      for (const char* protocol : {"LL", "simple", "^LL"}) {
        setenv("NCCL_PROTO", protocol, 1);
        const std::string name = protocol == std::string("LL") ? "), LL, " : "), simple, ";
        GpuMember m(host, rank % 2);
        for (const size_t n : {kFew, kMany}) {
          results.push_back(m.all_reduce(n));
          EXPECT_THAT(log.news(), AllOf(HasSubstr("on GPUs: ring ("), HasSubstr(name)))
              << n << " by " << protocol;
          m.expect_sums(n);
        }
      }
      for (size_t i = 2; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 2]) << i;
    });
  }
}

TEST(GpuProtocols, EachFunctionHasItsOwn) {
  MUSTER_NEEDS_GPUS(2);
  const Variable wish("NCCL_PROTO", "Simple;allreduce:LL");
  run_processes(2, [](int rank) {
    PlanLog log;
    Communicator host = Communicator::from_environment();
    GpuMember m(host, rank);
    m.expect_sums(kMany);
    EXPECT_THAT(log.news(), HasSubstr("), LL, "));
    ASSERT_EQ(m.start(kFew, &GpuMember::broadcast), ncclSuccess);
    for (size_t i = 0; const float got : m.result(kFew)) ASSERT_EQ(got, GpuMember::value(0, i++));
    EXPECT_THAT(log.news(), AllOf(HasSubstr("broadcast("), HasSubstr("), simple, ")));
  });
}

TEST(GpuProtocols, ThatCantBeHadAreRefused) {
  MUSTER_NEEDS_GPUS(2);
  {
    const Variable wish("NCCL_PROTO", "LL128");
    run_processes(2, [](int rank) {
      Communicator host = Communicator::from_environment();
      GpuMember m(host, rank);
      EXPECT_EQ(m.start(kFew, &GpuMember::sum), ncclInvalidUsage);
      EXPECT_THAT(ncclGetLastError(m.comm()),
                  AllOf(HasSubstr("NCCL_PROTO='LL128' leaves all_reduce on GPU memory no protocol"),
                        HasSubstr("LL128 needs lines to arrive whole, which only NVLink promises")));
    });
  }
  const Variable wrong("NCCL_PROTO", "LL64");
  run_processes(1, [](int) {
    ncclComm_t comm = nullptr;
    const int device = 0;
    EXPECT_EQ(ncclCommInitAll(&comm, 1, &device), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("NCCL_PROTO='LL64': 'LL64' is no protocol of NCCL's"));
  });
}

// --- tuner plugins ---

TEST(GpuTuner, ChoosesProtocolAlgorithmAndChannels) {
  MUSTER_NEEDS_GPUS(2);
  for (const char* version : {"2", "5"}) {
    const Variable plugin("NCCL_TUNER_PLUGIN",
                          TUNER_FOLDER "/libnccl-tuner-example_v" + std::string(version) + ".so");
    run_processes(2, [](int rank) {
      PlanLog log;
      Communicator host = Communicator::from_environment();
      GpuMember m(host, rank);
      size_t n = kMany;  // each call is planned anew
      for (const auto& [words, plan] : {std::pair{"ll", "on GPUs: ring ("},
                                        {"ll", "), LL, "},
                                        {"ring", "), simple, "},
                                        {"tree", "on GPUs: tree ("},
                                        {"ll,channels_3", "), LL, 3 channels, "}}) {
        setenv("MUSTER_TEST_TUNER", words, 1);
        m.expect_sums(--n);
        EXPECT_THAT(log.news(), AllOf(HasSubstr(plan), HasSubstr(": chosen by tuner plugin example")))
            << words;
      }
      setenv("MUSTER_TEST_TUNER", "channels_2", 1);
      m.expect_sums(--n);
      EXPECT_THAT(log.news(), HasSubstr(" 2 channels, "));
      setenv("MUSTER_TEST_TUNER", "", 1);
      m.expect_sums(--n);
      EXPECT_THAT(log.news(), AllOf(HasSubstr("on GPUs"), Not(HasSubstr(": chosen by"))));
    });
  }
}

// It can't have what options exclude, and ranks that are told different things make different calls.
TEST(GpuTuner, OptionsGoBeforeItAndRanksMustAgree) {
  MUSTER_NEEDS_GPUS(2);
  const Variable plugin("NCCL_TUNER_PLUGIN", TUNER_FOLDER "/libnccl-tuner-example_v5.so");
  {
    const Variable wish("MUSTER_TEST_TUNER", "ll"), only("NCCL_PROTO", "Simple");
    run_processes(2, [](int rank) {
      PlanLog log;
      Communicator host = Communicator::from_environment();
      GpuMember m(host, rank);
      m.expect_sums(kFew);
      EXPECT_THAT(log.news(), AllOf(HasSubstr("), simple, "), Not(HasSubstr("), LL, "))));
    });
  }
  run_processes(2, [](int rank) {
    Communicator host = Communicator::from_environment();
    GpuMember m(host, rank);
    m.expect_sums(kFew);
    setenv("MUSTER_TEST_TUNER", rank == 0 ? "ll" : "ring", 1);
    (void)m.start(kMany, &GpuMember::sum);
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) ASSERT_EQ(ncclCommGetAsyncError(m.comm(), &state), ncclSuccess);
    EXPECT_EQ(state, ncclInvalidUsage);
    EXPECT_NE(m.start(kFew, &GpuMember::sum), ncclSuccess);
    EXPECT_THAT(ncclGetLastError(m.comm()), HasSubstr("calls on GPU memory don't match"));
  });
}

// --- ranks that share a GPU ---

TEST(GpuBlocks, RanksOfOneGpuShareItsMultiprocessors) {
  MUSTER_NEEDS_GPUS(1);
  const Variable wish("MUSTER_CHANNELS", "4");
  for (const auto& [multiprocessors, channels] : {std::pair{"3", "), simple, 1 channel,"},
                                                  {"8", "), simple, 2 channels,"},
                                                  {"132", "), simple, 4 channels,"}}) {
    const Variable few("CUDASIM_SMS", multiprocessors);
    run_processes(3, [channels = channels](int) {
      PlanLog log;
      Communicator host = Communicator::from_environment();
      GpuMember m(host, 0);
      m.expect_sums(kMany);
      EXPECT_THAT(log.news(), HasSubstr(channels));
      m.expect_passed_on(kMany);
    });
  }
}

TEST(GpuBlocks, MoreRanksThanAGpuHoldsAreRefused) {
  MUSTER_NEEDS_GPUS(1);
  const Variable few("CUDASIM_SMS", "2");
  run_processes(3, [](int) {
    Communicator host = Communicator::from_environment();
    GpuMember m(host, 0);
    EXPECT_EQ(m.start(kFew, &GpuMember::sum), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(m.comm()), AllOf(HasSubstr("3 ranks share the GPU at 0000:"),
                                                  HasSubstr("which holds 2 blocks of 512 threads at once"),
                                                  HasSubstr("spread ranks over more GPUs")));
  });
}

}  // namespace
}  // namespace muster
