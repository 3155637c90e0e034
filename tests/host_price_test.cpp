// What collectives cost on host memory, against sums made by hand.
#include "plan/host_price.h"

#include <gtest/gtest.h>

#include "algorithms/algorithms.h"
#include "base/error.h"
#include "plan/host_clocks.h"
#include "program/builder.h"

namespace muster {
namespace {

// Powers of two, so that sums are exact. One GB/s is 1000 bytes per microsecond.
Constants simple_constants() {
  return Constants::read(
      "host.call 1 us assumed test\n"
      "host.message 0.25 us assumed test\n"
      "host.ring 0.125 us assumed test\n"
      "host.hand_over 4 us assumed test\n"
      "host.turn 16 us assumed test\n"
      "host.local 1 GB/s assumed test\n"
      "host.local.memory 0.5 GB/s assumed test\n"
      "host.slot 1 GB/s assumed test\n"
      "host.slot.memory 0.5 GB/s assumed test\n"
      "host.window 0.5 GB/s assumed test\n"
      "host.window.memory 0.25 GB/s assumed test\n"
      "host.window.store 0.125 GB/s assumed test\n"
      "host.window.store.memory 0.125 GB/s assumed test\n"
      "host.combine 1 GB/s assumed test\n"
      "host.combine.half 0.5 GB/s assumed test\n",
      "test");
}

PlanInputs inputs(int ranks, int cores) {
  PlanInputs in;
  in.nranks = ranks;
  in.cores = cores;
  in.slot_bytes = 32 << 10;
  in.message_bytes = 16 << 10;
  in.cache_bytes = size_t{1} << 30;
  return in;
}

double price(Coll coll, const char* algorithm, uint64_t count, const PlanInputs& in,
             DataType type = DataType::uint8) {
  const CallShape call{coll, type, RedOp::sum, 0, count};
  return host_price(*find_algorithm(coll, algorithm), call, in, simple_constants()).us;
}

TEST(HostPrice, ACopyOfOneRankIsTheCallAndEachByteReadAndWritten) {
  EXPECT_DOUBLE_EQ(price(Coll::all_reduce, "direct", 1000, inputs(1, 1)), 1 + 2);
}

TEST(HostPrice, AMessageIsSeenSomeTimeAfterItWasSent) {
  // call 1; the line sent 0.25; 4 later both have it and take it 0.25; 8 bytes are combined,
  // and written.
  EXPECT_NEAR(price(Coll::all_reduce, "one_shot", 8, inputs(2, 2)), 1 + 0.25 + 0.008 + 4 + 0.25 + 2 * 0.008,
              1e-9);
}

TEST(HostPrice, ALongMessageTakesItsBytesAtBothEnds) {
  // 1000 bytes: read and written to the slot; then read there, combined with what is here, written.
  EXPECT_NEAR(price(Coll::all_reduce, "one_shot", 1000, inputs(2, 2)), 1 + (0.375 + 2) + 4 + (0.375 + 3),
              1e-9);
}

TEST(HostPrice, ARootThatNobodyAnswersIsAheadOfTheOthers) {
  // What remains is the busier end: the root also writes its own result.
  EXPECT_NEAR(price(Coll::broadcast, "direct", 1000, inputs(2, 2)), 1 + 0.375 + 3, 1e-9);
}

TEST(HostPrice, TilesFollowEachOtherInTheOrderOfSteps) {
  // A root with many tiles: each is a message.
  const double tile = 0.375 + 3 * 32.768;
  EXPECT_NEAR(price(Coll::broadcast, "direct", 32768, inputs(2, 2)), 1 + tile, 1e-9);
  EXPECT_NEAR(price(Coll::broadcast, "direct", 100 * 32768, inputs(2, 2)), 1 + 100 * tile, 1e-6);
}

TEST(HostPrice, WindowsTakeAnExchangeOfAddressesAndNoSlots) {
  // Addresses: the line and its answer; 24 bytes copied here, too, and 24 of the other's. Then 1000 bytes
  // copied here and 1000 from the peer; then a token each way.
  const double exchange = 0.25 + 2 * 0.024 + 4 + 0.25 + 0.024;
  const double program = 2 + (2 + 1) + 0.25 + 4 + 0.25;
  EXPECT_NEAR(price(Coll::all_gather, "window", 1000, inputs(2, 2)), 1 + exchange + program, 1e-9);
}

TEST(HostPrice, TypesThatAreWidenedTakeLongerToCombine) {
  const PlanInputs in = inputs(2, 2);
  const double halves = price(Coll::all_reduce, "one_shot", 500, in, DataType::float16),
               bytes = price(Coll::all_reduce, "one_shot", 1000, in);
  EXPECT_NEAR(halves - bytes, 1, 1e-9);  // 1000 bytes at 0.5 GB/s, not 1
}

TEST(HostPrice, BytesThatLeaveTheCacheCostMore) {
  PlanInputs in = inputs(1, 1);
  in.cache_bytes = 1000;
  EXPECT_DOUBLE_EQ(price(Coll::all_reduce, "direct", 250, in), 1 + 0.5);   // half of the cache
  EXPECT_DOUBLE_EQ(price(Coll::all_reduce, "direct", 1250, in), 1 + 5);    // two and a half: all outside
  EXPECT_DOUBLE_EQ(price(Coll::all_reduce, "direct", 750, in), 1 + 2.25);  // one and a half: half way
}

TEST(HostPrice, RanksThatShareACoreTakeTurns) {
  // Two ranks of one core. Each sends and has to wait, and finds two messages when it is its turn again: one
  // turn a call.
  const double work = 1 + 0.25 + 0.008 + 0.25 + 2 * 0.008;
  const CallShape call{Coll::all_reduce, DataType::uint8, RedOp::sum, 0, 8};
  const HostPrice p =
      host_price(*find_algorithm(Coll::all_reduce, "one_shot"), call, inputs(2, 1), simple_constants());
  EXPECT_NEAR(p.turns_us, 16, 1e-9);
  EXPECT_NEAR(p.us, 2 * work + 16, 1);  // the last call waits for a message, and is one of six
}

TEST(HostPrice, PartsOfAPriceAddUp) {
  const CallShape call{Coll::all_reduce, DataType::uint8, RedOp::sum, 0, 1000};
  const HostPrice p =
      host_price(*find_algorithm(Coll::all_reduce, "one_shot"), call, inputs(2, 2), simple_constants());
  EXPECT_NEAR(p.messages_us, 1 + 2 * 0.375, 1e-9);
  EXPECT_NEAR(p.bytes_us, 5, 1e-9);
  EXPECT_NEAR(p.turns_us, 0, 1e-9);
  EXPECT_NEAR(p.waits_us(), 4, 1e-9);
}

TEST(HostPrice, StoringToAPeerHasAPriceOfItsOwn) {
  // The root of a gather has nothing to do but its own copy and the token; the other rank stores 1000 bytes
  // there.
  const double gather = price(Coll::gather, "window", 1000, inputs(2, 2));
  EXPECT_GT(gather, 1 + 1 + 8);  // read here at 1 GB/s, stored at 0.125
  EXPECT_LT(gather, 1 + 1 + 8 + 10);
}

TEST(HostPrice, SendersThatNobodyAnswersAreSoFarAheadOnly) {
  // Four ranks of one core: in 8 calls each of them has one turn at least.
  const CallShape call{Coll::broadcast, DataType::uint8, RedOp::sum, 0, 100};
  const HostPrice p =
      host_price(*find_algorithm(Coll::broadcast, "direct"), call, inputs(4, 1), simple_constants());
  EXPECT_GE(p.turns_us, 4 * 16 / 8.0 - 1e-9);
}

// No size is cheaper than half of it, whatever algorithm, ranks and cores.
TEST(HostPrice, MoreDataNeverCostsLess) {
  for (const Algorithm& a : algorithms())
    for (const int ranks : {1, 2, 3, 4, 8})
      for (const int cores : {2, 8}) {
        PlanInputs in = inputs(ranks, cores);
        in.cache_bytes = 32 << 20;
        double before = 0;
        for (uint64_t count = 2; count <= (uint64_t{64} << 20); count *= 2) {
          const CallShape call{a.coll, DataType::float32, RedOp::sum, 0, count};
          const double us = host_price(a, call, in, Constants::built_in()).us;
          EXPECT_GE(us, before * 0.999) << a.name << " " << name_of(a.coll) << ", " << ranks << " ranks, "
                                        << cores << " cores, count " << count;
          before = us;
        }
      }
}

TEST(HostPrice, MessagesBetweenTwoRanks) {
  const PlanInputs in = inputs(2, 2);
  const Constants k = simple_constants();
  EXPECT_DOUBLE_EQ(host_message_price(8, in, k).us, 1 + 2 * 0.25 + 4 + 2 * 0.016);
  EXPECT_GT(host_message_price(1 << 20, in, k).us, 2 * (1 << 20) / 1e3);
}

TEST(HostClocks, ProgramsThatWaitForEachOtherAreAnError) {
  std::vector<Program> ranks;
  for (int r = 0; r < 2; ++r) {
    Builder b("test", Coll::all_gather, 2, r);
    b.tokens({slot(1 - r)}, {});
    b.tokens({}, {slot(1 - r)});
    ranks.push_back(b.done());
  }
  ClockRules rules;
  rules.step = [](const Program&, const Step&) { return StepTime{1, 0}; };
  EXPECT_THROW(run_clocks(ranks, 1, 1, rules), Error);
}

}  // namespace
}  // namespace muster
