// Options and ids that can't be: what is wrong is named, on every rank.
#include "base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "muster/muster.h"
#include "support/needs_network.h"
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
using namespace std::chrono_literals;

// --- reading ---

TEST(Options, ValuesThatCannotBeReadAreNamed) {
  const std::map<OptionType, std::vector<const char*>> bad = {
      {OptionType::flag, {"yes", "2", "-1", "01", " 1", "true"}},
      {OptionType::integer, {"x", "-1", "1.5", "1 ", "0x10", "99999999999999999999", "4K"}},
      {OptionType::size, {"x", "-1", "1.5K", "4KB", "4 K", "99999999999G", "K"}},
      {OptionType::seconds, {"x", "-1", "nan", "1s", "1e", "", " 1"}},
  };
  for (const Option& o : option_table()) {
    const auto values = bad.find(o.type);
    if (values == bad.end() || std::string_view(o.name).starts_with("NCCL_")) continue;
    for (const char* v : values->second) {
      if (!*v) continue;  // empty is unset
      const Variable set(o.name, v);
      for (const auto& use : std::vector<std::function<void()>>{[] { Options::from_environment(); }, [] { Communicator::init_all(1); },
                                                                [] { Communicator::init_all(2); }}) {
        const Outcome e = outcome_of(use);
        EXPECT_EQ(e.code, Result::invalid_usage) << o.name << "=" << v;
        EXPECT_THAT(e.text, AllOf(HasSubstr(std::string(o.name) + "='" + v + "'"), HasSubstr("environment"), HasSubstr("wanted")));
      }
    }
  }
}

TEST(Options, EmptyIsUnset) {
  const Variable a("MUSTER_TIMEOUT", ""), b("MUSTER_CHANNELS", ""), c("MUSTER_WINDOWS", "");
  const Options o = Options::from_environment();
  EXPECT_EQ(o.seconds("MUSTER_TIMEOUT").count(), 0);
  EXPECT_TRUE(o.flag("MUSTER_WINDOWS"));
  EXPECT_FALSE(o.is_set("MUSTER_CHANNELS"));
}

TEST(Options, SecondsMayBeAnyNumber) {
  const std::pair<const char*, std::chrono::nanoseconds> cases[] = {{"0.5", 500ms}, {"3e1", 30s}, {"inf", 1'000'000'000s}, {"1e300", 1'000'000'000s}};
  for (const auto& [text, time] : cases) {
    const Variable a("MUSTER_INIT_TIMEOUT", text), b("MUSTER_TIMEOUT", text), c("MUSTER_STALL_WARN", text);
    EXPECT_EQ(Options::from_environment().seconds("MUSTER_TIMEOUT"), time) << text;
    run_threads(2, [](Communicator& comm, int) { comm.barrier(); });
    const Variable fixed("NCCL_COMM_ID", "127.0.0.1:4711");
    EXPECT_EQ(outcome_of([] { make_unique_id(); }).text, "");
  }
}

TEST(Options, SizesHaveUnits) {
  for (const auto& [text, bytes] : std::vector<std::pair<const char*, int64_t>>{{"4096", 4096}, {"4K", 4096}, {"4k", 4096}, {"1M", 1 << 20}}) {
    const Variable set("MUSTER_SLOT_BYTES", text);
    EXPECT_EQ(Options::from_environment().integer("MUSTER_SLOT_BYTES"), bytes);
  }
}

// Values that can be read but not be had.
TEST(Options, ValuesOutOfRangeAreNamed) {
  const std::pair<const char*, const char*> bad[] = {
      {"MUSTER_CHANNELS", "17"},       {"MUSTER_CHANNELS", "4294967296"}, {"MUSTER_SLOT_BYTES", "100"},
      {"MUSTER_SLOT_BYTES", "2097152"},     {"MUSTER_SLOT_BYTES", "1025"},     {"MUSTER_ALGO", "quantum"},
      {"MUSTER_WAIT", "nap"},          {"MUSTER_LOG", "loud"},
  };
  for (const auto& [name, value] : bad) {
    const Variable set(name, value);
    for (const auto& use : std::vector<std::function<void()>>{[] { Communicator::init_all(1); }, [] { Communicator::init_all(3); }}) {
      const Outcome e = outcome_of(use);
      EXPECT_EQ(e.code, Result::invalid_usage) << name << "=" << value << ": " << e;
      EXPECT_THAT(e.text, AllOf(HasSubstr(name), HasSubstr(value)));
    }
  }
  const Variable set("MUSTER_ALGO", "quantum");
  EXPECT_THAT(outcome_of([] { Communicator::init_all(1); }).text, AllOf(HasSubstr("ring"), HasSubstr("one_shot")));
}

