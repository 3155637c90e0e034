// Programs that users bring (MUSTER_PROGRAM): which calls they run, that what they give is right, and what is said of wrong ones.
#include "plan/custom_programs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "muster/muster.h"
#include "plan/estimate.h"
#include "plan/planner.h"
#include "program/program_json.h"
#include "support/corpus.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::Outcome;
using test::outcome_of;
using test::run_processes;
using test::run_threads;
using test::Variable;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

std::string msccl(const std::string& name) { return test::data("msccl/" + name).string(); }

// A file with this text, until the end of the scope.
class File {
 public:
  explicit File(const std::string& text, const std::string& name = "programs.json") {
    char folder[] = "/tmp/muster_custom_XXXXXX";
    EXPECT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    path_ = folder_ / name;
    std::ofstream(path_) << text;
  }
  ~File() { std::filesystem::remove_all(folder_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path folder_, path_;
};

ProgramSet built_in(Coll coll, const char* name, int nranks, const std::string& as, int root = 0) {
  const Algorithm& a = *find_algorithm(coll, name);
  ProgramSet set;
  set.name = as;
  set.idea = "as it is";
  set.in_place = a.in_place;
  for (int r = 0; r < nranks; ++r) {
    set.programs.push_back(a.make({nranks, r, root}));
    set.programs.back().algorithm = as;
  }
  return set;
}

// --- right results ---

int32_t value(int rank, size_t i) { return static_cast<int32_t>(static_cast<size_t>(rank + 1) * 1000 + i * 7 % 501); }

// Makes the call with counts of all kinds, in place and not, and compares with what is right.
void expect_right(Communicator& c, int rank, Coll coll) {
  const auto n = static_cast<size_t>(c.size()), me = static_cast<size_t>(rank);
  for (const size_t count : {size_t{1}, size_t{2}, size_t{3}, size_t{5}, size_t{64}, size_t{1000}, size_t{100'003}})
    for (const bool in_place : {false, true}) {
      const size_t in = coll == Coll::reduce_scatter || coll == Coll::all_to_all ? n * count : count;
      const size_t out = coll == Coll::all_gather || coll == Coll::all_to_all ? n * count : count;
      std::vector<int32_t> a(in), b(out, -1);
      int32_t *send = a.data(), *recv = b.data();
      if (in_place && out >= in) send = recv + (out > in ? me * count : 0);
      if (in_place && out < in) recv = send + me * count;
      for (size_t i = 0; i < in; ++i) send[i] = value(rank, i);
      switch (coll) {
        case Coll::all_reduce: c.all_reduce(send, recv, count, DataType::int32, RedOp::sum); break;
        case Coll::all_gather: c.all_gather(send, recv, count, DataType::int32); break;
        case Coll::reduce_scatter: c.reduce_scatter(send, recv, count, DataType::int32, RedOp::sum); break;
        case Coll::all_to_all: c.all_to_all(send, recv, count, DataType::int32); break;
        default: FAIL();
      }
      size_t wrong = 0;
      for (size_t i = 0; i < out; ++i) {
        int32_t right = 0;
        const int from = static_cast<int>(i / count);
        if (coll == Coll::all_gather) right = value(from, i % count);
        if (coll == Coll::all_to_all) right = value(from, me * count + i % count);
        if (reduces(coll))
          for (int r = 0; r < c.size(); ++r) right += value(r, coll == Coll::reduce_scatter ? me * count + i : i);
        wrong += recv[i] != right;
      }
      EXPECT_EQ(wrong, 0u) << "rank " << rank << ", count " << count << (in_place ? ", in place" : "");
    }
}

struct Use {
  std::string file;
  const char* name;
  Coll coll;
  int nranks;
};
std::vector<Use> uses() {
  return {{msccl("allreduce_ring.xml"), "ring4", Coll::all_reduce, 4},
          {msccl("allreduce_allpairs.xml"), "allpairs4", Coll::all_reduce, 4},
          {msccl("allgather_ring.xml"), "gather3", Coll::all_gather, 3},
          {msccl("alltoall_allpairs.xml"), "pairs3", Coll::all_to_all, 3},
          {msccl("reduce_scatter_ring.xml"), "scatter4", Coll::reduce_scatter, 4}};
}

TEST(Custom, MscclAlgorithmsGiveWhatIsRight) {
  for (const Use& u : uses()) {
    SCOPED_TRACE(u.name);
    const Variable set("MUSTER_PROGRAM", u.file);
    run_threads(u.nranks, [&](Communicator& c, int rank) {
      EXPECT_THAT(c.explain(name_of(u.coll), 1000, DataType::int32), AllOf(HasSubstr(std::string(": ") + u.name + " (custom, from " + u.file), HasSubstr("brought by MUSTER_PROGRAM")));
      expect_right(c, rank, u.coll);
    });
  }
}

TEST(Custom, MscclAlgorithmsGiveWhatIsRightAmongProcesses) {
  const auto all = uses();
  const Variable set("MUSTER_PROGRAM", all[0].file + "," + all[1].file + " ," + all[4].file);
  test::run_process_ranks(4, [&](Communicator& c, int rank) {
    EXPECT_THAT(c.explain("all_reduce", 1000, DataType::int32), HasSubstr("ring4"));
    expect_right(c, rank, Coll::all_reduce);
    expect_right(c, rank, Coll::reduce_scatter);
    expect_right(c, rank, Coll::all_gather);
  });
}

// Every slot program that is built in runs from its file as it does without.
TEST(Custom, ExportedAlgorithmsRun) {
  for (const auto& [coll, name] : std::vector<std::pair<Coll, const char*>>{
           {Coll::all_reduce, "ring"}, {Coll::all_reduce, "bruck"}, {Coll::all_gather, "bruck"}, {Coll::reduce_scatter, "bruck"}, {Coll::all_to_all, "pairwise"}}) {
    SCOPED_TRACE(name);
    const File file(write_program_json(built_in(coll, name, 3, "mine")));
    const Variable set("MUSTER_PROGRAM", file.path());
    run_threads(3, [&, coll = coll](Communicator& c, int rank) {
      EXPECT_THAT(c.explain(name_of(coll), 1 << 20, DataType::int32), HasSubstr(": mine (custom, from " + file.path() + ": as it is)"));
      expect_right(c, rank, coll);  // also what is too long for one slot
    });
  }
}

// The file says that the program is for two buffers: a call in place gives the right result all the same.
TEST(Custom, ProgramsForTwoBuffersServeCallsInPlace) {
  ProgramSet set;
  set.name = "careless";
  set.in_place = false;
  for (int r = 0; r < 2; ++r) {  // rank 1 stores what it receives before it sends what lies there in place
    Program p = find_algorithm(Coll::all_to_all, "pairwise")->make({2, r, 0});
    p.algorithm = set.name;
    const auto me = static_cast<uint32_t>(r), other = 1 - me;
    const Step keep{{input(me)}, {output(me)}, me * 3, 1, false}, send{{input(other)}, {slot(1 - r)}, me * 2 + other, 1, false},
        receive{{slot(1 - r)}, {output(other)}, other * 2 + me, 1, false};
    p.channels[0].loops[0].steps = r == 0 ? std::vector<Step>{keep, send, receive} : std::vector<Step>{keep, receive, send};
    set.programs.push_back(std::move(p));
  }
  set.in_place = true;
  EXPECT_THAT(prove(set).message, AllOf(HasSubstr("rank 1, channel 0, loop 0, step 2"), HasSubstr("\"in_place\": false")));
  set.in_place = false;
  EXPECT_TRUE(prove(set).ok);
  const File file(write_program_json(set));
  const Variable option("MUSTER_PROGRAM", file.path());
  run_threads(2, [&](Communicator& c, int rank) { expect_right(c, rank, Coll::all_to_all); });
}

TEST(Custom, WindowProgramsRunWhereAllBuffersAreWindows) {
  const File file(write_program_json(built_in(Coll::all_reduce, "window", 2, "loads")));
  const Variable set("MUSTER_PROGRAM", file.path());
  run_threads(2, [&](Communicator& c, int rank) {
    EXPECT_THAT(c.explain("all_reduce", 8, DataType::int32),
                AllOf(HasSubstr("; loads (" + file.path() + ") serves only when all buffers are windows"), HasSubstr("when all buffers are from mem_alloc: loads (custom, from ")));
    expect_right(c, rank, Coll::all_reduce);
  });
}

// --- which calls they run ---

std::shared_ptr<const CustomProgram> custom(ProgramSet set, bool rank_order = false) { return std::make_shared<const CustomProgram>("F", std::move(set), rank_order); }

PlanInputs four_ranks() {
  PlanInputs in;
  in.nranks = 4;
  in.slot_bytes = 32 << 10;
  in.cache_bytes = 32 << 20;
  return in;
}

CallShape all_reduce_of_bytes(uint64_t bytes) { return {Coll::all_reduce, DataType::uint8, RedOp::sum, 0, bytes}; }

TEST(Custom, RunsWhatItsFileNames) {
  PlanInputs in = four_ranks();
  ProgramSet set = built_in(Coll::all_reduce, "ring", 4, "mine");
  set.min_bytes = 100;
  set.max_bytes = 200;
  in.custom = {custom(set), custom(built_in(Coll::broadcast, "chain", 4, "from2", 2)), custom(built_in(Coll::all_gather, "ring", 5, "five"))};
  for (const uint64_t bytes : {100, 150, 200}) EXPECT_STREQ(choose(all_reduce_of_bytes(bytes), in).algorithm->name, "mine");
  for (const uint64_t bytes : {99, 201}) {
    const Choice c = choose(all_reduce_of_bytes(bytes), in);
    EXPECT_FALSE(c.custom);
    EXPECT_THAT(c.reason, HasSubstr("; mine (F) is for 100 to 200 bytes"));
  }
  EXPECT_STREQ(choose({Coll::broadcast, DataType::uint8, RedOp::sum, 2, 8}, in).algorithm->name, "from2");
  EXPECT_THAT(choose({Coll::broadcast, DataType::uint8, RedOp::sum, 1, 8}, in).reason, HasSubstr("from2 (F) is for root 2"));
  EXPECT_THAT(choose({Coll::all_gather, DataType::uint8, RedOp::sum, 0, 8}, in).reason, HasSubstr("five (F) is for 5 ranks"));
  EXPECT_FALSE(choose({Coll::reduce_scatter, DataType::uint8, RedOp::sum, 0, 8}, in).custom);
  EXPECT_FALSE(choose_uneven({Coll::all_gather_v, DataType::uint8, RedOp::sum, 0, 8}, 8, in).slots.custom);
}

TEST(Custom, TheFirstThatFitsRunsUnlessAnotherIsForced) {
  PlanInputs in = four_ranks();
  in.custom = {custom(built_in(Coll::all_reduce, "ring", 4, "first")), custom(built_in(Coll::all_reduce, "direct", 4, "ring"), true), custom(built_in(Coll::all_reduce, "direct", 4, "third"), true)};
  in.forced_by = "MUSTER_ALGO";
  EXPECT_STREQ(choose(all_reduce_of_bytes(8), in).algorithm->name, "first");
  in.algorithm = "third";
  const Choice forced = choose(all_reduce_of_bytes(8), in);
  EXPECT_EQ(forced.custom, in.custom[2]);
  EXPECT_THAT(forced.reason, HasSubstr("forced by MUSTER_ALGO=third"));
  in.algorithm = "ring";
  EXPECT_EQ(choose(all_reduce_of_bytes(8), in).custom, in.custom[1]) << "before the built-in one of that name";
  in.algorithm = "one_shot";
  const Choice other = choose(all_reduce_of_bytes(8), in);
  EXPECT_FALSE(other.custom);
  EXPECT_THAT(other.reason, HasSubstr("; first (F) is not what MUSTER_ALGO names"));
}

TEST(Custom, OnlyRankOrderIsReproducible) {
  PlanInputs in = four_ranks();
  in.reproducible = true;
  in.custom = {custom(built_in(Coll::all_reduce, "ring", 4, "mine"))};
  EXPECT_THAT(outcome_of([&] { choose(all_reduce_of_bytes(8), in); }).text, AllOf(HasSubstr("mine (F) does not combine in rank order"), HasSubstr("MUSTER_REPRODUCIBLE=1")));
  in.custom = {custom(built_in(Coll::all_reduce, "direct", 4, "mine"), true)};
  EXPECT_TRUE(choose(all_reduce_of_bytes(8), in).custom);
}

TEST(Custom, MessagesOfManyChunksAreCutSoThatTheyFit) {
  PlanInputs in = four_ranks();
  in.custom = {custom(built_in(Coll::all_gather, "bruck", 4, "mine"))};
  ASSERT_EQ(in.custom[0]->pieces, 2u);
  EXPECT_EQ(choose({Coll::all_gather, DataType::uint8, RedOp::sum, 0, 1 << 20}, in).tile_bytes, in.slot_bytes / 2);
  in.slot_bytes = 64;
  EXPECT_THAT(outcome_of([&] { choose({Coll::all_gather, DataType::uint8, RedOp::sum, 0, 8}, in); }).text, HasSubstr("Raise MUSTER_SLOT_BYTES to 128"));
}

TEST(Custom, CostsWhatTheSameProgramCostsBuiltIn) {
  PlanInputs in = four_ranks();
  in.cores = 2;
  in.custom = {custom(built_in(Coll::all_reduce, "ring", 4, "mine"))};
  for (const uint64_t bytes : {0, 8, 100'000, 10'000'000})
    EXPECT_DOUBLE_EQ(estimate_us(*choose(all_reduce_of_bytes(bytes), in).algorithm, all_reduce_of_bytes(bytes), in),
                     estimate_us(*find_algorithm(Coll::all_reduce, "ring"), all_reduce_of_bytes(bytes), in));
  EXPECT_TRUE(choose(all_reduce_of_bytes(8), in).custom);
}

TEST(Custom, CommunicatorsMadeOfOthersHaveThem) {
  const File two(write_program_json(built_in(Coll::all_reduce, "one_shot", 2, "pair")), "two.json");
  const File four(write_program_json(built_in(Coll::all_reduce, "direct", 4, "all")), "four.json");
  const Variable set("MUSTER_PROGRAM", four.path() + "," + two.path()), forced("MUSTER_ALGO", "pair");
  run_threads(4, [&](Communicator& c, int rank) {
    EXPECT_THAT(c.explain("all_reduce", 8, DataType::int32), AllOf(HasSubstr("pair (" + two.path() + ") is for 2 ranks"), HasSubstr("all (" + four.path() + ") is not what MUSTER_ALGO names")));
    Communicator half = c.split(rank / 2, rank);
    EXPECT_THAT(half.explain("all_reduce", 8, DataType::int32), HasSubstr(": pair (custom, from "));
    expect_right(half, half.rank(), Coll::all_reduce);
    c.barrier();
  });
}

TEST(Custom, OneRankMayHaveOne) {
  const File file(write_program_json(built_in(Coll::all_reduce, "direct", 1, "alone")));
  const Variable set("MUSTER_PROGRAM", file.path());
  run_threads(1, [&](Communicator& c, int rank) {
    EXPECT_THAT(c.explain("all_reduce", 8, DataType::int32), HasSubstr(": alone (custom"));
    expect_right(c, rank, Coll::all_reduce);
  });
}

// --- what is wrong ---

TEST(Custom, WrongProgramsAreRefusedOnAllRanks) {
  ProgramSet set = built_in(Coll::all_reduce, "ring", 3, "mine");
  set.programs[1].channels[0].loops[0].steps[2].destinations[0] = output(0);
  const File wrong(write_program_json(set), "wrong.json"), no_json("{", "none.json");
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {wrong.path(), {"MUSTER_PROGRAM: " + wrong.path() + " is wrong: mine all_reduce, 3 ranks: rank 1, channel 0, loop 0, step 2 (", "expected", "found"}},
      {no_json.path(), {"MUSTER_PROGRAM: " + no_json.path() + ":1:2: no well-formed JSON"}},
      {"/nonexistent/x.json", {"MUSTER_PROGRAM: ", "/nonexistent/x.json", "ENOENT"}},
      {"/tmp", {"MUSTER_PROGRAM: ", "/tmp"}},
      {"-", {"MUSTER_PROGRAM='-': '-' names no file"}},
      {msccl("allreduce_ring.xml") + ",", {"'' names no file"}},
  };
  for (const auto& [value, says] : cases) {
    const Variable option("MUSTER_PROGRAM", value);
    for (const int n : {1, 3}) {
      const Outcome o = outcome_of([&] { Communicator::init_all(n); });
      EXPECT_EQ(o.code, Result::invalid_usage) << value << ": " << o;
      for (const std::string& s : says) EXPECT_THAT(o.text, HasSubstr(s));
    }
  }
  const Variable option("MUSTER_PROGRAM", msccl("allreduce_ring.xml")), forced("MUSTER_ALGO", "mine");
  EXPECT_THAT(outcome_of([] { Communicator::init_all(2); }).text, AllOf(HasSubstr("MUSTER_ALGO='mine' names no algorithm"), HasSubstr("ring4")));
}

// Each rank's outcome of init, where `odd` has the variable set to `value`.
void expect_disagreement(const std::string& value, const std::string& others, const std::vector<std::string>& says) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "20");
  run_processes(3, [&](int rank) {
    setenv("MUSTER_PROGRAM", rank == 1 ? value.c_str() : others.c_str(), 1);
    Communicator c;
    const Outcome o = outcome_of([&] { c = Communicator::from_environment(); });
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    for (const std::string& s : says) EXPECT_THAT(o.text, HasSubstr(s));
    EXPECT_FALSE(c);
  });
}

TEST(Custom, ContentsThatDifferAreNamedOnAllRanks) {
  const std::vector<std::string> says = {"ranks differ in the contents of MUSTER_PROGRAM: rank 0 (host ", "rank 1 (host ", "It must be the same on all ranks"};
  expect_disagreement(msccl("allreduce_ring.xml"), "", says);
  expect_disagreement(msccl("allreduce_ring.xml"), msccl("allreduce_allpairs.xml"), says);
  expect_disagreement("/nonexistent", msccl("allreduce_ring.xml"), {"MUSTER_PROGRAM: can't open /nonexistent: ENOENT"});
}

TEST(Custom, TheSameContentsMayLieElsewhere) {
  run_processes(2, [&](int rank) {
    const std::string text = write_program_json(built_in(Coll::all_reduce, "ring", 2, "mine"));
    const File here(text, fmt::format("of_rank_{}.json", rank));
    setenv("MUSTER_PROGRAM", here.path().c_str(), 1);
    Communicator c = Communicator::from_environment();
    EXPECT_THAT(c.explain("all_reduce", 8, DataType::int32), HasSubstr(here.path()));
    expect_right(c, rank, Coll::all_reduce);
  });
}

}  // namespace
}  // namespace muster
