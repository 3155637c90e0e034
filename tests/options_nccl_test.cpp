// What is set for NCCL: read from environment and files as its users expect, honoured or told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "base/text.h"
#include "comm/nccl_algo.h"
#include "comm/plan_options.h"
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
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kNone = "/nonexistent/nccl.conf";

using Set = std::vector<std::pair<std::string, std::string>>;

// Variables for the length of a test, among no others of NCCL's or Muster's, and without the user's file.
class Environment {
 public:
  explicit Environment(const Set& set) {
    std::vector<std::string> before;
    for (char** e = environ; *e; ++e)
      if (const std::string entry = *e; lower(entry).starts_with("nccl_") || entry.starts_with("MUSTER_") || entry.starts_with("HOME="))
        before.push_back(entry.substr(0, entry.find('=')));
    for (const std::string& name : before) put(name, std::nullopt);
    for (const auto& [name, value] : set) put(name, value);
  }
  ~Environment() {
    while (!variables_.empty()) variables_.pop_back();  // last first
  }
  void put(const std::string& name, const std::optional<std::string>& value) {
    names_.push_back(name);
    variables_.push_back(std::make_unique<Variable>(names_.back().c_str(), value));
  }

 private:
  std::deque<std::string> names_;
  std::vector<std::unique_ptr<Variable>> variables_;
};

std::vector<std::string> texts(const Options& o, bool warning) {
  std::vector<std::string> r;
  for (const OptionNote& n : o.notes())
    if (n.warning == warning) r.push_back(n.text);
  return r;
}

// --- the registry ---

TEST(Registry, IsWellFormed) {
  std::set<std::string> names;
  bool families = false;
  for (const Option& o : option_table()) {
    const std::string name = o.name;
    EXPECT_TRUE(names.insert(name).second) << name << " twice";
    EXPECT_TRUE(name.starts_with("NCCL_") || name.starts_with("MUSTER_")) << name;
    EXPECT_LT(name.size(), 64u) << name;
    // An exact row is found before the family it is in.
    if (name.ends_with('*')) families = true;
    if (!o.no_effect) {
      EXPECT_FALSE(families) << name;
      EXPECT_NE(std::string(o.help), "") << name;
    } else {
      EXPECT_FALSE(o.must_agree) << name << " has no effect";
      EXPECT_GT(std::string(o.no_effect).size(), 10u) << name;
    }
  }
  EXPECT_GE(names.size(), 290u);
}

// Those that frameworks, clouds and guides set.
TEST(Registry, HasWhatPeopleSet) {
  std::set<std::string> names;
  for (const Option& o : option_table()) names.insert(o.name);
  for (const char* name :
       {"DEBUG", "DEBUG_SUBSYS", "DEBUG_FILE", "SOCKET_IFNAME", "SOCKET_NTHREADS", "NSOCKS_PERTHREAD", "IB_DISABLE", "IB_HCA", "IB_TIMEOUT",
        "IB_GID_INDEX", "IB_TC", "IB_SL", "CROSS_NIC", "NET_GDR_LEVEL", "P2P_DISABLE", "P2P_LEVEL", "SHM_DISABLE", "CUMEM_ENABLE",
        "NVLS_ENABLE", "COLLNET_ENABLE", "ALGO", "PROTO", "BUFFSIZE", "NTHREADS", "MIN_NCHANNELS", "MAX_NCHANNELS", "MIN_CTAS", "MAX_CTAS",
        "TOPO_FILE", "TOPO_DUMP_FILE", "GRAPH_FILE", "CHECK_POINTERS", "LAUNCH_MODE", "COMM_BLOCKING", "RAS_ENABLE", "NVTX_DISABLE",
        "ASYNC_ERROR_HANDLING", "BLOCKING_WAIT", "VERSION", "TUNER_PLUGIN", "NET_PLUGIN", "PROFILER_PLUGIN", "SET_THREAD_NAME",
        "IGNORE_CPU_AFFINITY", "OOB_NET_ENABLE", "HOSTID", "COMM_ID", "SOCKET_FAMILY", "RUNTIME_CONNECT", "CTA_POLICY", "WIN_ENABLE"})
    EXPECT_TRUE(names.count(std::string("NCCL_") + name)) << name;
}

