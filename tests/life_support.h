// What the tests of a communicator's life share.
#pragma once

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "muster/muster.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster::test {

inline constexpr DataType kInt = DataType::int32, kLong = DataType::int64;

// All ranks call it, with equal `salt`: calls of every size come to the right result, element by element.
inline void expect_works(Communicator& c, int64_t salt = 0) {
  const int n = c.size(), me = c.rank();
  for (const size_t count : {size_t{1}, size_t{5}, size_t{700}, size_t{60'000}}) {
    constexpr int64_t kPoison = -77;
    std::vector<int64_t> in(count), out(count + 2, kPoison);
    for (size_t i = 0; i < count; ++i) in[i] = salt + me * 1000 + static_cast<int64_t>(i);
    c.all_reduce(in.data(), out.data() + 1, count, kLong, RedOp::sum);
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(out[i + 1], n * (salt + static_cast<int64_t>(i)) + 1000 * (n * (n - 1) / 2))
          << "rank " << me << " of " << n << ", element " << i;
    ASSERT_EQ(out.front(), kPoison);
    ASSERT_EQ(out.back(), kPoison);
  }
  std::vector<int> ranks(static_cast<size_t>(n), -1);
  c.all_gather(&me, ranks.data(), 1, kInt);
  for (int r = 0; r < n; ++r) ASSERT_EQ(ranks[static_cast<size_t>(r)], r);
}

// A number of each rank, by rank.
inline std::vector<int> gather(Communicator& c, int mine) {
  std::vector<int> all(static_cast<size_t>(c.size()), -1);
  c.all_gather(&mine, all.data(), 1, kInt);
  return all;
}

inline Result poll(const Communicator& c, std::string* text = nullptr) {
  for (;;) {
    if (const Result r = c.async_error(text); r != Result::in_progress) return r;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

inline Outcome poll_until_error(const Communicator& c) {
  std::string text;
  for (;;) {
    if (const Result r = c.async_error(&text); r != Result::success && r != Result::in_progress)
      return {r, text};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

inline int entries_of(const char* folder) {
  int n = 0;
  DIR* d = opendir(folder);
  while (d && readdir(d)) ++n;
  if (d) closedir(d);
  return n;
}
inline int open_descriptors() { return entries_of("/proc/self/fd"); }
inline int threads() { return entries_of("/proc/self/task"); }
inline long resident_pages() {
  long size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident;
}
inline int mappings() {
  std::ifstream maps("/proc/self/maps");
  int n = 0;
  for (std::string line; std::getline(maps, line);) ++n;
  return n;
}

// The test's body on threads, then on processes.
inline void on_threads_and_processes(int n, const std::function<void(Communicator&, int)>& body) {
  run_threads(n, body);
  run_process_ranks(n, body);
}

}  // namespace muster::test
