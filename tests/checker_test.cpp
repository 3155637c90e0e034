// The checker finds what is wrong: each kind of mistake by hand, then every small change to every algorithm.
#include "program/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "algorithms/algorithms.h"
#include "program/builder.h"
#include "program/place.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<Program> make(Coll coll, const char* name, int nranks, int root = 0) {
  std::vector<Program> programs;
  for (int r = 0; r < nranks; ++r) programs.push_back(find_algorithm(coll, name)->make({nranks, r, root}));
  return programs;
}

std::vector<Step>& steps_of(Program& p) { return p.channels[0].loops[0].steps; }

void expect_wrong(const std::vector<Program>& programs, const testing::Matcher<std::string>& message,
                  const CheckOptions& options = {}) {
  const CheckResult result = check(programs, options);
  EXPECT_FALSE(result.ok);
  EXPECT_THAT(result.message, message);
}

// --- hand-made mistakes ---

TEST(Checker, NamesAlgorithmRankChannelLoopAndStep) {
  auto p = make(Coll::all_reduce, "ring", 5);
  steps_of(p[3])[4].sources.pop_back();  // forgets its own contribution
  expect_wrong(p, AllOf(HasSubstr("ring all_reduce, 5 ranks: rank "),
                        HasSubstr("channel 0, loop 0, step 4 ("), HasSubstr("expected"), HasSubstr("found")));
}

TEST(Checker, MissingContribution) {
  auto p = make(Coll::reduce, "direct", 3);
  std::erase(steps_of(p[0])[0].sources, slot(2));
  expect_wrong(p, AllOf(HasSubstr("rank 0, channel 0, loop 0, step 0"),
                        HasSubstr("contributions of all 3 ranks, found 0 + 1 (rank 2 missing)")));
}

TEST(Checker, ContributionTwice) {
  auto p = make(Coll::reduce, "direct", 2);
  auto& sources = steps_of(p[0])[0].sources;
  sources = {contribution(0), contribution(0), slot(1)};
  expect_wrong(p, HasSubstr("each contribution once, found rank 0's twice in 0 + 0 + 1"));
}

TEST(Checker, NotFinished) {
  auto p = make(Coll::all_reduce, "one_shot", 2);
  steps_of(p[1])[1].finish = false;
  expect_wrong(p, HasSubstr("rank 1: expected a result marked complete in rank 1's output(0), found 0 + 1"));
}

TEST(Checker, FinishedTwice) {
  auto p = make(Coll::all_reduce, "ring", 3);
  steps_of(p[0])[4].finish = true;  // the last copy of the all-gather
  expect_wrong(p, HasSubstr("found one that was completed before"));
}

TEST(Checker, FinishedTooEarly) {
  auto p = make(Coll::all_reduce, "ring", 3);
  steps_of(p[0])[1].finish = true;
  expect_wrong(p, HasSubstr("contributions of all 3 ranks, found 2 + 0 (rank 1 missing)"));
}

TEST(Checker, CompleteResultUsedAsOperand) {
  Builder a("hand-made", Coll::reduce, 1, 0);
  a.finish(0, {contribution(0)}, {output(0)});
  a.step(0, {output(0), contribution(0)}, {output(0)});
  expect_wrong({a.done()}, HasSubstr("not complete yet, found the complete result 0"));
}

TEST(Checker, FinishInACollectiveThatDoesNotReduce) {
  auto p = make(Coll::all_gather, "ring", 3);
  steps_of(p[1])[0].finish = true;
  expect_wrong(p, HasSubstr("no result to complete in all_gather"));
}

TEST(Checker, FactorNotApplied) {
  auto p = make(Coll::all_reduce, "one_shot", 2);
  steps_of(p[0])[0].sources[0].raw = false;
  expect_wrong(p, AllOf(HasSubstr("rank 0, channel 0, loop 0, step 0"),
                        HasSubstr("contribution to be read raw, found input(0)")));
}

TEST(Checker, FactorAppliedToSomethingElse) {
  auto p = make(Coll::all_gather, "direct", 2);
  steps_of(p[0])[0].sources[0].raw = true;
  expect_wrong(p, HasSubstr("raw only on a reduction's own input"));
}