// Every row that isn't honoured may be set to anything: that is told, and nothing fails or changes.
TEST(Registry, WhatHasNoEffectIsToldAndNeverFails) {
  const std::vector<std::string> standard = Options::inspect(kNone).agreement();
  for (const std::string& value : std::vector<std::string>{"1", "-2", "-7", "0x10", "junk", " ", "22 # comment"}) {
    Environment env(Set{});
    for (const Option& o : option_table()) {
      const std::string name = o.name;
      if (o.no_effect) env.put(name.ends_with('*') ? name.substr(0, name.size() - 1) + "ANY" : name, value);
    }
    const Options options = Options::from_environment(kNone);
    EXPECT_EQ(options.agreement(), standard);
    for (const Option& o : option_table()) {
      if (!o.no_effect || std::string_view(o.name).ends_with('*')) continue;
      const bool number = o.type == OptionType::integer;
      const bool readable = !number || parse_c_integer(value);
      const bool marked = number && value == "-2";  // NCCL's own mark for unset
      const std::string shown = std::string(o.name) + "='" + value + "'";
      const auto told = Contains(AllOf(HasSubstr(shown), HasSubstr(o.no_effect)));
      EXPECT_THAT(texts(options, !readable), marked ? testing::Matcher<std::vector<std::string>>(Not(told)) : told) << o.name;
      EXPECT_EQ(options.is_set(o.name), readable && !marked) << o.name;
    }
  }
}

// --- numbers as NCCL reads them ---

TEST(NcclValues, NumbersAreWrittenAsInC) {
  for (const auto& [text, n] : std::vector<std::pair<const char*, int64_t>>{
           {"4", 4}, {" 4 ", 4}, {"+4", 4}, {"0x4", 4}, {"0X0a", 10}, {"010", 8}, {"0", 0}, {"9223372036854775807", INT64_MAX}}) {
    const Environment env(Set{{"NCCL_MIN_NCHANNELS", text}});
    const Options o = Options::from_environment(kNone);
    EXPECT_EQ(o.integer("NCCL_MIN_NCHANNELS"), n) << text;
    EXPECT_TRUE(o.is_set("NCCL_MIN_NCHANNELS")) << text;
    EXPECT_THAT(texts(o, true), IsEmpty()) << text;
  }
}

TEST(NcclValues, ThatCannotBeReadAreWarnedAboutAndTheDefaultIsUsed) {
  for (const char* text : {"x", "4 channels", "1.5", "0x", "08", "-1", " ", "-", "9223372036854775808", "4K"}) {
    const Environment env(Set{{"NCCL_MIN_NCHANNELS", text}, {"NCCL_SHM_DISABLE", "no"}});
    const Options o = Options::from_environment(kNone);
    EXPECT_EQ(o.integer("NCCL_MIN_NCHANNELS"), 0) << text;
    EXPECT_FALSE(o.is_set("NCCL_MIN_NCHANNELS")) << text;
    EXPECT_FALSE(o.flag("NCCL_SHM_DISABLE"));
    EXPECT_THAT(texts(o, true), Contains(AllOf(HasSubstr(std::string("NCCL_MIN_NCHANNELS='") + text + "'"), HasSubstr("environment"), HasSubstr("whole number"),
                                               HasSubstr("0 is used"))));
    EXPECT_THAT(texts(o, true), Contains(AllOf(HasSubstr("NCCL_SHM_DISABLE='no'"), HasSubstr("0 is used"))));
  }
}

TEST(NcclValues, MarksOfUnsetAreUnset) {
  for (const char* text : {"", "-2", "-2147483648", "0xfffffffffffffffe"}) {
    const Environment env(Set{{"NCCL_COMM_BLOCKING", text}, {"NCCL_SHM_DISABLE", text}});
    const Options o = Options::from_environment(kNone);
    const bool overflow = std::string_view(text).starts_with("0x");
    EXPECT_FALSE(o.is_set("NCCL_COMM_BLOCKING")) << text;
    EXPECT_TRUE(o.flag("NCCL_COMM_BLOCKING")) << text;
    EXPECT_FALSE(o.flag("NCCL_SHM_DISABLE")) << text;
    EXPECT_EQ(texts(o, true).empty(), !overflow) << text;
  }
}

