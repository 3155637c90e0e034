// Composition, fusion and printing of programs.
#include "program/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "algorithms/algorithms.h"
#include "muster/types.h"
#include "program/builder.h"
#include "program/checker.h"
#include "program/place.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Step>& steps_of(Program& p) { return p.channels[0].loops[0].steps; }
std::vector<std::string> texts(const Program& p) {
  std::vector<std::string> all;
  for (const Step& s : p.channels[0].loops[0].steps) all.push_back(to_string(s));
  return all;
}

TEST(Collective, NamesAndProperties) {
  EXPECT_STREQ(name_of(Coll::all_reduce), "all_reduce");
  EXPECT_STREQ(name_of(Coll::send_recv), "send_recv");
  EXPECT_STREQ(name_of(static_cast<Coll>(99)), "?");
  EXPECT_TRUE(reduces(Coll::reduce_scatter));
  EXPECT_FALSE(reduces(Coll::scatter));
}

// --- builder ---

TEST(Builder, BuffersFollowFromTheCollective) {
  const auto chunks = [](Coll c, uint32_t split = 1) {
    const Program p = Builder("x", c, 5, 0, 0, split).done();
    return std::pair(p.buffer_chunks[kInput], p.buffer_chunks[kOutput]);
  };
  using P = std::pair<uint32_t, uint32_t>;
  EXPECT_EQ(chunks(Coll::all_reduce, 3), P(3, 3));
  EXPECT_EQ(chunks(Coll::broadcast), P(1, 1));
  EXPECT_EQ(chunks(Coll::reduce_scatter), P(5, 1));
  EXPECT_EQ(chunks(Coll::all_gather), P(1, 5));
  EXPECT_EQ(chunks(Coll::all_to_all), P(5, 5));
  EXPECT_EQ(chunks(Coll::gather), P(1, 5));
  EXPECT_EQ(chunks(Coll::scatter), P(5, 1));
}

TEST(Builder, BadRanksAreErrors) {
  EXPECT_THROW(Builder("x", Coll::broadcast, 2, 2), Error);
  EXPECT_THROW(Builder("x", Coll::broadcast, 2, 0, -1), Error);
  EXPECT_THROW(Builder("x", Coll::broadcast, 0, 0), Error);
}

TEST(Builder, StepsThatMoveNothingAreLeftOut) {
  Builder b("x", Coll::all_gather, 2, 0);
  b.step(0, {input(0)}, {});
  b.step(0, {input(0)}, {output(0)}, 0);
  b.tokens({}, {});
  Program p = b.done();
  EXPECT_TRUE(steps_of(p).empty());
}

// --- append and rename ---

TEST(Append, PutsTheSecondsStepsAfterTheFirsts) {
  Builder a("a", Coll::reduce_scatter, 2, 1), b("b", Coll::all_gather, 2, 1);
  a.step(1, {contribution(1)}, {output(0)});
  b.step(1, {input(0)}, {output(1)});
  b.use_scratch(4);
  const Program p = append(a.done(), b.done());
  EXPECT_THAT(texts(p), ElementsAre("contribution(1) -> output(0)", "input(0) -> output(1)"));
  EXPECT_EQ(p.algorithm, "a");
  EXPECT_EQ(p.coll, Coll::reduce_scatter);
  EXPECT_THAT(p.buffer_chunks, ElementsAre(2, 2, 4));  // the larger of both
}

TEST(Append, ProgramsThatDontFitAreErrors) {
  const Program a = Builder("a", Coll::all_gather, 2, 1).done();
  const Program other_rank = Builder("b", Coll::all_gather, 2, 0).done();
  EXPECT_THROW(append(a, other_rank), Error);
  EXPECT_THROW(append(a, replicate(a, 2)), Error);
  Program more_loops = a;
  more_loops.channels[0].loops.resize(2);
  EXPECT_THROW(append(a, more_loops), Error);
  Program other_part = a;
  other_part.channels[0].parts = 2;
  EXPECT_THROW(append(a, other_part), Error);
}

