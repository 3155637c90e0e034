// Programs as JSON: what is written and read again is the same; what can't be read is named by line and place; what can be read
// but is wrong is refused by the checker.
#include "program/program_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "algorithms/algorithms.h"
#include "program/checker.h"
#include "support/outcome.h"

namespace muster {
namespace {

using test::Outcome;
using test::outcome_of;
using testing::AllOf;
using testing::HasSubstr;

ProgramSet set_of(const Algorithm& a, int nranks, int root, int channels) {
  ProgramSet set;
  set.name = a.name;
  set.idea = a.idea;
  set.in_place = a.in_place;
  for (int r = 0; r < nranks; ++r) {
    Program p = a.make({nranks, r, root});
    set.programs.push_back(channels > 1 ? replicate(std::move(p), channels) : std::move(p));
  }
  return set;
}

void expect_same(const ProgramSet& a, const ProgramSet& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.idea, b.idea);
  EXPECT_EQ(a.in_place, b.in_place);
  EXPECT_EQ(a.min_bytes, b.min_bytes);
  EXPECT_EQ(a.max_bytes, b.max_bytes);
  ASSERT_EQ(a.programs.size(), b.programs.size());
  for (size_t r = 0; r < a.programs.size(); ++r)
    EXPECT_TRUE(a.programs[r] == b.programs[r]) << to_string(a.programs[r]) << "read as\n" << to_string(b.programs[r]);
}

TEST(ProgramJson, EveryAlgorithmIsReadAsItWasWritten) {
  for (const Algorithm& a : algorithms())
    for (const int nranks : {1, 2, 3, 4, 5, 8, 13})
      for (const int channels : {1, 3}) {
        if (a.whole && channels > 1) continue;
        SCOPED_TRACE(testing::Message() << name_of(a.coll) << " " << a.name << ", " << nranks << " ranks");
        const ProgramSet set = set_of(a, nranks, rooted(a.coll) ? nranks - 1 : 0, channels);
        const std::string text = write_program_json(set);
        const ProgramSet read = read_program_json(text, "set");
        expect_same(set, read);
        EXPECT_EQ(write_program_json(read), text);
        EXPECT_TRUE(check(read.programs).ok);
      }
}

TEST(ProgramJson, SizesAndSeveralLoopsAreKept) {
  ProgramSet set = set_of(*find_algorithm(Coll::all_reduce, "ring"), 3, 0, 1);
  set.name = "with blanks, no: with (signs) = fine";
  set.name.erase(set.name.find(','), 1);
  set.min_bytes = 8;
  set.max_bytes = UINT64_MAX - 1;
  set.in_place = false;
  for (Program& p : set.programs) {
    p.algorithm = set.name;
    p.channels[0].loops.push_back(p.channels[0].loops[0]);
    p.channels.push_back({});
  }
  expect_same(set, read_program_json(write_program_json(set), "set"));
}

// --- by hand ---

// All-reduce of two ranks: each sends all it has.
std::string by_hand(const std::string& steps = R"({"from": "input[0]", "to": "peer 1"},
       {"from": ["input[0]", "peer 1"], "to": ["output[0]"], "finish": true})",
                    const std::string& head = "") {
  return R"({
  "muster": "programs", "version": 1, "name": "pair", "collective": "all_reduce", "chunks": 1, // a comment
  )" + head + R"("ranks": [
    {"channels": [{"steps": [
       )" + steps + R"(]}]},
    {"channels": [{"steps": [
       {"from": "input[0]", "to": "peer 0"},
       {"from": ["peer 0", "input[0]"], "to": "output[0]", "finish": true}]}]}
  ]
})";
}

TEST(ProgramJson, WrittenByHand) {
  const ProgramSet set = read_program_json(by_hand(), "pair.json");
  ASSERT_EQ(set.programs.size(), 2u);
  EXPECT_EQ(set.name, "pair");
  EXPECT_TRUE(set.in_place);
  const Program& p = set.programs[0];
  EXPECT_EQ(p.algorithm, "pair");
  ASSERT_EQ(p.channels[0].loops[0].steps.size(), 2u);
  const Step first{{contribution(0)}, {slot(1)}, 0, 1, false}, second{{contribution(0), slot(1)}, {output(0)}, 0, 1, true};
  EXPECT_EQ(p.channels[0].loops[0].steps[0], first);
  EXPECT_EQ(p.channels[0].loops[0].steps[1], second);
  const CheckResult result = check(set.programs);
  EXPECT_TRUE(result.ok) << result.message;
}

