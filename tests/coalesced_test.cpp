// Lists of tensors in one collective, against a collective for each tensor.
#include "muster/coalesced.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "comm/state.h"
#include "muster/bytes_sent.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::outcome_of;
using testing::HasSubstr;
using Sizes = std::vector<size_t>;
constexpr float kPoison = -777;
constexpr size_t kGuard = 4;  // elements at both ends of each buffer

// Elements that a call may touch, between others.
class Guarded {
 public:
  explicit Guarded(size_t elements, float value = kPoison) : all_(elements + 2 * kGuard, kPoison) {
    std::fill_n(data(), elements, value);
  }
  float* data() { return all_.data() + kGuard; }
  size_t size() const { return all_.size() - 2 * kGuard; }
  bool is_whole() const {
    for (size_t i = 0; i < kGuard; ++i)
      if (all_[i] != kPoison || all_[all_.size() - 1 - i] != kPoison) return false;
    return true;
  }

 private:
  std::vector<float> all_;
};

// A rank's tensors, with values whose sums are rounded.
struct Tensors {
  std::vector<Guarded> buffers;
  Tensors(const Sizes& sizes, int rank) {
    for (size_t t = 0; t < sizes.size(); ++t) {
      buffers.emplace_back(sizes[t]);
      for (size_t i = 0; i < sizes[t]; ++i)
        buffers[t].data()[i] =
            static_cast<float>((i * 7 + t * 101 + static_cast<size_t>(rank) * 31) % 1013 + 1) / 7.0f;
    }
  }
  explicit Tensors(const Sizes& sizes) {
    for (const size_t size : sizes) buffers.emplace_back(size);
  }
  std::vector<void*> pointers() {
    std::vector<void*> all;
    for (Guarded& b : buffers) all.push_back(b.size() > 0 ? b.data() : nullptr);
    return all;
  }
  std::vector<const void*> sources() {
    const std::vector<void*> all = pointers();
    return {all.begin(), all.end()};
  }
};

void expect_same(Tensors& got, Tensors& want, const char* what) {
  for (size_t t = 0; t < want.buffers.size(); ++t) {
    EXPECT_TRUE(got.buffers[t].is_whole()) << what << ", tensor " << t;
    for (size_t i = 0; i < want.buffers[t].size(); ++i)
      ASSERT_EQ(got.buffers[t].data()[i], want.buffers[t].data()[i])
          << what << ", tensor " << t << ", element " << i;
  }
}

// What an all-reduce of each tensor gives, bit for bit, and each rank's shards of it.
void check_sums(Communicator& c, int rank, const Sizes& sizes, size_t alignment) {
  const CoalescedLayout layout(sizes, c.size(), alignment);
  Tensors want(sizes, rank), all(sizes, rank), from(sizes, rank), before(sizes, rank), gathered(sizes);
  for (Guarded& b : want.buffers) c.all_reduce(b.data(), b.data(), b.size(), DataType::float32, RedOp::sum);

  all_reduce(c, layout, all.pointers(), DataType::float32, RedOp::sum);
  expect_same(all, want, "all_reduce");

  Guarded shard(layout.shard());
  reduce_scatter(c, layout, from.sources(), shard.data(), DataType::float32, RedOp::sum);
  EXPECT_TRUE(shard.is_whole());
  expect_same(from, before, "what reduce_scatter reads");
  for (size_t t = 0; t < sizes.size(); ++t) {
    const zero::Partition& p = layout.partition(t);
    float* const mine = shard.data() + layout.shard_begin(t);
    for (size_t i = 0; i < p.shard(); ++i) {
      const bool padding = i >= p.end(rank) - p.begin(rank);
      ASSERT_EQ(mine[i], padding ? 0 : want.buffers[t].data()[p.begin(rank) + i])
          << "shard of tensor " << t << ", element " << i;
      if (padding) mine[i] = kPoison;  // goes nowhere
    }
  }

  all_gather(c, layout, shard.data(), gathered.pointers(), DataType::float32);
  expect_same(gathered, want, "all_gather");
}

TEST(Coalesced, LikeACollectiveForEachTensor) {
  const test::Variable reproducible("MUSTER_REPRODUCIBLE", "1");
  for (const int n : {1, 2, 3, 4})
    test::run_threads(n, [](Communicator& c, int rank) {
      for (const size_t alignment : {1, 8})
        for (const Sizes& sizes :
             {Sizes{}, Sizes{0}, Sizes{0, 0, 0}, Sizes{1}, Sizes{1, 0, 3, 7, 1003, 0}, Sizes{64, 5, 258, 1}})
          check_sums(c, rank, sizes, alignment);
    });
}
TEST(Coalesced, BetweenProcesses) {
  test::run_process_ranks(2, [](Communicator& c, int rank) {
    check_sums(c, rank, {5, 0, 1, 333}, 4);  // two ranks' sums have one order
  });
}

