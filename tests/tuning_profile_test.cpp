// Profiles of `muster tune`: measured, written, read back, agreed on, and chosen by.
#include "comm/tuning_profile.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "algorithms/algorithms.h"
#include "comm/tune.h"
#include "plan/host_price.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/shell.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using test::outcome_of;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class TuningProfileTest : public testing::Test {
 protected:
  TuningProfileTest() {
    std::string pattern = (fs::temp_directory_path() / "muster-tuning-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~TuningProfileTest() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  // As a communicator would load it.
  static TuningProfile load(const std::string& system_file = "/nowhere") {
    return load_tuning_profile(Options::from_environment("/nowhere"), system_file.c_str());
  }

 private:
  fs::path folder_;
};

TEST_F(TuningProfileTest, GoesBeforeTheBuiltInConstants) {
  const std::string file = write("one", "# a comment\nhost.turn 7.5 us measured by hand\n");
  const Variable v("MUSTER_TUNING_PROFILE", file);
  const TuningProfile p = load();
  EXPECT_EQ(p.file, file);
  EXPECT_NE(p.hash, 0u);
  ASSERT_NE(p.constants, nullptr);
  EXPECT_EQ((*p.constants)("host.turn"), 7.5);
  EXPECT_EQ((*p.constants)("host.call"), Constants::built_in()("host.call"));
}

TEST_F(TuningProfileTest, TimesOfCallsAreAPartOfIt) {
  const auto hash = [&](const std::string& text) {
    const Variable v("MUSTER_TUNING_PROFILE", write("one", text));
    return load().hash;
  };
  const std::string row = "calls all_reduce direct 2 2 8:1 32:2\n";
  std::set<uint64_t> hashes = {hash(""), hash(row)};
  for (const char* other :
       {"all_reduce direct 2 2 8:1 32:2.5", "all_reduce direct 2 2 8:1 64:2", "all_reduce direct 2 2 8:1",
        "all_reduce direct 4 2 8:1 32:2", "all_reduce direct 2 4 8:1 32:2", "all_reduce ring 2 2 8:1 32:2",
        "all_gather direct 2 2 8:1 32:2"})
    hashes.insert(hash(fmt::format("calls {}\n", other)));
  EXPECT_EQ(hashes.size(), 9u);
  EXPECT_EQ(hash("# a comment\n" + row), hash(row));
}

TEST_F(TuningProfileTest, IsLookedForWhereUsersAndAdministratorsPutIt) {
  const Variable v("MUSTER_TUNING_PROFILE", std::nullopt), home("HOME", path(""));
  EXPECT_EQ(load().file, "");
  EXPECT_EQ(load().hash, 0u);
  EXPECT_EQ(load().constants, nullptr);
  const std::string system = write("system", "host.turn 1 us measured x\n");
  EXPECT_EQ(load(system).file, system);
  write(".muster.tuning", "host.turn 2 us measured x\n");
  EXPECT_EQ((*load(system).constants)("host.turn"), 2);
  EXPECT_EQ(load(system).file, default_tuning_file(Options::from_environment("/nowhere")));
  const Variable none("MUSTER_TUNING_PROFILE", "");  // set to nothing: none
  EXPECT_EQ(load(system).constants, nullptr);
}

TEST_F(TuningProfileTest, WhatIsWrongInItIsNamed) {
  const auto error = [&](const std::string& text) {
    const std::string file = write("wrong", text);
    const Variable v("MUSTER_TUNING_PROFILE", file);
    const test::Outcome o = outcome_of([] { load(); });
    EXPECT_EQ(o.code, Result::invalid_usage) << text;
    EXPECT_THAT(o.text, HasSubstr("the tuning profile"));
    return o.text.substr(std::min(o.text.size(), o.text.find(file) + file.size()));
  };
  EXPECT_THAT(error("# x\nhost.turn seven us measured x\n"), StartsWith(":2: 'seven' is no number"));
  EXPECT_THAT(error("host.turn 7 us guessed x\n"), StartsWith(":1: 'guessed' doesn't say"));
  EXPECT_THAT(error("\nhost.turns 7 us measured x\n"), StartsWith(":2: the cost model has no host.turns"));
  EXPECT_THAT(error("host.turn 7 ms measured x\n"), StartsWith(":1: host.turn is in us, not ms"));
  EXPECT_THAT(error("host.slot 0 GB/s measured x\n"), StartsWith(":1: host.slot is a rate of 0"));
  EXPECT_THAT(error("host.turn 7 us measured x\nhost.turn 8 us measured x\n"),
              StartsWith(":2: host.turn is there twice"));
  const Variable v("MUSTER_TUNING_PROFILE", path("none"));
  EXPECT_THAT(outcome_of([] { load(); }).text, AllOf(HasSubstr("MUSTER_TUNING_PROFILE='"),
                                                     HasSubstr("No such file"), HasSubstr("muster tune")));
}

TEST_F(TuningProfileTest, AWrongOneFailsOnAllRanks) {
  const Variable v("MUSTER_TUNING_PROFILE", write("wrong", "host.turn much us measured x\n"));
  const test::Outcome o = outcome_of([] { Communicator::init_all(2); });
  EXPECT_THAT(o.text, HasSubstr("wrong:1: 'much' is no number"));
}

TEST(TuningProfile, RanksWithDifferentOnesAreAnErrorThatNamesBoth) {
  EXPECT_NO_THROW(require_one_profile({{"rank 0", "/a", 5}, {"rank 1", "/b", 5}}));  // the same contents
  const test::Outcome o = outcome_of([] {
    require_one_profile({{"rank 0 (host a, pid 1)", "/a", 5}, {"rank 1 (host a, pid 2)", "", 0}});
  });
  EXPECT_EQ(o.code, Result::invalid_usage);
  EXPECT_THAT(o.text,
              AllOf(HasSubstr("rank 0 (host a, pid 1) has /a (contents 0000000000000005)"),
                    HasSubstr("rank 1 (host a, pid 2) has none"), HasSubstr("MUSTER_TUNING_PROFILE")));
}

TEST_F(TuningProfileTest, RanksThatStartWithDifferentOnesDoNotMeet) {
  test::run_processes(2, [](int rank) {
    const std::string file = fs::temp_directory_path() / ("muster-tuning-rank-" + std::to_string(getpid()));
    std::ofstream(file) << "host.turn " << rank + 1 << " us measured x\n";
    const Variable v("MUSTER_TUNING_PROFILE", file);
    const test::Outcome o = outcome_of([] { Communicator::from_environment(); });
    fs::remove(file);
    EXPECT_EQ(o.code, Result::invalid_usage);
    EXPECT_THAT(o.text, AllOf(HasSubstr("ranks differ in their tuning profile"), HasSubstr("rank 0 (host"),
                              HasSubstr("rank 1 (host"), HasSubstr(file)));
  });
}

TEST_F(TuningProfileTest, TheCheapestByItIsChosen) {
  PlanInputs in;
  in.nranks = 4;
  in.cores = 4;
  in.slot_bytes = 32 << 10;
  in.cache_bytes = 32 << 20;
  in.windows = true;
  auto dear_bytes = std::make_shared<Constants>(Constants::built_in());
  dear_bytes->override_with(Constants::read("host.slot 0.001 GB/s measured x\n", "test"), "test");
  in.tuned = dear_bytes;
  const CallShape call{Coll::all_reduce, DataType::float32, RedOp::sum, 0, 512};
  const Choice slots = choose(call, in), windows = choose_windows(call, in);
  EXPECT_STREQ(slots.algorithm->name, "direct");  // sends 1.5 times the data, one_shot 3 times
  EXPECT_THAT(slots.reason, StartsWith("cheapest by the tuning profile: "));
  ASSERT_NE(windows.algorithm, nullptr);  // has no slots
  auto dear_messages = std::make_shared<Constants>(Constants::built_in());
  dear_messages->override_with(
      Constants::read("host.hand_over 1000 us measured x\nhost.slot 1000 GB/s measured x\n", "test"), "test");
  in.tuned = dear_messages;
  EXPECT_STREQ(choose(call, in).algorithm->name, "one_shot");  // one round
  EXPECT_EQ(choose_windows(call, in).algorithm, nullptr);      // two
  // What was measured never leads to sums that are rounded on the way.
  for (const Algorithm& a : algorithms()) {
    CallShape any = call;
    any.coll = a.coll;
    if (reduces(any.coll)) {
      EXPECT_TRUE(choose(any, in).algorithm->rank_order) << a.name;
    }
  }
}

TEST_F(TuningProfileTest, WithoutOneThresholdsChooseAsEver) {
  PlanInputs in;
  in.nranks = 2;
  in.cores = 2;
  in.slot_bytes = 32 << 10;
  in.cache_bytes = 32 << 20;
  EXPECT_STREQ(choose({Coll::all_reduce, DataType::float32, RedOp::sum, 0, 4096}, in).algorithm->name,
               "one_shot");
  EXPECT_STREQ(choose({Coll::all_reduce, DataType::float32, RedOp::sum, 0, 4097}, in).algorithm->name,
               "direct");
}

// Whatever this machine is, what is measured can be written, read back, and used; two ranks as threads.
TEST_F(TuningProfileTest, WhatIsMeasuredHereReadsBack) {
  const Variable none("MUSTER_TUNING_PROFILE", "");
  std::string text;
  test::run_threads(2, [&](Communicator& comm, int rank) {
    const Constants tuned = tune_calls(
        comm, tune_host(comm, Constants::built_in(), {.per_experiment = std::chrono::milliseconds(1)}),
        std::chrono::milliseconds(300));
    if (rank == 0) text = profile_text(tuned, "a test");
  });
  EXPECT_THAT(text, AllOf(HasSubstr("# a test\n"), HasSubstr("host."), HasSubstr("\ncalls "),
                          HasSubstr("\nhost.spread")));
  const Variable v("MUSTER_TUNING_PROFILE", write("measured", text));
  const TuningProfile p = load();
  ASSERT_NE(p.constants, nullptr);
  for (const auto& [name, c] : p.constants->all())
    if (name.starts_with("host.")) {
      EXPECT_GT(c.value, 0) << name;
    }
  test::run_threads(2, [](Communicator& comm, int rank) {
    std::vector<float> in(1000, static_cast<float>(rank + 1)), out(1000);
    comm.all_reduce(in.data(), out.data(), 1000, DataType::float32, RedOp::sum);
    EXPECT_EQ(out[999], 3);
    EXPECT_THAT(comm.explain("all_reduce", 1000, DataType::float32),
                HasSubstr("cheapest by the tuning profile"));
  });
}

TEST_F(TuningProfileTest, TheToolMeasuresAndWritesOne) {
  const test::Output o =
      test::output_of(MUSTER_TOOL " tune --seconds 0.02 --output " + path("tool") + " 2>&1");
  ASSERT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("host.call"), HasSubstr("host.turn"), HasSubstr("\ncalls "),
                            HasSubstr("Written to " + path("tool"))));
  const Variable v("MUSTER_TUNING_PROFILE", path("tool"));
  EXPECT_THAT(read("tool"), StartsWith("# Muster "));
  EXPECT_NE(load().constants, nullptr);
  const test::Output plan = test::output_of(MUSTER_TOOL " plan all_reduce --size 1M --host --ranks 2 2>&1");
  EXPECT_EQ(plan.status, 0);
  EXPECT_THAT(plan.text,
              AllOf(StartsWith("all_reduce of 1MB, float32: 2 ranks on host memory"),
                    HasSubstr("constants  " + path("tool")), HasSubstr("cheapest by the tuning profile")));
}

TEST_F(TuningProfileTest, TheToolRefusesWhatItCannotDo) {
  const test::Output many = test::output_of(MUSTER_TOOL " tune --ranks 1000 --output " + path("x") + " 2>&1");
  EXPECT_EQ(many.status, 1);
  EXPECT_THAT(many.text, HasSubstr("each rank needs its own"));
  const test::Output place = test::output_of(MUSTER_TOOL " tune --output /nowhere/x 2>&1");
  EXPECT_EQ(place.status, 1);
  EXPECT_THAT(place.text, AllOf(HasSubstr("/nowhere/x"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace muster