TEST(RenameBuffer, RenamesLocalAndWindowReferencesOnly) {
  Builder b("a", Coll::all_gather, 4, 1);
  b.step(0, {input(0)}, {output(1), slot(2)});
  b.step(0, {window(3, kInput, 0)}, {output(3)});
  const Program p = rename_buffer(b.done(), kInput, kOutput, 2);
  EXPECT_THAT(texts(p), ElementsAre("output(2) -> output(1), slot(2)", "rank 3's output(2) -> output(3)"));
  EXPECT_EQ(p.buffer_chunks[kOutput], 4u);
}

TEST(RenameBuffer, ShiftsChunksWithinABuffer) {
  Builder b("a", Coll::reduce_scatter, 4, 3);
  b.finish(3, {slot(2), contribution(3)}, {output(0)});
  const Program p = rename_buffer(b.done(), kOutput, kOutput, 3);
  EXPECT_THAT(texts(p), ElementsAre("slot(2) + contribution(3) -> output(3), complete"));
  EXPECT_EQ(p.buffer_chunks[kOutput], 4u);
}

// --- fuse ---

Program of_steps(std::vector<Step> steps, uint32_t chunks = 4, uint32_t scratch_chunks = 4) {
  Builder b("x", Coll::all_reduce, 4, 0, 0, chunks);
  b.use_scratch(scratch_chunks);
  Program p = b.done();
  steps_of(p) = std::move(steps);
  return p;
}

TEST(Fuse, MergesAResultWithItsNextSend) {
  const Program p = fuse(of_steps(
      {{{slot(3), contribution(0)}, {output(0)}, 0, 1, true}, {{output(0)}, {slot(1)}, 0, 1, false}}));
  EXPECT_THAT(texts(p), ElementsAre("slot(3) + contribution(0) -> output(0), slot(1), complete"));
}

TEST(Fuse, MergesSeveralCopies) {
  const Program p = fuse(of_steps({{{slot(3)}, {output(0)}, 0, 1, false},
                                   {{output(0)}, {slot(1)}, 0, 1, false},
                                   {{output(0)}, {slot(2), scratch(0)}, 0, 1, false},
                                   {{scratch(0)}, {slot(3)}, 0, 1, false}}));
  EXPECT_THAT(texts(p), ElementsAre("slot(3) -> output(0), slot(1), slot(2), slot(3)"));
}

TEST(Fuse, DropsCopiesOfAPlaceOntoItself) {
  const Program p = fuse(
      of_steps({{{output(1)}, {output(1)}, 1, 1, false}, {{output(2)}, {output(2), slot(1)}, 2, 1, false}}));
  EXPECT_THAT(texts(p), ElementsAre("output(2) -> slot(1)"));
}

TEST(Fuse, KeepsEachConnectionsOrder) {
  const std::vector<Step> between = {{{slot(3)}, {output(0)}, 0, 1, false},
                                     {{contribution(1)}, {slot(1)}, 1, 1, false},
                                     {{output(0)}, {slot(1)}, 0, 1, false}};
  EXPECT_EQ(fuse(of_steps(between)), of_steps(between));
  const std::vector<Step> same_step = {{{slot(3)}, {output(0), slot(1)}, 0, 1, false},
                                       {{output(0)}, {slot(1)}, 0, 1, false}};
  EXPECT_EQ(fuse(of_steps(same_step)), of_steps(same_step));
}

TEST(Fuse, DoesNotSendBeforeAMessageThatMayBeNeededFirst) {
  const std::vector<Step> steps = {{{slot(3)}, {output(0)}, 0, 1, false},
                                   {{slot(2)}, {output(1)}, 1, 1, false},
                                   {{output(0)}, {slot(1)}, 0, 1, false}};
  EXPECT_EQ(fuse(of_steps(steps)), of_steps(steps));
}