TEST(Options, AnAlgorithmThatACollectiveLacksIsSkippedAndSaid) {
  const Variable forced("MUSTER_ALGO", "ring");
  run_threads(3, [](Communicator& c, int rank) {
    EXPECT_THAT(c.explain("broadcast", 1000, DataType::float32), HasSubstr("broadcast has no ring"));
    EXPECT_THAT(c.explain("all_reduce", 1000, DataType::float32), HasSubstr("forced by MUSTER_ALGO=ring"));
    int x = rank, y = -1;
    c.broadcast(&x, &y, 1, DataType::int32, 2);
    EXPECT_EQ(y, 2);
    EXPECT_EQ(outcome_of([&] { (void)c.explain("all_reduced", 1, DataType::int8); }).code, Result::invalid_argument);
  });
}

TEST(Options, VVariantsAreExplained) {
  run_threads(3, [](Communicator& c, int) {
    EXPECT_THAT(c.explain("all_gather_v", 1 << 20, DataType::float32), AllOf(HasSubstr("all_gather_v(float32), 3 ranks: direct ("), HasSubstr("window (")));
    EXPECT_THAT(c.explain("all_to_all_v", 1 << 20, DataType::float32), AllOf(HasSubstr("pairwise ("), HasSubstr("only its two ends know")));
    EXPECT_THAT(c.explain("scatter_v", 10, DataType::float32, {}, 2), HasSubstr("scatter_v(float32, root 2), 3 ranks: direct ("));
    EXPECT_THAT(outcome_of([&] { (void)c.explain("send_recv", 1, DataType::int8); }).text, AllOf(HasSubstr("reduce_scatter_v"), HasSubstr("all_reduce,")));
  });
  const Variable forced("MUSTER_ALGO", "ring");
  run_threads(3, [](Communicator& c, int) {
    EXPECT_THAT(c.explain("reduce_scatter_v", 10, DataType::float32), HasSubstr("forced by MUSTER_ALGO=ring"));
    EXPECT_THAT(c.explain("gather_v", 10, DataType::float32), Not(HasSubstr("MUSTER_ALGO")));
  });
}

TEST(Options, ProgramsAreCheckedBeforeTheyAreUsed) {
  const Variable check("MUSTER_CHECK", "1"), log("MUSTER_LOG", "info");
  testing::internal::CaptureStderr();
  run_threads(3, [](Communicator& c, int rank) {
    for (const size_t count : {size_t{1}, size_t{30000}}) {
      std::vector<int> a(count, rank), b(count);
      c.all_reduce(a.data(), b.data(), count, DataType::int32, RedOp::sum);
      EXPECT_THAT(b, testing::Each(3));
    }
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("all_reduce(count 30000, int32, sum) on 3 ranks is proved right"));
}

// --- agreement ---

// Each rank's outcome of init, where `odd` has the variable set.
void differing(const char* name, const char* value, Result code, const std::vector<std::string>& says, int odd = 1) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "20"), unset(name, std::nullopt);
  run_processes(3, [&](int rank) {
    if (rank == odd) setenv(name, value, 1);
    Communicator c;
    const Outcome o = outcome_of([&] { c = Communicator::from_environment(); });
    EXPECT_EQ(o.code, code) << o;
    for (const std::string& s : says) EXPECT_THAT(o.text, HasSubstr(s));
    EXPECT_FALSE(c);
  });
}

TEST(Agreement, OptionsThatDifferAreNamedOnAllRanks) {
  for (const auto& [name, value, standard] : std::vector<std::tuple<const char*, const char*, const char*>>{{"MUSTER_ALGO", "ring", ""},
                                                                                                         {"MUSTER_ALGO", "quantum", ""},
                                                                                                         {"MUSTER_CHANNELS", "3", "0"},
                                                                                                         {"MUSTER_CHANNELS", "99", "0"},
                                                                                                         {"MUSTER_SLOT_BYTES", "4096", "0"},
                                                                                                         {"MUSTER_REPRODUCIBLE", "1", "0"},
                                                                                                         {"MUSTER_WINDOWS", "0", "1"}}) {
    SCOPED_TRACE(std::string(name) + "=" + value);
    differing(name, value, Result::invalid_usage,
              {std::string("ranks differ in ") + name, std::string("has '") + value + "'", std::string("has '") + standard + "'", "rank 0 (host ",
               "rank 1 (host "});
  }
  // Every option of the table that must agree, whatever is added to it.
  int must_agree = 0;
  for (const Option& o : option_table()) must_agree += o.must_agree;
  EXPECT_GE(must_agree, 5);
}