TEST(NcclValues, FlagsAreNumbers) {
  for (const auto& [text, on] : std::vector<std::pair<const char*, bool>>{{"0", false}, {"1", true}, {"2", true}, {"0x1", true}, {"00", false}}) {
    const Environment env(Set{{"NCCL_SHM_DISABLE", text}});
    EXPECT_EQ(Options::from_environment(kNone).flag("NCCL_SHM_DISABLE"), on) << text;
  }
}

TEST(NcclValues, BytesMayHaveUnits) {
  for (const auto& [text, n] : std::vector<std::pair<const char*, int64_t>>{{"4194304", 4194304}, {"0x400000", 4194304}, {"4M", 4194304}, {" 64k", 65536}}) {
    const Environment env(Set{{"NCCL_BUFFSIZE", text}});
    EXPECT_EQ(Options::from_environment(kNone).integer("NCCL_BUFFSIZE"), n) << text;
  }
}

// The same number written differently is no difference between ranks.
TEST(NcclValues, AgreementIsAboutMeaning) {
  std::set<std::vector<std::string>> all;
  for (const char* text : {"4194304", "0x400000", "4M"}) {
    const Environment env(Set{{"NCCL_BUFFSIZE", text}, {"MUSTER_SLOT_BYTES", "4K"}});
    all.insert(Options::from_environment(kNone).agreement());
  }
  EXPECT_EQ(all.size(), 1u);
  EXPECT_THAT(*all.begin(), Contains("MUSTER_SLOT_BYTES=4096"));
}

// --- names ---

TEST(Names, NearlyRightOnesAreWarnedAbout) {
  for (const auto& [name, meant] : std::vector<std::pair<const char*, const char*>>{{"NCCL_DEBGU", "NCCL_DEBUG"},
                                                                                      {"NCCL_DEBUG_SUBSYSTEM", "NCCL_DEBUG_SUBSYS"},
                                                                                      {"NCCL_SOCKET_IF_NAME", "NCCL_SOCKET_IFNAME"},
                                                                                      {"NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"},
                                                                                      {"NCCL_IB_DISABLED", "NCCL_IB_DISABLE"},
                                                                                      {"NCCL_SHM_DISBALE", "NCCL_SHM_DISABLE"},
                                                                                      {"NCCL_ALG", "NCCL_ALGO"},
                                                                                      {"MUSTER_TIMOUT", "MUSTER_TIMEOUT"},
                                                                                      {"MUSTER_ALGOS", "MUSTER_ALGO"},
                                                                                      {"nccl_debug", "NCCL_DEBUG"}}) {
    const Environment env(Set{{name, "1"}});
    const std::vector<std::string> warnings = texts(Options::from_environment(kNone), true);
    ASSERT_EQ(warnings.size(), 1u) << name;
    EXPECT_THAT(warnings[0], AllOf(HasSubstr(name), HasSubstr(std::string("Is ") + meant + " meant?")));
  }
}

TEST(Names, OfOthersAreOnlyTold) {
  const Environment env(Set{{"NCCL_WHOLLY_NEW_THING", "1"}, {"nccl_my_own_variable", "1"}, {"NCCL_TESTS_DEVICE", "0"}, {std::string(100000, 'N'), "1"},
                         {"NCCL_" + std::string(100000, 'A'), "1"}, {"NCCL_EMPTY_ONE", ""}, {"NCCL_", "1"}});
  const Options o = Options::from_environment(kNone);
  EXPECT_THAT(texts(o, true), IsEmpty());
  const std::vector<std::string> told = texts(o, false);
  EXPECT_THAT(told, Contains(AllOf(HasSubstr("NCCL_WHOLLY_NEW_THING"), HasSubstr("doesn't know it"))));
  EXPECT_THAT(told, Contains(AllOf(HasSubstr("NCCL_TESTS_DEVICE"), HasSubstr("bench"))));
  for (const std::string& t : told) EXPECT_LT(t.size(), 300u);
  EXPECT_THAT(told, Not(Contains(HasSubstr("my_own"))));
}