TEST(Fuse, LeavesWhatWouldChangeTheData) {
  const Step write = {{slot(3)}, {output(0)}, 0, 1, false};
  const std::vector<std::vector<Step>> cases = {
      // The destination is read, or written, in between; in place, contribution(2) is output(2).
      {write, {{output(2)}, {scratch(1)}, 2, 1, false}, {{output(0)}, {output(2)}, 0, 1, false}},
      {write, {{contribution(2)}, {scratch(1)}, 2, 1, false}, {{output(0)}, {output(2)}, 0, 1, false}},
      {write, {{contribution(1)}, {output(2)}, 1, 1, false}, {{output(0)}, {output(2)}, 0, 1, false}},
      // The source is overwritten in between by part of a larger step.
      {write, {{contribution(3)}, {output(3)}, 3, 2, false}, {{output(0)}, {slot(1)}, 0, 1, false}},
      // Lengths differ.
      {{{slot(3)}, {output(0)}, 0, 2, false}, {{output(0)}, {slot(1)}, 0, 1, false}},
      {{{slot(3)}, {scratch(0)}, 0, 1, false}, {{scratch(0)}, {slot(1)}, 1, 1, false}},
      // Not a copy.
      {write, {{output(0), contribution(0)}, {slot(1)}, 0, 1, false}},
      {write, {{output(0)}, {slot(1)}, 0, 1, true}},
      // The writer reads the place that the copy writes.
      {{{output(2), slot(3)}, {output(0)}, 0, 1, false}, {{output(0)}, {output(2)}, 0, 1, false}},
  };
  for (const auto& steps : cases)
    EXPECT_EQ(fuse(of_steps(steps)), of_steps(steps)) << to_string(of_steps(steps));
}

TEST(Fuse, DropsScratchThatNobodyReads) {
  const Program p = fuse(of_steps({{{slot(3)}, {scratch(0)}, 0, 1, false},
                                   {{scratch(0)}, {slot(1)}, 0, 1, false},
                                   {{slot(2)}, {scratch(1), slot(2)}, 1, 1, false},
                                   {{scratch(1)}, {output(1)}, 1, 1, false}}));
  EXPECT_THAT(texts(p), ElementsAre("slot(3) -> slot(1)", "slot(2) -> slot(2), output(1)"));
}

TEST(Fuse, AgainChangesNothing) {
  for (const Algorithm& a : algorithms())
    for (int r = 0; r < 6; ++r) {
      const Program once = fuse(a.make({6, r, 2}));
      EXPECT_EQ(fuse(once), once) << to_string(once);
    }
}

// Splits each step that writes memory and more into one that writes memory and a copy.
Program split(Program p) {
  std::vector<Step> steps;
  for (Step& s : steps_of(p)) {
    const auto memory = std::find_if(s.destinations.begin(), s.destinations.end(),
                                     [](const Ref& r) { return r.kind == Ref::Kind::local; });
    if (s.pieces == 0 || s.destinations.size() < 2 || memory == s.destinations.end()) {
      steps.push_back(s);
      continue;
    }
    const Ref place = *memory;
    Step copy = {{place}, s.destinations, s.extent, s.pieces, false};
    std::erase(copy.destinations, place);
    s.destinations = {place};
    steps.push_back(s);
    steps.push_back(copy);
  }
  steps_of(p) = std::move(steps);
  return p;
}

TEST(Fuse, SplitProgramsAreRightBeforeAndAfter) {
  for (const Algorithm& a : algorithms()) {
    for (int n = 1; n <= 12; ++n) {
      std::vector<Program> before, after;
      for (int r = 0; r < n; ++r) {
        before.push_back(split(a.make({n, r, n / 2})));
        after.push_back(fuse(before.back()));
        EXPECT_LE(steps_of(after.back()).size(), steps_of(before.back()).size());
      }
      for (const bool in_place : {false, true}) {
        if (in_place && !a.in_place) continue;
        const CheckOptions options = {.slots = 2, .tiles = 3, .in_place = in_place};
        const CheckResult x = check(before, options), y = check(after, options);
        EXPECT_TRUE(x.ok) << x.message;
        EXPECT_TRUE(y.ok) << y.message;
        EXPECT_EQ(x.rank_order, y.rank_order);
      }
    }
  }
}

// --- replicate ---

TEST(Place, RangesOverlapModuloTheChunks) {
  for (uint32_t chunks = 1; chunks <= 6; ++chunks)
    for (uint32_t a = 0; a < chunks; ++a)
      for (uint32_t b = 0; b < chunks; ++b)
        for (uint32_t pieces_a = 1; pieces_a <= chunks; ++pieces_a)
          for (uint32_t pieces_b = 1; pieces_b <= chunks; ++pieces_b) {
            bool common = false;
            for (uint32_t i = 0; i < pieces_a; ++i)
              for (uint32_t j = 0; j < pieces_b; ++j) common = common || (a + i) % chunks == (b + j) % chunks;
            EXPECT_EQ(ranges_overlap(chunks, a, pieces_a, b, pieces_b), common);
          }
}