// What only one rank has wrong, the others learn, too.
TEST(Agreement, AnUnreadableOptionOfOneRankIsToldToAll) {
  differing("MUSTER_WAIT", "nap", Result::invalid_usage, {"MUSTER_WAIT='nap'"}, 2);
}

TEST(Agreement, WithoutSharedMemoryTheNetworkJoinsProcesses) {
  NEED_NETWORK();
  const Variable none("NCCL_SHM_DISABLE", "1");
  run_processes(2, [](int rank) {
    Communicator c = Communicator::from_environment();
    const int x = rank + 1;
    int y = 0;
    c.all_reduce(&x, &y, 1, DataType::int32, RedOp::sum);
    EXPECT_EQ(y, 3);
  });
  run_threads(2, [](Communicator& c, int) { c.barrier(); });
}

TEST(Agreement, HarmlessDifferencesAreFine) {
  run_processes(3, [](int rank) {
    setenv("MUSTER_WAIT", rank == 0 ? "yield" : rank == 1 ? "sleep" : "auto", 1);
    setenv("MUSTER_STALL_WARN", std::to_string(rank + 3).c_str(), 1);
    setenv("MUSTER_LOG", rank ? "off" : "error", 1);
    Communicator c = Communicator::from_environment();
    for (int i = 0; i < 50; ++i) {
      int x = rank, y = 0;
      c.all_reduce(&x, &y, 1, DataType::int32, RedOp::sum);
      EXPECT_EQ(y, 3);
    }
  });
}

// --- unique ids ---

TEST(Ids, GarbageIsRefusedAtOnce) {
  const UniqueId good = make_unique_id();
  std::mt19937 random(1);
  UniqueId zeros{}, half = good, noise, damaged = good;
  std::memset(half.internal + 64, 0, 64);
  for (char& c : noise.internal) c = static_cast<char>(random());
  damaged.internal[70] ^= 1;
  const std::pair<const UniqueId*, const char*> bad[] = {{&zeros, "all zeros"}, {&half, "half-written"}, {&noise, "garbage"}, {&damaged, "checksum"}};
  for (const auto& [id, says] : bad) {
    for (const int n : {1, 2}) {
      const Outcome o = outcome_of([&, id = id] { Communicator::init(n, n - 1, *id); });
      EXPECT_EQ(o.code, Result::invalid_argument);
      EXPECT_THAT(o.text, AllOf(HasSubstr(says), HasSubstr("128 bytes")));
    }
  }
}

TEST(Ids, UsedTwiceIsAnErrorOfTheLater) {
  const UniqueId id = make_unique_id();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] { EXPECT_EQ(outcome_of([&] { Communicator::init(2, rank, id).barrier(); }).code, Result::success); });
  for (auto& t : threads) t.join();
  const Outcome o = outcome_of([&] { Communicator::init(2, 0, id); });
  EXPECT_EQ(o.code, Result::invalid_argument) << o;
  EXPECT_THAT(o.text, HasSubstr("already used"));
}

TEST(Ids, OneRankUsesItsIdUpToo) {
  const UniqueId id = make_unique_id();
  Communicator::init(1, 0, id).barrier();
  for (const int n : {1, 2}) {
    const Outcome o = outcome_of([&] { Communicator::init(n, 0, id); });
    EXPECT_EQ(o.code, Result::invalid_argument) << o;
    EXPECT_THAT(o.text, HasSubstr("already used"));
  }
}

TEST(Ids, RanksThatDoNotComeAreNamed) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "1");
  const UniqueId id = make_unique_id();
  std::vector<std::thread> threads;
  for (const int rank : {0, 3})
    threads.emplace_back([&, rank] {
      const Outcome o = outcome_of([&] { Communicator::init(4, rank, id); });
      EXPECT_EQ(o.code, Result::timeout) << o;
      EXPECT_THAT(o.text, HasSubstr("ranks 1, 2"));
    });
  for (auto& t : threads) t.join();
}

TEST(Ids, OfADeadRootIsATimeoutWithItsAddress) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "1");
  run_processes(2, [](int rank) {
    Communicator c = Communicator::from_environment();
    UniqueId id{};
    if (rank == 0) id = make_unique_id();
    c.broadcast(&id, &id, sizeof id, DataType::uint8, 0);
    if (rank == 0) return c.destroy();  // and this process ends
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const Outcome o = outcome_of([&] { Communicator::init(2, 1, id); });
    EXPECT_THAT(o.code, AnyOf(Result::timeout, Result::remote_error)) << o;
    EXPECT_THAT(o.text, HasSubstr("the root of the unique id (host "));
    EXPECT_THAT(o.text, testing::ContainsRegex(" at [^ ]+:[0-9]+"));
  });
}

}  // namespace
}  // namespace muster