TEST(Checker, DifferentOrdersOnDifferentRanks) {
  auto p = make(Coll::all_reduce, "doubling", 2);
  auto& sources = steps_of(p[1])[1].sources;
  std::swap(sources[0], sources[1]);
  expect_wrong(p, HasSubstr("expected the same order of combination in rank 1's output(0) as on rank 0, 0 + "
                            "1, complete, found 1 + 0"));
}

TEST(Checker, DeadlockOfAll) {
  std::vector<Program> p;
  for (int r = 0; r < 3; ++r) {  // everybody receives first
    Builder b("hand-made", Coll::all_gather, 3, r);
    const auto me = static_cast<uint32_t>(r);
    b.step((me + 2) % 3, {slot((r + 2) % 3)}, {output((me + 2) % 3), slot((r + 1) % 3)});
    p.push_back(b.done());
  }
  expect_wrong(p,
               AllOf(HasSubstr("rank 0, channel 0, loop 0, step 0 (slot(2) -> output(2), slot(1)): tile 0: "
                               "expected a message from rank 2 on lane 0"),
                     HasSubstr("3 of 3 channels are stuck"), HasSubstr("waits for a message from rank 1")));
}

TEST(Checker, DeadlockForLackOfSlots) {
  const auto p = make(Coll::all_reduce, "ring", 3);
  expect_wrong(p, HasSubstr("expected a free slot to rank"), {.slots = 1});
  EXPECT_TRUE(check(p, {.slots = 2}).ok);
}

TEST(Checker, WaitingForARankThatHasEnded) {
  auto p = make(Coll::broadcast, "direct", 2);
  steps_of(p[0])[0].destinations = {output(0)};
  expect_wrong(p, AllOf(HasSubstr("expected a message from rank 0"), HasSubstr("1 of 2 channels are stuck"),
                        HasSubstr("rank 0 has ended")));
}

TEST(Checker, MessagesLeft) {
  auto p = make(Coll::broadcast, "direct", 3);
  steps_of(p[0]).push_back({{input(0)}, {slot(2)}, 0, 1, false});
  expect_wrong(p,
               AllOf(HasSubstr("rank 2: expected it to receive all that rank 0 sends on lane 0"),
                     HasSubstr("1 messages left")),
               {.slots = 8, .tiles = 1});
}

TEST(Checker, LengthsOfSenderAndReceiverDiffer) {
  auto p = make(Coll::all_reduce, "direct", 3);
  for (Step& s : steps_of(p[1])) {
    if (s.sources[0] == slot(2)) {
      s.extent = 0;
      s.destinations[0].chunk = 0;
    }
  }
  expect_wrong(p, AllOf(HasSubstr("rank 1, channel 0"), HasSubstr("as long as chunk 0"),
                        HasSubstr("as long as chunk 2")));

  auto q = make(Coll::all_gather, "bruck", 4);
  steps_of(q[0])[2].pieces = 1;
  expect_wrong(q, HasSubstr("a message of"));
}

TEST(Checker, TokenWhereDataIsExpected) {
  auto p = make(Coll::broadcast, "direct", 2);
  steps_of(p[0]) = {{{}, {slot(1)}, 0, 0, false}, {{input(0)}, {output(0)}, 0, 1, false}};
  expect_wrong(p, HasSubstr("found a token"));
}

TEST(Checker, TwoChannelsOnOneConnection) {
  std::vector<Program> p;
  for (int r = 0; r < 2; ++r) {
    p.push_back(replicate(find_algorithm(Coll::broadcast, "direct")->make({2, r, 0}), 2));
    for (Step& s : p.back().channels[1].loops[0].steps)
      for (auto* refs : {&s.sources, &s.destinations})
        for (Ref& ref : *refs) ref.lane = 0;
  }
  expect_wrong(p, AllOf(HasSubstr("rank 0, channel 1"), HasSubstr("expected one channel on a connection")));
}

