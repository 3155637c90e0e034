// MSCCL's algorithms become programs that the checker finds right; what they can't become is named.
#include "program/msccl_xml.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "program/checker.h"
#include "program/program_json.h"
#include "support/corpus.h"
#include "support/outcome.h"

namespace muster {
namespace {

using test::Outcome;
using test::outcome_of;
using testing::AllOf;
using testing::HasSubstr;

ProgramSet read_file(const std::string& name) { return read_msccl_xml(test::text_of(test::data("msccl/" + name)), name); }

void expect_right(const ProgramSet& set) {
  for (const bool in_place : {false, true})
    for (const int tiles : {1, 2, 3}) {
      if (in_place && !set.in_place) continue;
      const CheckResult result = check(set.programs, {.tiles = tiles, .in_place = in_place});
      EXPECT_TRUE(result.ok) << result.message;
    }
}

size_t steps_of(const Program& p) {
  size_t n = 0;
  for (const Channel& c : p.channels)
    for (const Loop& l : c.loops) n += l.steps.size();
  return n;
}

TEST(Msccl, EachFileIsRight) {
  int files = 0;
  for (const auto& file : test::files_in(test::data("msccl"))) {
    SCOPED_TRACE(file.filename().string());
    const ProgramSet set = read_msccl_xml(test::text_of(file), file.filename().string());
    expect_right(set);
    const ProgramSet again = read_program_json(write_program_json(set), "json");
    EXPECT_TRUE(again.programs == set.programs);
    ++files;
  }
  EXPECT_GE(files, 5);
}

TEST(Msccl, RingIsOneChannelOfSevenSteps) {
  const ProgramSet set = read_file("allreduce_ring.xml");
  EXPECT_EQ(set.name, "ring4");
  EXPECT_TRUE(set.in_place);
  EXPECT_EQ(set.max_bytes, UINT64_MAX);
  ASSERT_EQ(set.programs.size(), 4u);
  for (const Program& p : set.programs) {
    EXPECT_EQ(p.coll, Coll::all_reduce);
    EXPECT_EQ(p.chunks, 4u);
    EXPECT_EQ(p.buffer_chunks[kScratch], 0u);
    ASSERT_EQ(p.channels.size(), 1u);
    EXPECT_EQ(steps_of(p), 7u);
  }
  // s sends the input; rrs adds to what arrives and keeps nothing; rrcs completes, keeps and sends.
  const auto& steps = set.programs[1].channels[0].loops[0].steps;
  EXPECT_EQ(steps[0], (Step{{contribution(1)}, {slot(2)}, 1, 1, false}));
  EXPECT_EQ(steps[1], (Step{{slot(0), contribution(0)}, {slot(2)}, 0, 1, false}));
  EXPECT_EQ(steps[3], (Step{{slot(0), contribution(2)}, {output(2), slot(2)}, 2, 1, true}));
  EXPECT_EQ(steps[4], (Step{{slot(0)}, {output(1), slot(2)}, 1, 1, false}));
  EXPECT_EQ(steps[6], (Step{{slot(0)}, {output(3)}, 3, 1, false}));
}

TEST(Msccl, ThreadblocksThatWaitForEachOtherAreOneChannel) {
  const ProgramSet set = read_file("allreduce_allpairs.xml");
  EXPECT_EQ(set.min_bytes, 0u);
  EXPECT_EQ(set.max_bytes, 1u << 20);
  for (const Program& p : set.programs) {
    EXPECT_EQ(p.channels.size(), 1u);
    EXPECT_EQ(steps_of(p), 15u);
    EXPECT_EQ(p.buffer_chunks[kScratch], 3u);
  }
}

// A rank's block of two chunks is one chunk in two parts, each with a channel and a lane of its own.
TEST(Msccl, ChunksOfABlockAreParts) {
  const ProgramSet set = read_file("allgather_ring.xml");
  EXPECT_EQ(lanes_of(set), 2);
  for (const Program& p : set.programs) {
    EXPECT_EQ(p.chunks, 3u);
    EXPECT_EQ(p.buffer_chunks[kInput], 1u);
    EXPECT_EQ(p.buffer_chunks[kOutput], 3u);
    for (const Channel& c : p.channels) EXPECT_EQ(c.parts, 2);
  }
}

TEST(Msccl, ThreadblocksThatWaitForNothingStayChannels) {
  const ProgramSet set = read_file("alltoall_allpairs.xml");
  EXPECT_TRUE(set.in_place) << "each block leaves before the one that takes its place arrives";
  for (const Program& p : set.programs) EXPECT_EQ(p.channels.size(), 3u);
}

// Sums that an algorithm keeps in its input go to scratch: the caller's input is left alone.
TEST(Msccl, InputThatIsWrittenIsScratch) {
  for (const Program& p : read_file("reduce_scatter_ring.xml").programs) {
    EXPECT_GT(p.buffer_chunks[kScratch], 0u);
    EXPECT_EQ(p.buffer_chunks[kOutput], 1u);
  }
}

// --- what is wrong ---

std::string algo(const std::string& gpus, const std::string& attributes = R"(coll="allgather" ngpus="2" nchunksperloop="2" inplace="1")") {
  return "<algo name=\"a\" nchannels=\"1\" proto=\"LL\" " + attributes + ">\n" + gpus + "</algo>\n";
}
std::string gpu(int id, const std::string& steps, const std::string& tb = "") {
  const int other = 1 - id;
  return fmt::format("<gpu id=\"{}\" i_chunks=\"1\" o_chunks=\"2\" s_chunks=\"1\">\n<tb id=\"0\" send=\"{}\" recv=\"{}\" chan=\"0\">\n{}</tb>\n{}</gpu>\n", id, other, other, steps, tb);
}
std::string step(int s, const std::string& type, const std::string& src, int from, const std::string& dst, int to, int count = 1, int dep = -1, int dep_step = -1) {
  return fmt::format("<step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" cnt=\"{}\" depid=\"{}\" deps=\"{}\" hasdep=\"0\"/>\n", s, type, src, from, dst,
                     to, count, dep, dep_step);
}
std::string exchange(int id) { return step(0, "s", "i", 0, "o", id) + step(1, "r", "i", 0, "o", 1 - id); }

TEST(Msccl, SmallestAlgorithm) {
  const ProgramSet set = read_msccl_xml(algo(gpu(0, exchange(0)) + gpu(1, exchange(1))), "f");
  expect_right(set);
  EXPECT_TRUE(set.in_place);
}

TEST(Msccl, WhatIsWrongIsNamed) {
  const std::string good0 = gpu(0, exchange(0)), good1 = gpu(1, exchange(1));
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"", {"f is empty"}},
      {"<graphs/>", {"f:1:2: <graphs>: no MSCCL algorithm, which begins with <algo>"}},
      {algo(good0 + good1, R"(coll="allreduce" ngpus="2")"), {"'nchunksperloop' is missing"}},
      {algo(good0 + good1, R"(coll="custom" ngpus="2" nchunksperloop="2")"), {"coll=\"custom\" is not a collective that can be run. Possible are: allreduce, "}},
      {algo(good0 + good1, R"(coll="allgather" ngpus="2" nchunksperloop="3")"), {"nchunksperloop=3 is no multiple of ngpus=2"}},
      {algo(good0 + good1, R"(coll="allgather" ngpus="9999" nchunksperloop="3")"), {"ngpus=\"9999\" is not in 1..1024"}},
      {algo(good0), {"gpu 1 is missing, of ngpus=2"}},
      {algo(good0 + good0), {"<gpu>: gpu 0 is there twice"}},
      {algo(good0 + "<cpu/>"), {"<cpu>: only <gpu> is known in <algo>"}},
      {algo(good0 + gpu(1, step(0, "x", "i", 0, "o", 0))), {"type=\"x\" is not known. There are: s, r, cpy, "}},
      {algo(good0 + gpu(1, step(1, "s", "i", 0, "o", 0))), {"s=\"1\": step 0 of its threadblock was expected here"}},
      {algo(good0 + gpu(1, step(0, "s", "q", 0, "o", 0))), {"srcbuf=\"q\": i (input), o (output) and s (scratch) are known"}},
      {algo(good0 + gpu(1, step(0, "s", "i", 1, "o", 0))), {"input[1]: gpu 1 has 1 chunks there"}},
      {algo(good0 + gpu(1, step(0, "r", "i", 0, "o", 2))), {"output[2]: gpu 1 has 2 chunks there"}},
      {algo(good0 + gpu(1, step(0, "s", "s", 0, "o", 0))), {"gpu 1 reads s[0], where nothing is yet"}},
      {algo(good0 + gpu(1, step(0, "re", "i", 0, "o", 0))), {"type=\"re\" reduces, and all_gather doesn't"}},
      {algo(good0 + gpu(1, step(0, "s", "i", 0, "o", 0, 1, 7, 0))), {"depid=\"7\" names no threadblock of gpu 1"}},
      {algo(good0 + gpu(1, step(0, "s", "i", 0, "o", 0, 1, 0, 9))), {"deps=\"9\" names no step of threadblock 0, which has 1"}},
      {algo(gpu(0, step(0, "s", "i", 0, "o", 0, 1, 0, 0)) + good1), {"f:4:2: <step>: gpu 0 waits for ever, for the step that it depends on"}},
      {algo(good0 + gpu(1, step(0, "r", "i", 0, "o", 0) + step(1, "r", "i", 0, "o", 0) + step(2, "s", "i", 0, "o", 0))), {"f:5:2: <step>: gpu 0 waits for ever, for a message from gpu 1"}},
      {algo(gpu(0, step(0, "s", "o", 0, "o", 0, 2)) + good1), {"gpu 0 reads o[1], where nothing is yet"}},
      {algo(good0 + gpu(1, exchange(1), "<tb id=\"1\" send=\"0\" recv=\"-1\" chan=\"0\"/>\n")), {"two threadblocks of gpu 1 send to gpu 0 on channel 0"}},
      {algo(good0 + gpu(1, exchange(1), "<tb id=\"0\" send=\"-1\" recv=\"-1\" chan=\"0\"/>\n")), {"threadblock 0 of gpu 1 is there twice"}},
      {algo(good0 + gpu(1, exchange(1), "<tb id=\"1\" send=\"-1\" recv=\"-1\" chan=\"1\">" + step(0, "s", "i", 0, "o", 0) + "</tb>\n")),
       {"sends, and its threadblock has no send peer"}},
      {algo(good0 + gpu(1, exchange(1), "<tb id=\"1\" send=\"1\" recv=\"-1\" chan=\"1\"/>\n")), {"gpu 1 can't send to itself"}},
      {algo(good0 + good1, R"(coll="allgather" ngpus="2" nchunksperloop="2" inplace="1" minBytes="9" maxBytes="8")"), {"maxBytes=8 is less than minBytes=9"}},
      {algo(good0 + good1, R"(coll="allgather" ngpus="2" nchunksperloop="400" inplace="1")"), {"200 chunks per rank; 64 are the most"}},
  };
  for (const auto& [text, says] : cases) {
    const Outcome o = outcome_of([&, &text = text] { read_msccl_xml(text, "f"); });
    EXPECT_EQ(o.code, Result::invalid_argument) << text;
    for (const std::string& s : says) EXPECT_THAT(o.text, HasSubstr(s)) << text;
  }
}