TEST(Names, SecretsAreNotTold) {
  const Environment env(Set{{"MUSTER_JOB_KEY", "hidden"}});
  for (const OptionNote& n : Options::from_environment(kNone).notes()) EXPECT_THAT(n.text, Not(HasSubstr("hidden")));
}

// --- files ---

class Files : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/muster_options_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder = name;
  }
  void TearDown() override { std::system(("rm -r " + folder).c_str()); }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder + "/" + name) << text;
    return folder + "/" + name;
  }
  std::string folder;
};

TEST_F(Files, EnvironmentBeatsTheUsersFileBeatsTheSystems) {
  const std::string system = write("system", "NCCL_HOSTID=system\nNCCL_SOCKET_FAMILY=AF_INET\nNCCL_COMM_ID=a:1\n\nMUSTER_TIMEOUT=3\n");
  const std::string user = write(".nccl.conf", "NCCL_HOSTID=user\nNCCL_SOCKET_FAMILY=AF_INET6\n");
  const std::string chosen = write("chosen", "NCCL_HOSTID=chosen\n");
  {
    const Environment env(Set{{"HOME", folder}, {"NCCL_HOSTID", "environment"}});
    const Options o = Options::from_environment(system.c_str());
    EXPECT_EQ(o.text("NCCL_HOSTID"), "environment");
    EXPECT_EQ(o.text("NCCL_SOCKET_FAMILY"), "AF_INET6");
    EXPECT_EQ(o.text("NCCL_COMM_ID"), "a:1");
    EXPECT_EQ(o.seconds("MUSTER_TIMEOUT"), std::chrono::seconds(3));
    EXPECT_TRUE(o.is_set("NCCL_COMM_ID"));
    EXPECT_THAT(texts(o, false), AllOf(Contains("NCCL_HOSTID='environment' (environment)"), Contains("NCCL_SOCKET_FAMILY='AF_INET6' (" + user + ":2)"),
                                       Contains("MUSTER_TIMEOUT='3' (" + system + ":5)")));
    EXPECT_THAT(texts(o, true), IsEmpty());
  }
  {
    const Environment env(Set{{"HOME", folder}, {"NCCL_CONF_FILE", chosen}});
    const Options o = Options::from_environment(system.c_str());
    EXPECT_EQ(o.text("NCCL_HOSTID"), "chosen");
    EXPECT_EQ(o.text("NCCL_SOCKET_FAMILY"), "AF_INET");  // not the user's
  }
  {
    const Environment env(Set{{"HOME", folder}, {"NCCL_CONF_FILE", ""}, {"NCCL_COMM_ID", ""}});
    const Options o = Options::from_environment(system.c_str());
    EXPECT_EQ(o.text("NCCL_HOSTID"), "user");
    EXPECT_EQ(o.text("NCCL_COMM_ID"), "");  // empty hides the file
    EXPECT_FALSE(o.is_set("NCCL_COMM_ID"));
  }
}

TEST_F(Files, WhatIsWrongIsToldWithFileAndLine) {
  const std::string file = write("f", "NCCL_ALGO ring\nNCCL_SHM_DISABLE=maybe\nCUDA_VISIBLE_DEVICES=0\nNCCL_DEBGU=INFO\n\nNCCL_NTHREADS=22s\n");
  const Environment env(Set{{"NCCL_CONF_FILE", file}});
  EXPECT_THAT(texts(Options::from_environment(kNone), true),
              testing::UnorderedElementsAre(AllOf(HasSubstr(file + ":1"), HasSubstr("NCCL_ALGO ring")), AllOf(HasSubstr(file + ":2"), HasSubstr("'maybe'"), HasSubstr("0 is used")),
                                            AllOf(HasSubstr(file + ":3"), HasSubstr("CUDA_VISIBLE_DEVICES")), AllOf(HasSubstr(file + ":4"), HasSubstr("NCCL_DEBUG meant")),
                                            AllOf(HasSubstr(file + ":6"), HasSubstr("'22s'"), HasSubstr("no effect"))));
}