TEST(Checker, TwoChannelsOnTheSameBytes) {
  std::vector<Program> p = make(Coll::broadcast, "direct", 2);
  for (Program& q : p) q = replicate(q, 2);
  for (Program& q : p) q.channels[1].part = 0;  // both channels handle the first half
  expect_wrong(p, AllOf(HasSubstr("rank 0, channel"), HasSubstr("output(0)"),
                        HasSubstr("found no message that orders them")));
}

TEST(Checker, ChannelsWithDifferentPartsOverlap) {
  Builder b("hand-made", Coll::broadcast, 1, 0);
  b.step(0, {input(0)}, {output(0)});
  Program p = b.done();
  Channel third = p.channels[0];
  third.part = 2;
  third.parts = 3;
  p.channels[0].parts = 2;  // the first half: doesn't meet the last third, and leaves a gap
  p.channels.push_back(third);
  expect_wrong({p}, HasSubstr("to hold the result, found it not written"));
  p.channels[0].part = 1;
  expect_wrong({p}, HasSubstr("found no message that orders them"));
}

TEST(Checker, ChannelsOfOneRankMayOrderThemselvesThroughAPeer) {
  // Channel 0 writes scratch and sends a token; the peer returns it to channel 1, which reads scratch.
  Builder a("hand-made", Coll::broadcast, 2, 0), b("hand-made", Coll::broadcast, 2, 1);
  a.use_scratch(1);
  a.step(0, {input(0)}, {scratch(0), slot(1)});
  b.step(0, {slot(0)}, {output(0), slot(0, 1)});
  std::vector<Program> p = {a.done(), b.done()};
  Channel second;
  second.loops.resize(1);
  second.loops[0].steps = {{{slot(1, 1)}, {slot(1, 2)}, 0, 1, false},
                           {{scratch(0)}, {output(0)}, 0, 1, false}};
  p[0].channels.push_back(second);
  Channel drain;
  drain.loops.resize(1);
  drain.loops[0].steps = {{{slot(0, 2)}, {scratch(0)}, 0, 1, false}};
  p[1].buffer_chunks[kScratch] = 1;
  p[1].channels.push_back(drain);
  const CheckResult result = check(p);
  EXPECT_TRUE(result.ok) << result.message;

  std::swap(p[0].channels[1].loops[0].steps[0],
            p[0].channels[1].loops[0].steps[1]);  // reads before the token
  EXPECT_FALSE(check(p).ok);
}

TEST(Checker, InputIsNeverWritten) {
  auto p = make(Coll::all_reduce, "one_shot", 2);
  steps_of(p[1])[1].destinations = {input(0)};
  expect_wrong(p, HasSubstr("expected the input to be left alone"));
}

TEST(Checker, ScratchReadBeforeWritten) {
  auto p = make(Coll::gather, "binomial", 4);
  std::erase_if(steps_of(p[2]), [](const Step& s) { return s.sources[0] == input(0); });
  expect_wrong(p, AllOf(HasSubstr("rank 2, channel 0, loop 0, step 1"),
                        HasSubstr("rank 2's scratch(0), found it not written yet")));
}

TEST(Checker, OutputReadBeforeWrittenEvenInPlace) {
  auto p = make(Coll::all_reduce, "doubling", 2);
  steps_of(p[0])[0].sources = {output(0)};
  expect_wrong(p, HasSubstr("rank 0's output(0), found it not written yet"));
  expect_wrong(p, HasSubstr("rank 0's output(0), found it not written yet"), {.in_place = true});
}

TEST(Checker, OutputNotWritten) {
  auto p = make(Coll::all_gather, "direct", 3);
  std::erase(steps_of(p[2])[0].destinations, output(2));
  expect_wrong(p, HasSubstr("rank 2: expected rank 2's output(2) to hold the result, found it not written"));
}

TEST(Checker, OutputHoldsAnotherRanksData) {
  auto p = make(Coll::all_gather, "direct", 3);
  auto& steps = steps_of(p[0]);
  std::swap(steps[1].destinations, steps[2].destinations);
  expect_wrong(p, HasSubstr("expected chunks as long as output(1)'s, found the length of chunk 2"));
  std::swap(steps[1].extent, steps[2].extent);
  expect_wrong(p, AllOf(HasSubstr("rank 0, channel 0, loop 0, step 1"),
                        HasSubstr("as long as chunk 1 and following from rank 2"),
                        HasSubstr("found a message of 1 chunks as long as chunk 2")));
}