// The extent is what an input or output of the step says.
TEST(ProgramJson, ExtentsThatPlacesTellCanBeLeftOut) {
  for (const char* name : {"ring", "direct"}) {
    ProgramSet set = set_of(*find_algorithm(Coll::all_to_all, "pairwise"), 4, 0, 1);
    if (std::string(name) == "ring") set = set_of(*find_algorithm(Coll::all_gather, "ring"), 4, 0, 1);
    std::string text = write_program_json(set), without = text;
    for (size_t at; (at = without.find(",\"extent\":")) != std::string::npos;) without.erase(at, without.find_first_of(",}", at + 1) - at);
    EXPECT_LT(without.size(), text.size());
    expect_same(set, read_program_json(without, "set"));
  }
}

TEST(ProgramJson, PlacesAreReadAsTheyAreMeant) {
  const auto place = [](const std::string& text) {
    return read_program_json(by_hand(R"({"from": ")" + text + R"(", "to": "scratch[0]", "extent": 0})"), "f").programs[0].channels[0].loops[0].steps[0].sources[0];
  };
  EXPECT_EQ(place("peer 1"), slot(1));
  EXPECT_EQ(place(" peer  1  lane 7 "), slot(1, 7));
  EXPECT_EQ(place("window 1 output[3]"), window(1, kOutput, 3));
  EXPECT_EQ(place("window 1 input[4294967295]"), window(1, kInput, 4294967295u));
  EXPECT_EQ(place("scratch [ 2 ]"), scratch(2));
  EXPECT_EQ(place("input[2]"), contribution(2));
  for (const char* bad : {"", "peer", "peer 1 lane", "peer 1 lane 64", "peer 1024", "peer -1", "peer 1 2", "input", "input[", "input[1", "input[]", "input[-1]", "input[4294967296]",
                          "output(1)", "contribution[0]", "window input[0]", "window 1", "window 1 peer 2", "Input[0]", "input[0] output[0]"}) {
    const Outcome o = outcome_of([&] { place(bad); });
    EXPECT_EQ(o.code, Result::invalid_argument) << bad;
    EXPECT_THAT(o.text, AllOf(HasSubstr("f:5:9: 'from': "), HasSubstr(std::string("\"") + bad + "\" is no place"), HasSubstr("\"peer 5 lane 1\""), HasSubstr("ranks[0].channels[0].steps[0]")));
  }
}