TEST(Replicate, GivesEachChannelItsPartAndLane) {
  const Program p = replicate(find_algorithm(Coll::all_reduce, "ring")->make({3, 0, 0}), 3);
  ASSERT_EQ(p.channels.size(), 3u);
  for (uint16_t c = 0; c < 3; ++c) {
    EXPECT_EQ(p.channels[c].part, c);
    EXPECT_EQ(p.channels[c].parts, 3);
    for (const Step& s : p.channels[c].loops[0].steps)
      for (const Ref& r : s.sources)
        if (r.kind == Ref::Kind::slot) {
          EXPECT_EQ(r.lane, c);
        }
  }
}

TEST(Replicate, OnlyOneChannelCanBeReplicated) {
  const Program p = find_algorithm(Coll::all_reduce, "ring")->make({3, 0, 0});
  EXPECT_EQ(replicate(p, 1), p);
  EXPECT_THROW(replicate(replicate(p, 2), 2), Error);
  EXPECT_THROW(replicate(p, 0), Error);
}

// --- printing ---

TEST(Print, References) {
  EXPECT_EQ(to_string(input(3)), "input(3)");
  EXPECT_EQ(to_string(contribution(3)), "contribution(3)");
  EXPECT_EQ(to_string(output(0)), "output(0)");
  EXPECT_EQ(to_string(scratch(1)), "scratch(1)");
  EXPECT_EQ(to_string(slot(4)), "slot(4)");
  EXPECT_EQ(to_string(slot(4, 2)), "slot(4, lane 2)");
  EXPECT_EQ(to_string(window(5, kInput, 2)), "rank 5's input(2)");
}

TEST(Print, Steps) {
  EXPECT_EQ(to_string(Step{{slot(1), contribution(2)}, {slot(3), output(2)}, 2, 1, false}),
            "slot(1) + contribution(2) -> slot(3), output(2)");
  EXPECT_EQ(to_string(Step{{slot(1)}, {output(2)}, 2, 4, true}), "slot(1) -> output(2), 4 chunks, complete");
  EXPECT_EQ(to_string(Step{{}, {slot(1), slot(2)}, 0, 0, false}), "token -> slot(1), slot(2)");
  EXPECT_EQ(to_string(Step{{slot(1)}, {}, 0, 0, false}), "token <- slot(1)");
  EXPECT_EQ(to_string(Step{{slot(1)}, {slot(2)}, 0, 0, false}), "token slot(1) -> slot(2)");
}

// The example that docs/programs.md works through.
TEST(Print, RingAllReduceOfRank0Of3) {
  EXPECT_EQ(to_string(find_algorithm(Coll::all_reduce, "ring")->make({3, 0, 0})),
            "ring all_reduce, rank 0 of 3, data in 3 chunks (input 3, output 3, scratch 0)\n"
            "channel 0: part 0 of 1 of each chunk\n"
            "  for each tile\n"
            "     0  contribution(2) -> slot(1)\n"
            "     1  slot(2) + contribution(1) -> slot(1)\n"
            "     2  slot(2) + contribution(0) -> output(0), slot(1), complete\n"
            "     3  slot(2) -> output(2), slot(1)\n"
            "     4  slot(2) -> output(1)\n");
}

TEST(Print, MessagesOfAGroup) {
  const std::vector<Message> messages = {{true, 1}, {false, 1}};
  EXPECT_EQ(to_string(send_recv(2, 0, messages)),
            "send_recv send_recv, rank 0 of 2\n"
            "channel 0: part 0 of 1 of each chunk\n"
            "  for each tile of message 1\n"
            "     0  slot(1) -> message(1)\n"
            "channel 1: part 0 of 1 of each chunk\n"
            "  for each tile of message 0\n"
            "     0  message(0) -> slot(1)\n");
}

}  // namespace
}  // namespace muster