// More messages on their way than connections are sure to hold.
TEST(Msccl, MessagesThatFitNoConnectionAreRefused) {
  std::string first, second;
  for (int i = 0; i < 3; ++i) first += step(i, "s", "i", 0, "o", 0), second += step(i, "s", "i", 0, "o", 1);
  for (int i = 0; i < 3; ++i) first += step(3 + i, "r", "i", 0, "o", 1), second += step(3 + i, "r", "i", 0, "o", 0);
  EXPECT_THAT(outcome_of([&] { read_msccl_xml(algo(gpu(0, first) + gpu(1, second)), "f"); }).text, AllOf(HasSubstr("waits for ever"), HasSubstr("holds 2 messages")));
}

// What can be read but is no all-gather is for the checker to say.
TEST(Msccl, WrongAlgorithmsAreRefusedByTheChecker) {
  const std::string half = gpu(1, step(0, "s", "i", 0, "o", 1) + step(1, "r", "i", 0, "s", 0));
  const ProgramSet set = read_msccl_xml(algo(gpu(0, exchange(0)) + half), "f");
  const CheckResult result = check(set.programs);
  EXPECT_FALSE(result.ok);
  EXPECT_THAT(result.message, HasSubstr("rank 1: expected rank 1's output(0) to hold the result, found it not written"));
}

}  // namespace
}  // namespace muster