TEST(Checker, DataOfAnotherChunkByWayOfScratch) {
  auto p = make(Coll::all_gather, "direct", 3);
  p[0].buffer_chunks[kScratch] = 1;
  auto& steps = steps_of(p[0]);
  steps.push_back({{output(2)}, {scratch(0)}, 2, 1, false});
  steps.push_back({{scratch(0)}, {output(1)}, 1, 1, false});
  expect_wrong(p, HasSubstr("expected data of chunk 1, whose length the step has, found data of chunk 2"));
}

TEST(Checker, OutputHoldsAnotherChunk) {
  auto p = make(Coll::all_to_all, "pairwise", 3);
  steps_of(p[0])[0].sources[0].chunk = 2;  // for rank 1
  expect_wrong(
      p,
      HasSubstr("(input(2) -> slot(1)): expected chunks as long as input(2)'s, found the length of chunk 1"));
}

TEST(Checker, OutputOfOthersThanTheRoot) {
  auto p = make(Coll::reduce, "direct", 2);
  steps_of(p[1])[0].destinations.push_back(output(0));
  expect_wrong(p, HasSubstr("expected a buffer that rank 1 has, found output(0)"));
}

TEST(Checker, InputOfOthersThanTheRoot) {
  auto p = make(Coll::broadcast, "direct", 2);
  steps_of(p[1])[0].sources = {input(0)};
  expect_wrong(p, HasSubstr("expected a buffer that rank 1 has, found input(0)"));
}

TEST(Checker, PlacesThatDoNotExist) {
  auto p = make(Coll::all_gather, "direct", 2);
  steps_of(p[0])[1].destinations[0].chunk = 2;
  expect_wrong(p, HasSubstr("expected at most 2 chunks of that buffer"));

  p = make(Coll::all_gather, "direct", 2);
  steps_of(p[0])[1].destinations[0].buffer = 3;
  expect_wrong(p, HasSubstr("expected a buffer that rank 0 has"));

  p = make(Coll::all_gather, "direct", 2);
  steps_of(p[0])[1].sources[0].peer = 0;
  expect_wrong(p, HasSubstr("expected a peer in 0..1 other than the rank itself, found 0"));
}

// A rank that takes an empty chunk for one that isn't would wait for a message that nobody sends.
TEST(Checker, ChunksOfDifferentLengths) {
  const auto p = make(Coll::all_gather, "ring", 3);
  for (const std::vector<int>& lengths : {std::vector<int>{0, 2, 1}, {0, 0, 0}, {2, 2, 2}}) {
    const CheckResult result = check(p, {.slots = 2, .tiles = 2, .lengths = lengths});
    EXPECT_TRUE(result.ok) << result.message;
  }
  EXPECT_THAT(check(p, {.lengths = {1, 1}}).message, HasSubstr("expected 3 lengths, found 2"));

  // A message too many is one only if there is something in it.
  auto wrong = make(Coll::all_gather, "direct", 2);
  steps_of(wrong[0]).push_back({{output(1)}, {slot(1)}, 1, 1, false});
  EXPECT_THAT(check(wrong, {.tiles = 2, .lengths = {2, 0}}).message, testing::IsEmpty());
  EXPECT_THAT(check(wrong, {.tiles = 2, .lengths = {2, 1}}).message,
              HasSubstr("found a message of 1 chunks as long as chunk 1"));
}

TEST(Checker, LengthOfAnotherChunk) {
  auto p = make(Coll::all_reduce, "direct", 3);
  steps_of(p[0])[0].extent = 2;
  expect_wrong(p, HasSubstr("expected chunks as long as contribution(1)'s, found the length of chunk 2"));
}

