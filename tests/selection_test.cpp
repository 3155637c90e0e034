// What a call's configuration says about algorithms, and what is planned then.
#include "plan/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "support/outcome.h"

namespace muster {
namespace {

using test::Outcome;
using test::outcome_of;
using testing::AllOf;
using testing::HasSubstr;

std::string selected(Coll coll, const char* text) {
  CallShape call;
  call.coll = coll;
  call.allowed = parse_selection(coll, text);
  return names_of_allowed(call);
}

TEST(Selection, NamesAndBeginningsOfNames) {
  EXPECT_EQ(selected(Coll::all_reduce, "ring"), "ring");
  EXPECT_EQ(selected(Coll::all_reduce, " Ring , DIRECT,"), "direct or ring");
  EXPECT_EQ(selected(Coll::all_reduce, "ha"), "halving_doubling");
  EXPECT_EQ(selected(Coll::all_reduce, "RING_LL128,tree"), "ring or tree");
  EXPECT_EQ(selected(Coll::all_reduce, "hier,Tree_Simple,nvls"), "hierarchical or hierarchical_window or tree");
  EXPECT_EQ(selected(Coll::all_reduce, "window,ring_simple"), "ring or window");
  EXPECT_EQ(selected(Coll::broadcast, "Ring"), "chain") << "NCCL's ring of a broadcast is no closed one";
  EXPECT_EQ(selected(Coll::reduce, "^ring"), "direct or binomial or scatter_gather or window or hierarchical or tree");
  EXPECT_EQ(selected(Coll::gather, "^direct,window"), "binomial");
}

TEST(Selection, OfAllIsNone) {
  for (const char* text : {"", "  ", "^tree", "pairwise,window,hierarchical", "^", "^,"}) EXPECT_EQ(parse_selection(Coll::all_to_all, text), 0) << text;
}

TEST(Selection, OfNothingNamesWhatThereIs) {
  for (const char* text : {"tree", "nvls,collnet_direct", ",", "^p,w,h", "rings", "_ll", "direct direct"}) {
    const Outcome o = outcome_of([&] { parse_selection(Coll::all_to_all, text); });
    EXPECT_EQ(o.code, Result::invalid_argument) << text;
    EXPECT_THAT(o.text, AllOf(HasSubstr(text), HasSubstr("no algorithm of all_to_all. There are: pairwise, window, hierarchical"))) << text;
  }
}

TEST(Selection, HasABitForEachAlgorithmOfACollective) {
  std::map<Coll, int> algorithms_of;
  for (const Algorithm& a : algorithms()) EXPECT_LE(++algorithms_of[a.coll], 16);
}

// Two on each of two hosts.
PlanInputs four_ranks() {
  PlanInputs in;
  in.nranks = 4;
  in.placement = std::make_shared<const Placement>(placement_of(std::vector<int>{0, 0, 1, 1}));
  in.slot_bytes = 32 << 10;
  in.cache_bytes = 32 << 20;
  in.windows = true;
  return in;
}
CallShape all_reduce(uint64_t count, const char* selection) {
  return {Coll::all_reduce, DataType::float32, RedOp::sum, 0, count, parse_selection(Coll::all_reduce, selection)};
}

TEST(Selection, IsKeptTo) {
  for (const Algorithm& a : algorithms()) {
    if (a.windows) continue;
    const CallShape call{a.coll, DataType::float32, RedOp::sum, 0, 16, parse_selection(a.coll, a.name)};
    const Choice c = choose(call, four_ranks());
    EXPECT_STREQ(c.algorithm->name, a.name);
    EXPECT_THAT(c.reason, HasSubstr("the call's configuration")) << a.name;
    EXPECT_EQ(choose_windows({a.coll, DataType::float32, RedOp::sum, 0, 1 << 20, call.allowed}, four_ranks()).algorithm, nullptr);
  }
  // The planner's own choice goes before the first that is named; on several hosts it is made among them.
  PlanInputs one_host = four_ranks();
  one_host.placement = nullptr;
  EXPECT_STREQ(choose(all_reduce(1 << 20, "ring,one_shot,direct"), one_host).algorithm->name, "direct");
  EXPECT_STREQ(choose(all_reduce(16, "ring,one_shot,direct"), one_host).algorithm->name, "one_shot");
  EXPECT_STREQ(choose(all_reduce(16 << 20, "ring,one_shot"), four_ranks()).algorithm->name, "ring") << "1.5 times the data leave a host, not 4 times";
  EXPECT_STREQ(choose(all_reduce(1 << 20, "halving,ring"), four_ranks()).algorithm->name, "ring") << "halving is for short data";
  EXPECT_STREQ(choose_windows(all_reduce(1 << 20, "ring,window"), four_ranks()).algorithm->name, "window");
  PlanInputs one = four_ranks();
  one.nranks = 1;
  EXPECT_THAT(choose(all_reduce(16, "ring"), one).reason, HasSubstr("one rank"));
}

TEST(Selection, ThatNoAlgorithmMeetsSaysWhyAndWhatWould) {
  const auto refused = [](const CallShape& call, const PlanInputs& in) {
    const Outcome o = outcome_of([&] { choose(call, in); });
    EXPECT_EQ(o.code, Result::invalid_argument) << o;
    return o.text;
  };
  EXPECT_THAT(refused(all_reduce(1 << 20, "bruck,window"), four_ranks()),
              AllOf(HasSubstr("bruck is for data that fits one slot of 32768 bytes, window serves only when all buffers are windows"),
                    HasSubstr("Possible are: one_shot, direct, ring, doubling")));
  PlanInputs one_host = four_ranks();
  one_host.placement = nullptr;
  EXPECT_THAT(refused(all_reduce(16, "hierarchical"), one_host), HasSubstr("hierarchical needs two hosts or more, and all ranks are on one"));
  PlanInputs reproducible = four_ranks();
  reproducible.reproducible = true;
  EXPECT_THAT(refused(all_reduce(16, "ring"), reproducible), AllOf(HasSubstr("MUSTER_REPRODUCIBLE=1"), testing::EndsWith("Possible are: one_shot, direct")));
  PlanInputs many = four_ranks();
  many.nranks = 65;
  many.placement = nullptr;
  EXPECT_THAT(refused(all_reduce(1 << 20, "direct"), many), AllOf(HasSubstr("not for 65 ranks"), HasSubstr("ring")));
}

TEST(Selection, OptionsGoBeforeIt) {
  PlanInputs in = four_ranks();
  in.algorithm = "ring";
  in.forced_by = "NCCL_ALGO";
  const Choice c = choose(all_reduce(16, "direct"), in);
  EXPECT_STREQ(c.algorithm->name, "ring");
  EXPECT_EQ(c.reason, "forced by NCCL_ALGO=ring, which goes before the call's configuration");
  // Broadcast has no ring, so that nothing is forced there.
  const CallShape broadcast{Coll::broadcast, DataType::int8, RedOp::sum, 0, 16, parse_selection(Coll::broadcast, "binomial")};
  EXPECT_STREQ(choose(broadcast, in).algorithm->name, "binomial");
}

// --- several hosts ---

TEST(Hosts, TheirProgramsAreTakenWhenForced) {
  PlanInputs in = four_ranks();
  in.forced_by = "MUSTER_ALGO";
  for (const char* name : {"hierarchical", "tree"}) {
    in.algorithm = name;
    const Choice c = choose(all_reduce(1 << 20, ""), in);
    EXPECT_STREQ(c.algorithm->name, name);
    EXPECT_EQ(c.reason, std::string("forced by MUSTER_ALGO=") + name);
  }
}

// A communicator of ranks on one host, made of one on several, goes on without.
TEST(Hosts, OfOneRankEachHaveNoHierarchyAndWhyIsSaid) {
  PlanInputs in = four_ranks();
  in.forced_by = "MUSTER_ALGO";
  in.algorithm = "hierarchical";
  in.placement = nullptr;
  Choice c = choose(all_reduce(1 << 20, ""), in);
  EXPECT_STREQ(c.algorithm->name, "direct");
  EXPECT_THAT(c.reason, testing::StartsWith("MUSTER_ALGO=hierarchical needs two hosts or more, and all ranks are on one; "));
  in.placement = std::make_shared<const Placement>(placement_of(std::vector<int>{0, 1, 2, 3}));
  EXPECT_THAT(choose(all_reduce(1 << 20, ""), in).reason, HasSubstr("each of 4 has one"));
  in.algorithm = "tree";
  EXPECT_STREQ(choose(all_reduce(1 << 20, ""), in).algorithm->name, "tree");
  // Gather has neither.
  EXPECT_THAT(choose({Coll::gather, DataType::int8, RedOp::sum, 0, 16}, in).reason, HasSubstr("gather has no tree"));
}

}  // namespace
}  // namespace muster