TEST(ProgramJson, WhatIsWrongIsNamedByLineAndPlace) {
  const std::string good = by_hand();
  const auto with = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    const size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), by);
  };
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"", {"f:1:1: no well-formed JSON"}},
      {good.substr(0, good.size() - 3), {"f:10:", "no well-formed JSON"}},
      {with("\"programs\"", "\"topology\""), {"f:2:3: 'muster': \"programs\" is wanted, found \"topology\""}},
      {with("\"version\": 1", "\"version\": 2"), {"'version': version 2 is newer than this Muster reads, which is 1"}},
      {with("\"version\": 1, ", ""), {"'version' is missing"}},
      {with("\"pair\"", "\"a,b\""), {"'name': a name of 1 to 200 bytes"}},
      {with("\"pair\"", "\"\""), {"'name': a name of 1 to 200 bytes"}},
      {with("all_reduce", "all_reduced"), {"\"all_reduced\" is no collective. Is \"all_reduce\" meant?"}},
      {with("all_reduce", "send_recv"), {"\"send_recv\" is no collective. There are: all_reduce, "}},
      {with("\"chunks\": 1", "\"chunks\": 0"), {"'chunks': 0 is not in 1..2097152"}},
      {with("\"chunks\": 1", "\"chunks\": 1, \"root\": 1"), {"'root': all_reduce has no root"}},
      {with("all_reduce", "reduce"), {"'root' is missing"}},
      {with("all_reduce", "all_gather"), {"'chunks': all_gather of 2 ranks has 2 chunks; leave this out"}},
      {with("\"chunks\": 1", "\"chunks\": 1, \"min_bytes\": 9, \"max_bytes\": 8"), {"'max_bytes': 8 is less than min_bytes, 9"}},
      {with("\"chunks\": 1", "\"chunks\": 1, \"parts\": 65"), {"'parts': 65 is not in 1..64"}},
      {with("\"chunks\": 1", "\"chunks\": 2000000"), {"more than 2097152 chunks times parts on all ranks (in ranks[0])"}},
      {with("\"channels\"", "\"chanels\""), {"f:4:5: 'channels' is missing (in ranks[0])"}},
      {with("\"steps\"", "\"step\""), {"either 'steps', of one loop, or 'loops' is wanted (in ranks[0].channels[0])"}},
      {with("{\"from\": \"input[0]\", \"to\": \"peer 0\"}", "{\"from\": \"input[0]\", \"too\": \"peer 0\"}"), {"f:8:29: 'too': is not known here. Is 'to' meant? (in ranks[1].channels[0].steps[0])"}},
      {with("\"finish\": true", "\"finish\": 1"), {"f:6:", "'finish': true or false is wanted, not a number (in ranks[0].channels[0].steps[1])"}},
      {with("\"to\": \"peer 1\"", "\"to\": 1"), {"'to': a text is wanted, not a number"}},
      {with("\"to\": \"peer 1\"", "\"pieces\": 1"), {"'from' and 'to' are wanted in a step that moves data"}},
      {with("\"to\": \"peer 1\"", "\"to\": \"peer 1\", \"extent\": 1"), {"'extent': 1 is not in 0..0"}},
      {with("\"to\": \"peer 1\"", "\"to\": \"peer 1\", \"extent\": 0, \"pieces\": 0"), {"a step of no pieces passes tokens: leave 'extent' out"}},
      {with("\"to\": \"peer 1\"", "\"to\": \"peer 1\", \"pieces\": 4294967296"), {"'pieces': 4294967296 is not in 0..2097152"}},
      {with("{\"from\": \"input[0]\", \"to\": \"peer 1\"}", "7"), {"an object is wanted, not a number (in ranks[0].channels[0].steps[0])"}},
  };
  for (const auto& [text, says] : cases) {
    const Outcome o = outcome_of([&, &text = text] { read_program_json(text, "f"); });
    EXPECT_EQ(o.code, Result::invalid_argument) << text;
    for (const std::string& s : says) EXPECT_THAT(o.text, HasSubstr(s));
  }
  const std::string scratch_only = by_hand(R"({"from": "peer 1", "to": "scratch[0]"})");
  std::string two = scratch_only;
  two.replace(two.find("\"chunks\": 1"), 11, "\"chunks\": 2");
  EXPECT_THAT(outcome_of([&] { read_program_json(two, "f"); }).text, HasSubstr("'extent' is missing, and no input or output in the step tells"));
}

TEST(ProgramJson, ManyIsRefusedByNumber) {
  std::string refs = "\"peer 1\"", ranks = "{\"channels\": []}";
  for (int i = 0; i < 64; ++i) refs += ", \"peer 1\"";
  EXPECT_THAT(outcome_of([&] { read_program_json(by_hand("{\"from\": [" + refs + "], \"to\": \"output[0]\"}"), "f"); }).text, HasSubstr("65 of them; 64 are the most"));
  for (int i = 0; i < 1024; ++i) ranks += ", {\"channels\": []}";
  const std::string head = R"({"muster": "programs", "version": 1, "name": "x", "collective": "all_reduce", "chunks": 1, "ranks": [)";
  EXPECT_THAT(outcome_of([&] { read_program_json(head + ranks + "]}", "f"); }).text, HasSubstr("the programs of 1 to 1024 ranks are wanted, found 1025"));
  EXPECT_THAT(outcome_of([&] { read_program_json(head + "]}", "f"); }).text, HasSubstr("found 0"));
  std::string steps = R"({"to": "peer 1", "pieces": 0})";
  for (size_t i = 0; i < 20; ++i) {
    if (steps.size() > 12'000'000) break;
    steps += "," + steps;
  }
  EXPECT_THAT(outcome_of([&] { read_program_json(by_hand(steps), "f"); }).text, HasSubstr("more than 400000 steps on all ranks"));
}