TEST(Checker, CombiningDifferentPlaces) {
  Builder a("hand-made", Coll::reduce_scatter, 2, 0), b("hand-made", Coll::reduce_scatter, 2, 1);
  a.use_scratch(1);
  a.step(0, {contribution(0)}, {scratch(0)});
  a.step(1, {scratch(0), contribution(1)}, {slot(1)});
  b.step(0, {contribution(0)}, {slot(0)});
  b.finish(1, {slot(0), contribution(1)}, {output(0)});
  expect_wrong({a.done(), b.done()},
               AllOf(HasSubstr("rank 0, channel 0, loop 0, step 1"), HasSubstr("expected chunk 0, unit 0"),
                     HasSubstr("found chunk 1")));
}

TEST(Checker, OneConnectionTwiceInAStep) {
  auto p = make(Coll::broadcast, "direct", 2);
  steps_of(p[0])[0].destinations.push_back(slot(1));
  expect_wrong(p, HasSubstr("expected one message of a connection in a step, found slot(1) twice"));
}

TEST(Checker, OnePlaceTwiceOrPartlyInAStep) {
  auto p = make(Coll::broadcast, "direct", 2);
  steps_of(p[0])[0].destinations.push_back(output(0));
  expect_wrong(p, HasSubstr("expected each place to be written once"));

  p = make(Coll::gather, "binomial", 4);
  for (Step& s : steps_of(p[2]))
    if (s.pieces == 2) s.destinations = {scratch(1)};
  steps_of(p[2]).back().sources = {scratch(0)};
  expect_wrong(p, HasSubstr("not to overlap, found them overlapping"));
}

TEST(Checker, InPlaceInputOverwritten) {
  const auto p = make(Coll::all_to_all, "window", 3);
  EXPECT_TRUE(check(p).ok);
  EXPECT_FALSE(check(p, {.in_place = true}).ok);

  auto q = make(Coll::all_gather, "direct", 2);
  for (Program& each : q)
    std::rotate(steps_of(each).begin(), steps_of(each).begin() + 1, steps_of(each).end());
  EXPECT_FALSE(check(q).ok);  // receives first: a deadlock

  Builder b("hand-made", Coll::all_reduce, 1, 0, 0, 2);
  b.use_scratch(1);
  b.finish(0, {contribution(0)}, {output(0)});
  b.finish(0, {contribution(0)}, {output(0)});  // again: in place its operand is gone
  b.finish(1, {contribution(1)}, {output(1)});
  const std::vector<Program> again = {b.done()};
  EXPECT_TRUE(check(again).ok);
  expect_wrong(again, HasSubstr("rank 0's input(0), found it overwritten through the output"),
               {.in_place = true});
}

TEST(Checker, LeavingWhileOthersReadItsBuffers) {
  auto p = make(Coll::all_gather, "window", 3);
  for (Program& each : p) std::erase_if(steps_of(each), [](const Step& s) { return s.pieces == 0; });
  expect_wrong(p, HasSubstr("rank 0: expected it to end after rank 1 is done with its buffers"));
}

TEST(Checker, WindowReadUnorderedWithTheWriter) {
  // Rank 1 reads rank 0's output without knowing that it has been written.
  Builder a("hand-made", Coll::broadcast, 2, 0), b("hand-made", Coll::broadcast, 2, 1);
  a.step(0, {input(0)}, {output(0)});
  a.tokens({slot(1)}, {});
  b.step(0, {window(0, kOutput, 0)}, {output(0)});
  b.tokens({}, {slot(0)});
  const std::vector<Program> p = {a.done(), b.done()};
  expect_wrong(p, HasSubstr("rank 0's output(0)"));

  // With a token in between it may.
  Builder c("hand-made", Coll::broadcast, 2, 0), d("hand-made", Coll::broadcast, 2, 1);
  c.step(0, {input(0)}, {output(0)});
  c.tokens({}, {slot(1)});
  c.tokens({slot(1)}, {});
  d.tokens({slot(0)}, {});
  d.step(0, {window(0, kOutput, 0)}, {output(0)});
  d.tokens({}, {slot(0)});
  const CheckResult right = check(std::vector<Program>{c.done(), d.done()});
  EXPECT_TRUE(right.ok) << right.message;
}

