// Ranks in several processes, by NCCL's interface: each process has some of them, as devices of one thread.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
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

namespace muster::test {

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
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
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

}  // namespace muster::test