TEST(ProgramJson, WhatTheSchemaHasNoWordsForIsRefused) {
  ProgramSet set;
  set.name = "x";
  EXPECT_EQ(outcome_of([&] { write_program_json(set); }).code, Result::invalid_argument);
  const Message messages[] = {{true, 1}};
  set.programs = {send_recv(2, 0, messages)};
  EXPECT_THAT(outcome_of([&] { write_program_json(set); }).text, HasSubstr("send_recv"));
  set = set_of(*find_algorithm(Coll::all_reduce, "direct"), 2, 0, 2);
  set.programs[1] = find_algorithm(Coll::all_reduce, "direct")->make({2, 1, 0});
  EXPECT_THAT(outcome_of([&] { write_program_json(set); }).text, HasSubstr("channels of 2 and of 1 parts"));
}

// --- files that say something wrong ---


// Changes to the text of the ring of four ranks, as an editor or a generator might make them.
TEST(ProgramJson, TheCheckerNamesRankAndStepOfWhatIsWrong) {
  const std::string text = write_program_json(set_of(*find_algorithm(Coll::all_reduce, "ring"), 4, 0, 1));
  const auto nth = [&](int rank, size_t step) {  // where the step's line begins
    size_t at = text.find("\"ranks\"");
    for (int r = 0; r <= rank; ++r) at = text.find("\"channels\"", at) + 1;
    for (size_t s = 0; s <= step; ++s) at = text.find("\n        {", at) + 1;
    return at;
  };
  const auto line_at = [&](size_t at) { return text.substr(at, text.find('\n', at) - at); };
  struct Case {
    int rank;
    size_t step;
    std::string what, by;  // in its line; empty `what`: the line is dropped
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {2, 1, "", "", {"ring all_reduce, 4 ranks: rank ", "channel 0, loop 0, step "}},
      {1, 0, "peer 2", "peer 3", {"ring all_reduce, 4 ranks: rank ", "step "}},
      {0, 2, "peer 3", "peer 2", {"rank ", "step "}},
      {3, 1, "\"extent\":1", "\"extent\":2", {"rank 3, channel 0, loop 0, step 1 (", "expected chunks as long as"}},
      {3, 1, "input[1]", "input[2]", {"rank 3, channel 0, loop 0, step 1 ("}},
      {0, 3, ",\"finish\":true", "", {"rank ", "complete"}},
      {0, 0, "input[3]", "input[4]", {"rank 0, channel 0, loop 0, step 0 (", "at most 4 chunks"}},
      {0, 0, "peer 1", "peer 9", {"rank 0, channel 0, loop 0, step 0 (", "a peer in 0..3"}},
      {0, 0, "input[3]", "scratch[0]", {"rank 0, channel 0, loop 0, step 0 (", "at most 0 chunks"}},
      {0, 0, "peer 1", "peer 0", {"rank 0, channel 0, loop 0, step 0 (", "other than the rank itself"}},
  };
  for (const Case& c : cases) {
    std::string changed = text;
    const size_t at = nth(c.rank, c.step);
    const std::string line = line_at(at);
    if (c.what.empty()) {
      changed.erase(at, line.size() + 1);
    } else {
      const size_t in_line = line.find(c.what);
      ASSERT_NE(in_line, std::string::npos) << c.what << " in " << line;
      changed.replace(at + in_line, c.what.size(), c.by);
    }
    const CheckResult result = check(read_program_json(changed, "ring.json").programs);
    EXPECT_FALSE(result.ok) << line;
    for (const std::string& s : c.says) EXPECT_THAT(result.message, HasSubstr(s)) << line;
  }
}

// Any step dropped from any rank is noticed.
TEST(ProgramJson, NoStepCanBeLeftOut) {
  for (const char* name : {"ring", "direct", "bruck"}) {
    const ProgramSet set = set_of(*find_algorithm(Coll::all_reduce, name), 4, 0, 1);
    for (size_t r = 0; r < set.programs.size(); ++r)
      for (size_t s = 0; s < set.programs[r].channels[0].loops[0].steps.size(); ++s) {
        ProgramSet changed = set;
        auto& steps = changed.programs[r].channels[0].loops[0].steps;
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(s));
        const CheckResult result = check(read_program_json(write_program_json(changed), "f").programs);
        EXPECT_FALSE(result.ok) << name << ", rank " << r << ", step " << s;
        EXPECT_THAT(result.message, HasSubstr("rank "));
      }
  }
}

}  // namespace
}  // namespace muster