TEST(Checker, HeadersMustAgree) {
  auto p = make(Coll::broadcast, "direct", 3);
  p[1].root = 1;
  expect_wrong(p, HasSubstr("rank 1: expected root 0"));
  p = make(Coll::broadcast, "direct", 3);
  std::swap(p[1], p[2]);
  expect_wrong(p, HasSubstr("expected the program of rank 1 of 3, found that of rank 2 of 3"));
  p = make(Coll::broadcast, "direct", 3);
  p[2] = make(Coll::all_gather, "direct", 3)[2];
  expect_wrong(p, HasSubstr("rank 2: expected broadcast like rank 0, found all_gather"));
  p = make(Coll::all_reduce, "direct", 3);
  p[2].chunks = 2;
  expect_wrong(p, HasSubstr("expected 3 chunks like rank 0, found 2"));
  p = make(Coll::all_gather, "direct", 3);
  p[2].buffer_chunks[kOutput] = 2;
  expect_wrong(p, HasSubstr("expected 3 chunks of output, found 2"));
  expect_wrong({}, HasSubstr("one program per rank"));
  expect_wrong(make(Coll::broadcast, "direct", 2), HasSubstr("at least 1 slot"), {.slots = 0});
}

TEST(Checker, SendRecvMessagesInTheWrongOrder) {
  std::vector<Program> p = {send_recv(2, 0, std::vector<Message>{{true, 1}, {true, 1}}),
                            send_recv(2, 1, std::vector<Message>{{false, 0}, {false, 0}})};
  EXPECT_TRUE(check(p).ok);
  auto& loops = p[1].channels[0].loops;
  std::swap(loops[0], loops[1]);
  expect_wrong(p, HasSubstr("data in rank 1's message 0, found chunk 1"));
}

TEST(Checker, SendRecvUsesOnlyTheMessagesMemory) {
  std::vector<Program> p = {send_recv(2, 0, std::vector<Message>{{true, 1}}),
                            send_recv(2, 1, std::vector<Message>{{false, 0}})};
  p[1].channels[0].loops[0].message = 1;
  expect_wrong(p, HasSubstr("expected the memory of message 1"));
  p[1].channels[0].loops[0].message = -1;
  expect_wrong(p, HasSubstr("expected a message index"));
}

TEST(Checker, RankOrderIsALeftFoldInOneStepOrAChain) {
  EXPECT_TRUE(check(make(Coll::all_reduce, "direct", 5)).rank_order);
  EXPECT_TRUE(check(make(Coll::reduce, "chain", 5, 4)).rank_order);   // 0, 1, 2, 3, 4
  EXPECT_FALSE(check(make(Coll::reduce, "chain", 5, 3)).rank_order);  // 4, 0, 1, 2, 3
  EXPECT_FALSE(check(make(Coll::all_reduce, "ring", 3)).rank_order);
  EXPECT_TRUE(check(make(Coll::all_reduce, "ring", 1)).rank_order);
  EXPECT_TRUE(check(make(Coll::all_reduce, "doubling", 2)).rank_order);
  EXPECT_FALSE(check(make(Coll::all_reduce, "doubling", 4)).rank_order);  // (0 + 1) + (2 + 3)
}

// --- every small change to every algorithm ---

struct Mutation {
  std::string what;
  std::function<bool(std::vector<Step>&)> apply;  // false: doesn't change anything
  bool neutral = false;                           // the result may still be right
};

bool has_slot(const Step& s) {
  const auto is_slot = [](const Ref& r) { return r.kind == Ref::Kind::slot; };
  return std::ranges::any_of(s.sources, is_slot) || std::ranges::any_of(s.destinations, is_slot);
}
bool has_window(const Step& s) {
  const auto is_window = [](const Ref& r) { return r.kind == Ref::Kind::window; };
  return std::ranges::any_of(s.sources, is_window) || std::ranges::any_of(s.destinations, is_window);
}
bool sends(const Step& s) {
  return std::ranges::any_of(s.destinations, [](const Ref& r) { return r.kind == Ref::Kind::slot; });
}

