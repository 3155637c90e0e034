// The measurement that results are compared with.
#include "perf/roof.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace muster::perf {
namespace {

TEST(PerfRoof, CopiesAllPiecesAndNothingElse) {
  for (const bool past_caches : {false, true}) {
    std::vector<std::byte> from(1000), to(1002, std::byte{0x5a});
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7);
    CopyLoop loop{.from = from.data(), .to = to.data() + 1, .bytes = from.size(), .past_caches = past_caches};
    for (int i = 0; i < 3; ++i) loop.step(333);
    EXPECT_EQ(loop.at, 999u);
    EXPECT_EQ(to[1000], std::byte{0x5a}) << "not reached yet";
    loop.step(333);
    EXPECT_EQ(loop.at, 332u) << "round and round";
    EXPECT_EQ(std::memcmp(to.data() + 1, from.data(), from.size()), 0);
    loop.step(3000);
    EXPECT_EQ(loop.at, 332u) << "three times round";
    EXPECT_EQ(to.front(), std::byte{0x5a});
    EXPECT_EQ(to.back(), std::byte{0x5a});
  }
}

TEST(PerfRoof, EveryLoopTakesPart) {
  std::vector<std::byte> from(3 << 20, std::byte{1}), to(3 << 20);
  std::vector<CopyLoop> loops;
  for (size_t i = 0; i < 3; ++i)
    loops.push_back({.from = &from[i << 20], .to = &to[i << 20], .bytes = size_t{1} << 20});
  EXPECT_GT(copy_rate(loops, 1 << 16, 0.01), 0);
  for (const CopyLoop& l : loops) EXPECT_EQ(*l.to, std::byte{1});
}

}  // namespace
}  // namespace muster::perf
