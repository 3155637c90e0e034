// Ranks of one communicator made through the C interface, as threads or processes, and what calls came to.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "muster.h"
#include "nccl.h"
#include "support/ranks.h"

namespace muster::test {

#define ASSERT_NCCL(call) ASSERT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)
#define EXPECT_NCCL(call) EXPECT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)

// The call failed with `code`, and the explanation has `text`.
#define EXPECT_NCCL_FAILS(call, code, text)                             \
  do {                                                                  \
    EXPECT_EQ(call, code) << ncclGetLastError(nullptr);                 \
    EXPECT_THAT(ncclGetLastError(nullptr), ::testing::HasSubstr(text)); \
  } while (0)

// fn(communicator, rank) on n threads; the communicators are destroyed afterwards.
inline void run_nccl_threads(int n, const std::function<void(ncclComm_t, int rank)>& fn,
                             ncclConfig_t* config = nullptr) {
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      ASSERT_NCCL(ncclCommInitRankConfig(&comm, n, id, rank, config));
      fn(comm, rank);
      EXPECT_NCCL(ncclCommDestroy(comm));
    });
  for (std::thread& t : threads) t.join();
}

// The id of rank 0, to every rank of run_processes.
inline ncclUniqueId share_id() {
  Communicator c = Communicator::from_environment();
  ncclUniqueId id{};
  if (c.rank() == 0) {
    EXPECT_NCCL(ncclGetUniqueId(&id));
  }
  c.broadcast(&id, &id, sizeof id, DataType::uint8, 0);
  c.destroy();
  return id;
}

inline void run_nccl_processes(int n, const std::function<void(ncclComm_t, int rank)>& fn,
                               const ProcessExpectations& expected = {}) {
  run_processes(
      n,
      [&](int rank) {
        const ncclUniqueId id = share_id();
        ncclComm_t comm = nullptr;
        ASSERT_NCCL(ncclCommInitRank(&comm, n, id, rank));
        fn(comm, rank);
        EXPECT_NCCL(ncclCommDestroy(comm));
      },
      expected);
}

// All ranks in this thread.
class AllRanks {
 public:
  explicit AllRanks(int n) : comms_(static_cast<size_t>(n)) {
    EXPECT_NCCL(ncclCommInitAll(comms_.data(), n, nullptr));
  }
  ~AllRanks() {
    for (const ncclComm_t c : comms_) EXPECT_NCCL(ncclCommDestroy(c));
  }
  AllRanks(const AllRanks&) = delete;
  AllRanks& operator=(const AllRanks&) = delete;
  ncclComm_t operator[](int rank) const { return comms_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(comms_.size()); }

 private:
  std::vector<ncclComm_t> comms_;
};

// n elements between guards, filled with a byte that no result has.
template <class T>
class Guarded {
 public:
  explicit Guarded(size_t n) : n_(n), all_(n + 2 * kGuard) {
    std::memset(all_.data(), kPoison, all_.size() * sizeof(T));
  }
  T* data() { return all_.data() + kGuard; }
  T& operator[](size_t i) { return all_[kGuard + i]; }
  size_t size() const { return n_; }
  bool is_intact() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(all_.data());
    for (size_t i = 0; i < all_.size() * sizeof(T); ++i) {
      const size_t element = i / sizeof(T);
      if ((element < kGuard || element >= kGuard + n_) && bytes[i] != kPoison) return false;
    }
    return true;
  }
  bool is_untouched() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(all_.data());
    for (size_t i = 0; i < all_.size() * sizeof(T); ++i)
      if (bytes[i] != kPoison) return false;
    return true;
  }

 private:
  static constexpr size_t kGuard = 32;
  static constexpr unsigned char kPoison = 0xa5;
  size_t n_;
  std::vector<T> all_;
};

}  // namespace muster::test