bool touch(const Program& p, const std::vector<Ref>& a, uint32_t pieces_a, const std::vector<Ref>& b,
           uint32_t pieces_b) {
  for (const Ref& x : a)
    for (const Ref& y : b) {
      if (x.kind == Ref::Kind::slot || y.kind == Ref::Kind::slot) {
        if (x.kind == y.kind && x.peer == y.peer && x.lane == y.lane) return true;
        continue;
      }
      for (uint32_t i = 0; i < pieces_a; ++i)
        for (uint32_t j = 0; j < pieces_b; ++j)
          if (in_place(p.coll, p.root, place_of(p, x, i)) == in_place(p.coll, p.root, place_of(p, y, j)))
            return true;
    }
  return false;
}

// Steps whose order doesn't matter: no connection in common in one direction, no memory that one of them
// writes, and no message of one that tells peers about the other's use of their buffers.
bool independent(const Program& p, const Step& a, const Step& b) {
  const auto memory_only = [](std::vector<Ref> refs) {
    std::erase_if(refs, [](const Ref& r) { return r.kind == Ref::Kind::slot; });
    return refs;
  };
  const auto slots_only = [](std::vector<Ref> refs) {
    std::erase_if(refs, [](const Ref& r) { return r.kind != Ref::Kind::slot; });
    return refs;
  };
  return !touch(p, slots_only(a.sources), 1, slots_only(b.sources), 1) &&
         !touch(p, slots_only(a.destinations), 1, slots_only(b.destinations), 1) &&
         !touch(p, memory_only(a.destinations), a.pieces, memory_only(b.destinations), b.pieces) &&
         !touch(p, memory_only(a.destinations), a.pieces, memory_only(b.sources), b.pieces) &&
         !touch(p, memory_only(a.sources), a.pieces, memory_only(b.destinations), b.pieces) &&
         !(has_window(a) && sends(b)) && !(has_window(b) && sends(a));
}

// Was something sent to the rank that this step receives from?
bool partner_adds_too(const std::vector<Step>& steps, size_t step) {
  for (const Ref& r : steps[step].sources)
    for (size_t i = 0; i < step; ++i)
      if (r.kind == Ref::Kind::slot && std::ranges::count(steps[i].destinations, r)) return true;
  return false;
}

std::vector<Mutation> mutations(const Program& p, bool rank_order) {
  std::vector<Mutation> all;
  const auto& steps = p.channels[0].loops[0].steps;
  const int n = p.nranks;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& s = steps[i];
    const std::string at = " in step " + std::to_string(i) + " (" + to_string(s) + ")";
    const auto on_step = [&](const std::string& what, std::function<bool(Step&)> f, bool neutral = false) {
      all.push_back({what + at, [i, f](std::vector<Step>& v) { return f(v[i]); }, neutral});
    };

    all.push_back(
        {"drop" + at, [i](std::vector<Step>& v) { return v.erase(v.begin() + static_cast<long>(i)), true; }});
    // Doing again what needs no message gives the same result.
    all.push_back(
        {"duplicate" + at,
         [i](std::vector<Step>& v) { return v.insert(v.begin() + static_cast<long>(i), Step(v[i])), true; },
         !has_slot(s)});
    if (i + 1 < steps.size())
      all.push_back({"swap with next" + at,
                     [i](std::vector<Step>& v) { return std::swap(v[i], v[i + 1]), true; },
                     independent(p, s, steps[i + 1])});

    on_step("flip finish", [](Step& x) { return x.finish = !x.finish, true; });
    // Otherwise another order is another algorithm; it is a mistake if a partner computes the same sum in
    // this one.
    const bool same_sum =
        std::string(p.algorithm) == "doubling" && i > 0 && !s.sources.empty() && partner_adds_too(steps, i);
    if (s.sources.size() > 1 && (rank_order || same_sum) && s.pieces > 0) {
      for (size_t j = 0; j + 1 < s.sources.size(); ++j)
        on_step("swap sources", [j](Step& x) { return std::swap(x.sources[j], x.sources[j + 1]), true; });
    }
    if (has_slot(s)) {
      on_step("one piece more", [](Step& x) { return ++x.pieces, true; });
      if (s.pieces > 0) on_step("one piece less", [](Step& x) { return --x.pieces, true; });
    }
    if (p.chunks > 1 && s.pieces > 0)
      on_step("length of the next chunk", [](Step& x) { return ++x.extent, true; });

    for (const bool source : {true, false}) {
      const auto refs = source ? &Step::sources : &Step::destinations;
      const std::string which = source ? " of a source" : " of a destination";
      for (size_t j = 0; j < (s.*refs).size(); ++j) {
        const Ref& r = (s.*refs)[j];
        on_step("remove one" + which, [refs, j](Step& x) {
          return (x.*refs).erase((x.*refs).begin() + static_cast<long>(j)), true;
        });
        if (r.kind == Ref::Kind::slot)
          on_step("lane" + which, [refs, j](Step& x) { return ++(x.*refs)[j].lane, true; });
        if (r.kind != Ref::Kind::local && n > 2) {
          on_step("peer" + which, [refs, j, n, me = p.rank](Step& x) {
            int& peer = (x.*refs)[j].peer;
            do peer = (peer + 1) % n;
            while (peer == me);
            return true;
          });
        }
        if (r.kind != Ref::Kind::slot) {
          const uint32_t chunks = p.buffer_chunks[r.buffer];
          if (chunks > 1)
            on_step("chunk" + which, [refs, j, chunks](Step& x) {
              return (x.*refs)[j].chunk = ((x.*refs)[j].chunk + 1) % chunks, true;
            });
          on_step(
              "other buffer" + which,
              [refs, j](Step& x) {
                Ref& ref = (x.*refs)[j];
                ref.buffer = ref.buffer == kInput ? kOutput : kInput;
                ref.raw = false;
                return true;
              },
              source && !reduces(p.coll) && r.buffer == kOutput &&
                  s.pieces == 1);  // an output may hold a copy of the input
          on_step("flip raw" + which,
                  [refs, j](Step& x) { return (x.*refs)[j].raw = !(x.*refs)[j].raw, true; });
        }
      }
    }
  }
  return all;
}