TEST_F(Files, AMusterValueThatCannotBeReadNamesItsLine) {
  const std::string file = write("f", "\nMUSTER_CHANNELS=many\n");
  const Environment env(Set{{"NCCL_CONF_FILE", file}});
  const Outcome o = outcome_of([] { Options::from_environment(kNone); });
  EXPECT_EQ(o.code, Result::invalid_usage);
  EXPECT_THAT(o.text, AllOf(HasSubstr("MUSTER_CHANNELS='many'"), HasSubstr(file + ":2"), HasSubstr("wanted")));
}

TEST_F(Files, ThatAreNotThereMatterOnlyIfAsked) {
  {
    const Environment env(Set{{"HOME", folder}});
    EXPECT_THAT(texts(Options::from_environment(kNone), true), IsEmpty());
  }
  const Environment env(Set{{"NCCL_CONF_FILE", folder + "/none"}});
  EXPECT_THAT(texts(Options::from_environment(kNone), true), testing::ElementsAre(AllOf(HasSubstr("NCCL_CONF_FILE"), HasSubstr(folder + "/none"))));
}

// --- what they do ---

TEST(NcclAlgo, IsMetOrSaidNotToBe) {
  struct Case {
    const char* text;
    const char* algorithm;
    bool met;
  };
  for (const Case& c : std::vector<Case>{{"Ring", "ring", true}, {"RING ", "ring", true}, {"ring,tree", "ring", true}, {"ring;", "ring", true}, {"tree", "tree", true}, {"nvls,TREE", "tree", true}, {"nvls", "", false},
                                         {"^tree", "", true}, {"^NVLS,NVLSTree", "", true}, {"^ring", "", false}, {"^ring,tree", "", false}, {"allreduce:ring", "", false},
                                         {"allreduce:^tree", "", true}, {"allreduce:tree;broadcast:ring", "", false}, {"^nvls;allreduce:^tree", "", true},
                                         {"ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring", "", false}, {"ring;allreduce:^nvls", "ring", true},
                                         {";", "", true}, {",", "", true}}) {
    const NcclAlgo a = read_nccl_algo(c.text);
    EXPECT_EQ(a.algorithm, c.algorithm) << c.text;
    EXPECT_EQ(a.unmet.empty(), c.met) << c.text << ": " << a.unmet;
    EXPECT_EQ(a.trees, std::string(c.text).find("^tree") == std::string::npos && std::string(c.text) != "^ring,tree") << c.text;
  }
  for (const char* text : {"bogus", "ring,bogus", "^bogus", "allreduce:bogus", "bogus:ring", "ring;tree", "1"}) {
    const Outcome o = outcome_of([&] { read_nccl_algo(text); });
    EXPECT_EQ(o.code, Result::invalid_usage) << text;
    EXPECT_THAT(o.text, HasSubstr(std::string("NCCL_ALGO='") + text + "'"));
  }
}

TEST(NcclAlgo, HasAListForEachCollective) {
  EXPECT_EQ(nccl_algorithms_for(Coll::all_reduce, "Ring,tree"), "Ring,tree");
  EXPECT_EQ(nccl_algorithms_for(Coll::all_reduce, "ring; allreduce:^tree"), "^tree");
  EXPECT_EQ(nccl_algorithms_for(Coll::reduce_scatter, "ring;allreduce:^tree"), "ring");
  EXPECT_EQ(nccl_algorithms_for(Coll::reduce_scatter, "allreduce:tree"), "");
  EXPECT_EQ(nccl_protocols_for(Coll::all_gather, "LL;AllGather:Simple"), "Simple");
  EXPECT_EQ(nccl_protocols_for(Coll::broadcast, "^LL128"), "^LL128");
  EXPECT_EQ(nccl_protocols_for(Coll::reduce, "broadcast:LL;"), "");
  for (const char* text : {"LL64", "ring", "broadcast:LL,x", "all_reduce:LL", "LL;Simple"}) {
    const Outcome o = outcome_of([&] { nccl_protocols_for(Coll::reduce, text); });
    EXPECT_EQ(o.code, Result::invalid_usage) << text;
    EXPECT_THAT(o.text, HasSubstr(std::string("NCCL_PROTO='") + text + "'"));
  }
}