TEST(Coalesced, ShardsAreArithmetic) {
  const CoalescedLayout layout(Sizes{10, 0, 1, 8}, 4, 2);
  EXPECT_EQ(layout.shard(), 4u + 0 + 2 + 2);
  EXPECT_EQ(layout.padded(), 32u);
  EXPECT_EQ(layout.shard_begin(1), 4u);
  EXPECT_EQ(layout.shard_begin(2), 4u);
  EXPECT_EQ(layout.shard_begin(3), 6u);
  EXPECT_EQ(layout.partition(0).end(2), 10u);
  EXPECT_EQ(layout.partition(0).padding(2), 2u);
  EXPECT_EQ(layout.partition(0).padding(3), 4u);
  EXPECT_EQ(CoalescedLayout({}, 3).shard(), 0u);
}

TEST(Coalesced, OneCollectiveForAllTensors) {
  const test::Variable forced("MUSTER_ALGO", "ring"), slots("MUSTER_WINDOWS", "0");
  test::run_threads(3, [](Communicator& c, int rank) {
    const Sizes sizes(20, 96);
    const CoalescedLayout layout(sizes, 3);
    Tensors tensors(sizes, rank);
    std::vector<float> shard(layout.shard());
    const auto check = [&](uint64_t passes, const std::function<void()>& call) {
      const uint64_t calls = c.impl()->sequence, sent = bytes_sent(c).total();
      call();
      EXPECT_EQ(c.impl()->sequence - calls, 1u);
      EXPECT_EQ(bytes_sent(c).total() - sent,
                passes * 2 * 20 * 32 * sizeof(float));  // (N-1) shards of 20 times 32 elements
    };
    check(2, [&] { all_reduce(c, layout, tensors.pointers(), DataType::float32, RedOp::sum); });
    check(1,
          [&] { reduce_scatter(c, layout, tensors.sources(), shard.data(), DataType::float32, RedOp::sum); });
    check(1, [&] { all_gather(c, layout, shard.data(), tensors.pointers(), DataType::float32); });
  });
}

TEST(Coalesced, WrongArgumentsAreSaid) {
  EXPECT_THAT(outcome_of([] { CoalescedLayout({}, 0); }).text, HasSubstr("0 ranks"));
  const size_t half = std::numeric_limits<size_t>::max() / 2;
  EXPECT_THAT(outcome_of([&] {
                CoalescedLayout(Sizes{half, half, half}, 1);
              }).text,
              HasSubstr("more elements than an address"));
  test::run_threads(1, [](Communicator& c, int) {
    Tensors tensors({3, 2}, 0);
    const CoalescedLayout layout(Sizes{3, 2}, 1);
    const auto text_of = [&](const CoalescedLayout& given, std::vector<void*> pointers,
                             DataType type = DataType::float32) {
      const test::Outcome o = outcome_of([&] { all_reduce(c, given, pointers, type, RedOp::sum); });
      EXPECT_EQ(o.code, Result::invalid_argument);
      return o.text;
    };
    EXPECT_THAT(text_of(CoalescedLayout(Sizes{3}, 1), tensors.pointers()), HasSubstr("2 tensors"));
    EXPECT_THAT(text_of(CoalescedLayout(Sizes{3, 2}, 2), tensors.pointers()), HasSubstr("for 2 ranks"));
    EXPECT_THAT(text_of(layout, {tensors.pointers()[0], nullptr}), HasSubstr("(2 elements) is null"));
    EXPECT_THAT(text_of(layout, tensors.pointers(), static_cast<DataType>(99)), HasSubstr("type 99"));
    EXPECT_THAT(text_of(CoalescedLayout(Sizes{3, 2}, 1, size_t{1} << 62), tensors.pointers()),
                HasSubstr("more than an address counts"));
    EXPECT_EQ(outcome_of([&] {
                reduce_scatter(c, layout, tensors.sources(), nullptr, DataType::float32, RedOp::sum);
              }).code,
              Result::invalid_argument);
    group_start();
    EXPECT_EQ(
        outcome_of([&] { all_reduce(c, layout, tensors.pointers(), DataType::float32, RedOp::sum); }).code,
        Result::invalid_usage);
    group_end();
  });
}

}  // namespace
}  // namespace muster