// Noticed: the check fails, or reports another order of combination.
bool noticed(const std::vector<Program>& programs, bool rank_order, bool works_in_place) {
  for (const bool in_place : {false, true}) {
    if (in_place && !works_in_place) continue;
    const CheckResult result = check(programs, {.slots = 2, .tiles = 2, .in_place = in_place});
    if (!result.ok || result.rank_order != rank_order) return true;
  }
  return false;
}

class EveryMutation : public testing::TestWithParam<const Algorithm*> {};

TEST_P(EveryMutation, IsNoticedUnlessTheResultIsStillRight) {
  const Algorithm& a = *GetParam();
  int made = 0, caught = 0, neutral = 0;
  for (const int n : {2, 3, 4, 6, 7}) {
    const int root = n - 2;
    std::vector<Program> programs;
    for (int r = 0; r < n; ++r) programs.push_back(a.make({n, r, root}));
    const CheckResult right = check(programs);
    ASSERT_TRUE(right.ok) << right.message;
    for (int r = 0; r < n; ++r) {
      const Program original = programs[static_cast<size_t>(r)];
      for (const Mutation& m : mutations(original, a.rank_order)) {
        if (!m.apply(steps_of(programs[static_cast<size_t>(r)]))) continue;
        ++made;
        if (noticed(programs, right.rank_order, a.in_place)) {
          ++caught;
        } else if (m.neutral) {
          ++neutral;
        } else {
          ADD_FAILURE() << a.name << ' ' << name_of(a.coll) << ", " << n << " ranks, root " << root
                        << ": not noticed on rank " << r << ": " << m.what;
        }
        programs[static_cast<size_t>(r)] = original;
      }
    }
  }
  EXPECT_EQ(caught + neutral, made);
  EXPECT_GT(caught, made * 8 / 10) << "too many neutral ones to prove much: " << neutral << " of " << made;
}

std::vector<const Algorithm*> pointers() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& a : algorithms()) all.push_back(&a);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, EveryMutation, testing::ValuesIn(pointers()), [](const auto& p) {
  return std::string(name_of(p.param->coll)) + "_" + p.param->name;
});

}  // namespace
}  // namespace muster