TEST(NcclAlgo, ForcesTheRing) {
  const Environment env(Set{{"NCCL_ALGO", "Ring"}});
  run_threads(3, [](Communicator& c, int rank) {
    EXPECT_THAT(c.explain("all_reduce", 1000, DataType::float32), HasSubstr("forced by NCCL_ALGO=ring"));
    std::vector<int> in(1000, rank), out(1000, -1);
    c.all_reduce(in.data(), out.data(), in.size(), DataType::int32, RedOp::sum);
    EXPECT_THAT(out, testing::Each(3));
  });
}

TEST(NcclAlgo, ForcesTheTree) {
  const Environment env(Set{{"NCCL_ALGO", "Tree"}});
  run_threads(3, [](Communicator& c, int rank) {
    EXPECT_THAT(c.explain("all_reduce", 1000, DataType::float32), HasSubstr("forced by NCCL_ALGO=tree"));
    EXPECT_THAT(c.explain("all_gather", 1000, DataType::float32), HasSubstr("all_gather has no tree"));
    std::vector<int> in(1000, rank), out(1000, -1);
    c.all_reduce(in.data(), out.data(), in.size(), DataType::int32, RedOp::sum);
    EXPECT_THAT(out, testing::Each(3));
  });
}

TEST(NcclAlgo, WrongWordsFailOnAllRanks) {
  const Environment env(Set{{"NCCL_ALGO", "rnig"}, {"MUSTER_INIT_TIMEOUT", "20"}});
  for (const int n : {1, 3}) {
    const Outcome o = outcome_of([&] { Communicator::init_all(n); });
    EXPECT_EQ(o.code, Result::invalid_usage);
    EXPECT_THAT(o.text, AllOf(HasSubstr("NCCL_ALGO='rnig'"), HasSubstr("collnetdirect")));
  }
  const Variable ours("MUSTER_ALGO", "direct");  // beats it
  EXPECT_EQ(outcome_of([&] { Communicator::init_all(2); }).text, "");
}

PlanInputs planned(const Set& set, const Config& config = {}) {
  const Environment env(set);
  PlanInputs in;
  apply_plan_options(Options::from_environment(kNone), config, in);
  return in;
}

TEST(Bounds, OfChannelsFollowNccl) {
  EXPECT_EQ(planned({}).channels, 0);
  EXPECT_EQ(planned(Set{{"NCCL_MIN_NCHANNELS", "4"}}).channels, 4);
  EXPECT_EQ(planned(Set{{"NCCL_MIN_NCHANNELS", "4"}}).lanes, 4);
  EXPECT_EQ(planned(Set{{"NCCL_MIN_NRINGS", "3"}}).channels, 3);
  EXPECT_EQ(planned(Set{{"NCCL_MIN_NRINGS", "3"}, {"NCCL_MIN_NCHANNELS", "4"}}).channels, 4);
  EXPECT_EQ(planned(Set{{"NCCL_MIN_NRINGS", "3"}, {"NCCL_MIN_NCHANNELS", "4"}, {"NCCL_MIN_CTAS", "5"}}).channels, 5);
  EXPECT_EQ(planned(Set{{"NCCL_MIN_CTAS", "64"}}).channels, 16);
  EXPECT_EQ(planned(Set{{"NCCL_MIN_CTAS", "8"}, {"NCCL_MAX_CTAS", "2"}}).channels, 2);
  EXPECT_EQ(planned(Set{{"NCCL_MIN_CTAS", "1"}, {"NCCL_MAX_CTAS", "32"}}).channels, 0);
  EXPECT_EQ(planned(Set{{"NCCL_MIN_CTAS", "8"}, {"MUSTER_CHANNELS", "3"}}).channels, 3);
  Config config;
  config.min_channels = 6;
  EXPECT_EQ(planned({}, config).channels, 6);
  EXPECT_EQ(planned(Set{{"NCCL_MIN_CTAS", "2"}}, config).channels, 2);
  EXPECT_EQ(planned(Set{{"NCCL_MAX_CTAS", "2"}}, config).channels, 2);
}

