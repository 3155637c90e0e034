// What is chosen for GPUs: algorithm, protocol, channels.
#include "plan/gpu_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/math.h"
#include "comm/gpu_links.h"
#include "support/outcome.h"
#include "topology/machine.h"

namespace muster {
namespace {

using test::outcome_of;
using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kSlot = 64 << 10, kLl = 16 << 10;

GpuPlanInputs gpus(int ranks, Near near = Near::nvlink) {
  GpuPlanInputs in;
  in.plan.nranks = ranks;
  in.plan.lanes = in.plan.most_channels = 8;
  in.plan.cores = 8 * ranks;
  in.plan.slot_bytes = in.plan.message_bytes = kSlot;
  in.ll_bytes = kLl;
  in.links.spread = {ranks, 1, ranks};
  in.links.near = near;
  in.links.sm = 90;
  in.links.rings = in.links.exchange = near == Near::nvlink ? 370 : 10;
  in.links.switched = near == Near::nvlink;
  return in;
}

CallShape sum_of(uint64_t count) { return {Coll::all_reduce, DataType::float32, RedOp::sum, 0, count}; }

TEST(GpuChoice, FewBytesTakeLlManyTakeSimple) {
  for (const Near near : {Near::nvlink, Near::pcie, Near::cpu})
    for (const int ranks : {2, 4, 8, 48}) {
      const GpuPlanInputs in = gpus(ranks, near);
      bool was_simple = false;
      for (uint64_t count = 2; count <= uint64_t{1} << 30; count *= 2) {
        const GpuChoice g = choose_on_gpus(sum_of(count), in, {});
        const bool simple = g.protocol == Protocol::simple;
        EXPECT_TRUE(simple || !was_simple) << count << " elements, " << ranks << " ranks: by LL again";
        was_simple = simple;
        EXPECT_EQ(count == 2 && simple, false) << ranks;
      }
      EXPECT_TRUE(was_simple) << ranks;
    }
}

// What an algorithm for short data sends fits the protocol's messages, and channels the lanes.
TEST(GpuChoice, MessagesAndChannelsFit) {
  for (int c = 0; c < kColls; ++c) {
    const auto coll = static_cast<Coll>(c);
    if (coll == Coll::send_recv || is_uneven(coll)) continue;
    for (const int ranks : {2, 3, 8, 48, 100})
      for (uint64_t count = 1; count <= uint64_t{1} << 22; count = count * 5 / 2 + 1)
        for (const char* protocols : {"", "LL", "simple"}) {
          const GpuPlanInputs in = gpus(ranks);
          const CallShape call{coll, DataType::float32, RedOp::sum, 0, count};
          const GpuChoice g = choose_on_gpus(call, in, protocols);
          const size_t most = g.protocol == Protocol::ll ? kLl : kSlot;
          ASSERT_LE(g.choice.channels, 8);
          ASSERT_GE(g.choice.channels, 1);
          ASSERT_EQ(g.choice.tile_bytes, most);
          ASSERT_FALSE(g.choice.algorithm->windows);
          if (*protocols) {
            ASSERT_EQ(g.protocol, protocols == std::string("LL") ? Protocol::ll : Protocol::simple);
          }
          if (!g.choice.algorithm->whole) continue;
          const uint64_t bytes = 4 * count * (splits_count(coll) ? 1 : static_cast<uint64_t>(ranks));
          ASSERT_LE(bytes, most) << name_of(coll) << " " << g.choice.algorithm->name;
        }
  }
}

TEST(GpuChoice, ProtocolsAreAsAsked) {
  const GpuPlanInputs in = gpus(4);
  EXPECT_EQ(choose_on_gpus(sum_of(1 << 28), in, "LL").protocol, Protocol::ll);
  EXPECT_EQ(choose_on_gpus(sum_of(1 << 28), in, "LL,LL128").protocol, Protocol::ll);
  EXPECT_EQ(choose_on_gpus(sum_of(1), in, "Simple").protocol, Protocol::simple);
  EXPECT_EQ(choose_on_gpus(sum_of(1), in, "^ll,ll128").protocol, Protocol::simple);
  EXPECT_EQ(choose_on_gpus(sum_of(1), in, "^LL128").protocol, Protocol::ll);
  EXPECT_THAT(choose_on_gpus(sum_of(1), in, "^LL128").choice.reason, HasSubstr("; NCCL_PROTO=^LL128"));
  for (const char* none : {"LL128", "^LL,Simple"}) {
    const auto o = outcome_of([&] { choose_on_gpus(sum_of(1), in, none); });
    EXPECT_EQ(o.code, Result::invalid_usage);
    EXPECT_THAT(o.text, AllOf(HasSubstr(std::string("NCCL_PROTO='") + none +
                                        "' leaves all_reduce on GPU memory no protocol"),
                              HasSubstr("They have no LL128 in this version")));
  }
  EXPECT_EQ(choose_on_gpus(sum_of(1), gpus(1), "LL128").protocol, Protocol::simple)
      << "one rank sends nothing";
}

TEST(GpuChoice, OptionsAndTheCallGoBeforePrices) {
  GpuPlanInputs in = gpus(4);
  in.plan.algorithm = "ring";
  in.plan.forced_by = "NCCL_ALGO";
  for (const uint64_t count : {1, 1 << 20}) {
    const GpuChoice g = choose_on_gpus(sum_of(count), in, {});
    EXPECT_STREQ(g.choice.algorithm->name, "ring");
    EXPECT_THAT(g.choice.reason, HasSubstr("forced by NCCL_ALGO=ring"));
  }
  in.plan.algorithm.clear();
  in.plan.channels = 16;
  EXPECT_EQ(choose_on_gpus(sum_of(1 << 20), in, {}).choice.channels, 8);
  EXPECT_THAT(choose_on_gpus(sum_of(1 << 20), in, {}).choice.reason,
              HasSubstr("8 channels are the most of these GPUs, not 16"));
  in.plan.channels = 3;
  EXPECT_EQ(choose_on_gpus(sum_of(1 << 20), in, {}).choice.channels, 3);
  in.plan.channels = 0;
  CallShape call = sum_of(1 << 20);
  call.channels = 2;
  EXPECT_EQ(choose_on_gpus(call, in, {}).choice.channels, 2);
  in.plan.reproducible = true;
  for (const uint64_t count : {1, 1 << 10, 1 << 24})
    EXPECT_TRUE(choose_on_gpus(sum_of(count), in, {}).choice.algorithm->rank_order);
}

TEST(GpuLinks, OfGpusThatTheMachineDoesntKnowAreFar) {
  const topology::Cluster none = topology::cluster_of(topology::Machine());
  const std::vector<int> hosts = {0, 0};
  const std::vector<std::string> two = {"0000:10:00.0", "0000:11:00.0"}, same = {"0000:10:00.0", "0000:10:00.0"};
  const Links far = links_between(none, hosts, two);
  EXPECT_EQ(far.near, Near::cpu);
  EXPECT_EQ(far.spread.ranks, 2);
  EXPECT_EQ(far.rings, 10);
  const Links one = links_between(none, hosts, same);
  EXPECT_EQ(one.near, Near::nvlink);
  EXPECT_TRUE(std::isinf(one.exchange));
}

}  // namespace
}  // namespace muster