TEST(Bounds, OfTheProgramMustMakeSense) {
  for (const auto& [least, most] : std::vector<std::pair<int, int>>{{-1, 0}, {17, 0}, {0, 17}, {0, -3}, {4, 2}}) {
    Config config;
    config.min_channels = least;
    config.max_channels = most;
    const Outcome o = outcome_of([&] { planned({}, config); });
    EXPECT_EQ(o.code, Result::invalid_argument);
    EXPECT_THAT(o.text, HasSubstr("Config::m"));
  }
}

TEST(Bounds, OfTheBufferAreSharedByItsSlots) {
  EXPECT_EQ(planned({}).slot_bytes, 32768u);
  EXPECT_EQ(planned(Set{{"NCCL_BUFFSIZE", "4194304"}}).slot_bytes, 131072u);
  EXPECT_EQ(planned(Set{{"NCCL_BUFFSIZE", "1"}}).slot_bytes, 1024u);
  EXPECT_EQ(planned(Set{{"NCCL_BUFFSIZE", "1G"}}).slot_bytes, 1u << 20);
  EXPECT_EQ(planned(Set{{"NCCL_BUFFSIZE", "100000"}}).slot_bytes, 3072u);  // 3125, whole cache lines
  EXPECT_EQ(planned(Set{{"NCCL_BUFFSIZE", "4194304"}, {"MUSTER_SLOT_BYTES", "2K"}}).slot_bytes, 2048u);
}

// More channels than elements, and buffers of many sizes: the numbers stay right.
TEST(Bounds, ManyChannelsAndFewElements) {
  for (const char* buffer : {"0x8000", "8388608"}) {
    const Environment env(Set{{"NCCL_MIN_NCHANNELS", "16"}, {"NCCL_BUFFSIZE", buffer}});
    run_threads(4, [](Communicator& c, int rank) {
      for (const size_t count : {0, 1, 2, 3, 15, 16, 17, 63, 4099, 70000}) {
        std::vector<int> in(count + 2, rank + 1), out(count + 2, -7);
        c.all_reduce(in.data(), out.data() + 1, count, DataType::int32, RedOp::sum);
        EXPECT_EQ(out.front(), -7);
        EXPECT_EQ(out.back(), -7);
        for (size_t i = 1; i <= count; ++i) ASSERT_EQ(out[i], 10) << count << " at " << i;
      }
    });
  }
}

TEST(Bounds, ThatDifferAreNamedOnAllRanks) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "20");
  run_processes(3, [](int rank) {
    if (rank == 1) setenv("NCCL_MIN_NCHANNELS", "0x4", 1);
    const Outcome o = outcome_of([] { Communicator::from_environment(); });
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, AllOf(HasSubstr("ranks differ in NCCL_MIN_NCHANNELS"), HasSubstr("has '4'"), HasSubstr("has '0'")));
  });
  run_processes(2, [](int rank) {
    Config config;
    config.max_channels = rank + 1;
    const Outcome o = outcome_of([&] { Communicator::from_environment(config); });
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, HasSubstr("Config::max_channels"));
  });
}

// A cluster-wide file that nobody here can do anything about must not stop a job.
TEST_F(Files, OfAClusterDoesNotStopAJob) {
  const std::string file = write("cluster.conf",
                                 "NCCL_IB_HCA=mlx5\nNCCL_IB_GID_INDEX=3\nNCCL_NET_GDR_LEVEL=SYS\nNCCL_PROTO=Simple\nNCCL_CROSS_NIC=0\nNCCL_TOPO_FILE=/no/such.xml\n"
                                 "NCCL_NET_PLUGIN=ofi\nNCCL_NVLS_ENABLE=0\nNCCL_P2P_LEVEL=NVL\nNCCL_NTHREADS=broken\nNCCL_ALGO=Tree\n");
  const Variable conf("NCCL_CONF_FILE", file), quiet("MUSTER_LOG", "off");
  run_threads(2, [](Communicator& c, int rank) {
    int x = rank, y = -1;
    c.all_reduce(&x, &y, 1, DataType::int32, RedOp::sum);
    EXPECT_EQ(y, 1);
  });
}

}  // namespace
}  // namespace muster
