// NCCL's tuner plugins: what they are told, what follows from what they choose, and those that can't be used.
#include "comm/tuner.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "muster/muster.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::outcome_of;
using test::run_processes;
using test::run_threads;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

std::string file_of(int version) {
  return TUNER_FOLDER "/libnccl-tuner-example_v" + std::to_string(version) + ".so";
}

// The plugin, held so that its counts outlive communicators.
class Plugin {
 public:
  explicit Plugin(int version)
      : version_(version),
        handle_(dlopen(file_of(version).c_str(), RTLD_NOW)),
        chosen_("NCCL_TUNER_PLUGIN", file_of(version)) {
    if (!handle_) throw std::runtime_error(dlerror());
    ended_before_ = ended();
  }
  ~Plugin() { dlclose(handle_); }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  int contexts() const { return call<int>("example_contexts"); }
  int ended() const { return call<int>("example_ended") - ended_before_; }
  std::string seen() const { return call<const char*>("example_seen"); }
  std::string begun() const { return call<const char*>("example_begun"); }
  std::string name() const { return "chosen by tuner plugin example (v" + std::to_string(version_) + ")"; }

 private:
  template <class T>
  T call(const char* function) const {
    return reinterpret_cast<T (*)()>(dlsym(handle_, function))();
  }
  int version_;
  void* handle_;
  Variable chosen_;
  int ended_before_ = 0;
};

std::string said(const std::function<void()>& f) {
  testing::internal::CaptureStderr();
  f();
  return testing::internal::GetCapturedStderr();
}

void expect_sum(Communicator& c, size_t count) {
  std::vector<float> in(count), out(count);
  for (size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i % 100 + static_cast<size_t>(c.rank()));
  c.all_reduce(in.data(), out.data(), count, DataType::float32, RedOp::sum);
  const int n = c.size();
  for (size_t i = 0; i < count; ++i)
    ASSERT_EQ(out[i], static_cast<float>(n * static_cast<int>(i % 100) + n * (n - 1) / 2)) << i;
}

std::string explained(Communicator& c, const char* collective, size_t count) {
  return c.explain(collective, count, DataType::float32);
}

class TunerVersions : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Abi, TunerVersions, testing::Values(2, 3, 4, 5),
                         [](const auto& v) { return "v" + std::to_string(v.param); });

TEST_P(TunerVersions, AnAlgorithmOfPriceZeroIsUsed) {
  const Plugin plugin(GetParam());
  for (const auto& [word, two_ways, one_way] : std::vector<std::tuple<const char*, const char*, const char*>>{
           {"ring", "ring", "chain"}, {"tree", "tree", "tree"}}) {
    const Variable wish("MUSTER_TEST_TUNER", word);
    run_threads(3, [&, two = two_ways, one = one_way](Communicator& c, int) {
      EXPECT_EQ(plugin.contexts(), 3);
      for (const size_t count : {1u, 100'000u}) {
        EXPECT_THAT(explained(c, "all_reduce", count),
                    AllOf(HasSubstr(std::string("3 ranks: ") + two + " ("), HasSubstr(plugin.name()),
                          Not(HasSubstr("window"))));
        EXPECT_THAT(explained(c, "broadcast", count),
                    AllOf(HasSubstr(std::string("3 ranks: ") + one + " ("), HasSubstr(plugin.name())));
        EXPECT_THAT(explained(c, "reduce", count), HasSubstr(std::string("3 ranks: ") + one + " ("));
        expect_sum(c, count);
      }
      EXPECT_THAT(explained(c, "all_to_all", 10), Not(HasSubstr("plugin")));  // plugins know no such call
      c.barrier();
    });
    EXPECT_EQ(plugin.contexts(), 0);
  }
  EXPECT_EQ(plugin.ended(), 6);
}

TEST_P(TunerVersions, ChannelsAreAsAsked) {
  const Plugin plugin(GetParam());
  const Variable wish("MUSTER_TEST_TUNER", "channels_5");
  const auto channels = [](const char* text) {
    run_threads(2, [&](Communicator& c, int) {
      EXPECT_THAT(explained(c, "all_reduce", 1 << 18), AllOf(HasSubstr(text), HasSubstr("direct (")));
      EXPECT_THAT(explained(c, "all_gather", 100), HasSubstr(text));
      expect_sum(c, 1 << 18);
    });
  };
  channels("), 5 channels,");
  {
    const Variable most("NCCL_MAX_CTAS", "3");
    channels("), 3 channels,");
  }
  {
    const Variable forced("MUSTER_CHANNELS", "2");
    channels("), 2 channels,");
  }
  const Variable many("MUSTER_TEST_TUNER", "channels_1000");
  channels("), 16 channels,");
}

TEST_P(TunerVersions, WhatThePluginIsTold) {
  const Plugin plugin(GetParam());
  const int version = GetParam();
  run_threads(3, [&](Communicator& c, int) {
    EXPECT_EQ(plugin.begun(),
              std::string("3 ranks, 1 nodes") + (version == 5 ? ", 1 domains of 3 to 3" : ""));
    c.barrier();
    if (c.rank() == 0) {
      (void)explained(c, "all_gather", 100);  // NCCL counts what a rank receives, here
      const std::string head = "function 2, 1200 bytes, 1 operations, ";
      if (version == 2) {
        EXPECT_EQ(plugin.seen(), head + "collnet 0, nvls 0");
      }
      // No tree of all-gather; of rings the planner's price; nothing by LL.
      if (version > 2) {
        EXPECT_THAT(plugin.seen(), MatchesRegex(head + "7 by 3, registered " + (version == 3 ? "-1" : "0") +
                                                ", tree -1.000, ring [0-9]+\\.[0-9]+, ring by LL -1.000"));
      }
      (void)explained(c, "all_reduce", 100);
      EXPECT_THAT(plugin.seen(), HasSubstr("function 4, 400 bytes"));
      (void)explained(c, "broadcast", 100);
      EXPECT_THAT(plugin.seen(), HasSubstr("function 0, 400 bytes"));
      (void)explained(c, "reduce", 100);
      EXPECT_THAT(plugin.seen(), HasSubstr("function 1, 400 bytes"));
      (void)explained(c, "reduce_scatter", 100);
      EXPECT_THAT(plugin.seen(), HasSubstr("function 3, 1200 bytes"));
    }
    c.barrier();
  });
}

TEST_P(TunerVersions, WhatItLeavesAloneThePlannerChooses) {
  std::vector<std::string> alone;
  const auto all = [](Communicator& c) {
    std::vector<std::string> texts;
    for (const char* collective : {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"})
      for (const size_t count : {1u, 10'000u, 1'000'000u}) texts.push_back(explained(c, collective, count));
    return texts;
  };
  run_threads(3, [&](Communicator& c, int rank) {
    if (rank == 0) alone = all(c);
  });
  const Plugin plugin(GetParam());
  for (const char* word : {"", "ll", "choose_fails", "constants"}) {
    const Variable wish("MUSTER_TEST_TUNER", word);
    (void)said([&] { run_threads(3, [&](Communicator& c, int) { EXPECT_EQ(all(c), alone) << word; }); });
  }
}

TEST_P(TunerVersions, AFailureAtTheBeginningIsAnErrorOfTheCommunicator) {
  const Plugin plugin(GetParam());
  const Variable wish("MUSTER_TEST_TUNER", "init_fails");
  for (const int n : {1, 2}) {
    const auto e = outcome_of([&] { Communicator::init_all(n); });
    EXPECT_EQ(e.code, Result::system_error);
    EXPECT_THAT(e.text, AllOf(HasSubstr("tuner plugin example"), HasSubstr("init returned error 3"),
                              HasSubstr("NCCL_TUNER_PLUGIN=none")));
  }
  EXPECT_EQ(plugin.contexts(), 0);
}

TEST_P(TunerVersions, AFailureInACallIsWarnedAboutOnce) {
  const Plugin plugin(GetParam());
  const Variable wish("MUSTER_TEST_TUNER", "choose_fails");
  const std::string text = said([] {
    run_threads(2, [](Communicator& c, int) {
      expect_sum(c, 10);
      expect_sum(c, 11);
    });
  });
  const std::string warning = "returned error 3 for all_reduce of 40 bytes";
  EXPECT_THAT(text, AllOf(HasSubstr(warning), Not(HasSubstr("44 bytes"))));
}

TEST(Tuner, AnAlgorithmThatCannotBeHadIsNotTaken) {
  const Plugin plugin(4);
  // Broadcast to three ranks by the planner is a chain from 16 KiB on: without it, or with another price, it
  // isn't.
  for (const char* word : {"no_ring", "dear_ring"}) {
    const Variable wish("MUSTER_TEST_TUNER", word);
    run_threads(3, [](Communicator& c, int) {
      EXPECT_THAT(explained(c, "broadcast", 100'000), HasSubstr("3 ranks: tree ("));
      EXPECT_THAT(explained(c, "all_reduce", 100'000),
                  HasSubstr("3 ranks: direct ("));  // which has no name of NCCL's
    });
  }
}

TEST(Tuner, OptionsGoFirst) {
  const Plugin plugin(5);
  const Variable wish("MUSTER_TEST_TUNER", "ring"), forced("MUSTER_ALGO", "direct");
  run_threads(3, [](Communicator& c, int) {
    EXPECT_THAT(explained(c, "all_reduce", 100),
                AllOf(HasSubstr("3 ranks: direct ("), HasSubstr("forced by MUSTER_ALGO=direct"),
                      Not(HasSubstr("plugin"))));
  });
}

TEST(Tuner, ReproducibleReductionsStay) {
  const Plugin plugin(5);
  const Variable wish("MUSTER_TEST_TUNER", "ring"), fixed("MUSTER_REPRODUCIBLE", "1");
  run_threads(3, [&](Communicator& c, int) {
    EXPECT_THAT(explained(c, "all_reduce", 100), AllOf(HasSubstr("one_shot ("), Not(HasSubstr("plugin"))));
    EXPECT_THAT(explained(c, "all_gather", 100), HasSubstr("3 ranks: ring ("));
  });
}

TEST(Tuner, CommunicatorsMadeOfOthersHaveTheirOwnContext) {
  const Plugin plugin(5);
  const Variable wish("MUSTER_TEST_TUNER", "ring,channels_7");
  run_threads(4, [&](Communicator& c, int rank) {
    {
      Communicator half = c.split(rank % 2, 0);
      EXPECT_EQ(plugin.contexts(), 8);
      EXPECT_EQ(plugin.begun(), "2 ranks, 1 nodes, 1 domains of 2 to 2");
      EXPECT_THAT(explained(half, "all_reduce", 1 << 16),
                  AllOf(HasSubstr("2 ranks: ring ("), HasSubstr("7 channels")));
      expect_sum(half, 1 << 16);
      c.barrier();
      half.destroy();
    }
    c.barrier();
    EXPECT_EQ(plugin.contexts(), 4);
    c.barrier();
  });
  EXPECT_EQ(plugin.ended(), 8);
}

TEST(Tuner, ItsLogIsOurs) {
  const Plugin plugin(4);
  const Variable level("MUSTER_LOG", "info");
  const Variable wish("MUSTER_TEST_TUNER", "ring,warn");
  const std::string text = said([] { run_threads(2, [](Communicator& c, int) { expect_sum(c, 3); }); });
  EXPECT_THAT(text, AllOf(HasSubstr("TUNING example plugin begins: 2 ranks, hello\n"),
                          HasSubstr("WARN example plugin warns\n"), Not(HasSubstr("of no topic"))));
  EXPECT_THAT(text, AllOf(HasSubstr("tuner plugin example (" + file_of(4) + ") is used, version 4"),
                          HasSubstr("all_reduce(count 3, float32, sum, by ring), 2 ranks: ring (")));
}

TEST(Tuner, LibrariesThatCannotBeUsedAreWarnedAbout) {
  for (const auto& [name, why] : std::vector<std::pair<std::string, std::string>>{
           {"/nonexistent/tuner.so", "/nonexistent/tuner.so"},
           {"nosuchthing", "libnccl-tuner-nosuchthing.so"},
           {"libm.so.6", "libm.so.6 has none of ncclTunerPlugin_v2 to ncclTunerPlugin_v5"},
           {file_of(6), "It has ncclTunerPlugin_v6"},
       }) {
    const Variable chosen("NCCL_TUNER_PLUGIN", name);
    const std::string text = said([] { run_threads(2, [](Communicator& c, int) { expect_sum(c, 3); }); });
    EXPECT_THAT(text, AllOf(HasSubstr("WARN"), HasSubstr("NCCL_TUNER_PLUGIN='" + name + "' has no effect"),
                            HasSubstr(why), HasSubstr("The planner chooses alone")));
  }
}

TEST(Tuner, NoneIsNone) {
  for (const char* word : {"none", "NONE", ""}) {
    const Variable chosen("NCCL_TUNER_PLUGIN", word);
    EXPECT_EQ(said([] { run_threads(2, [](Communicator& c, int) { expect_sum(c, 3); }); }), "");
  }
}

TEST(Tuner, ANameIsLookedForAmongLibraries) {
  const Variable path("LD_LIBRARY_PATH", TUNER_FOLDER), chosen("NCCL_TUNER_PLUGIN", "example_v3"),
      wish("MUSTER_TEST_TUNER", "ring");
  run_processes(2, [](int) {
    Communicator c = Communicator::from_environment();
    EXPECT_THAT(explained(c, "all_reduce", 5),
                AllOf(HasSubstr("ring ("), HasSubstr("tuner plugin example (v3)")));
  });
}

// What ranks' plugins choose must be alike, as what the program calls must: whoever meets another choice gets
// an error.
TEST(Tuner, RanksWhosePluginsDifferGetAnError) {
  const Variable chosen("NCCL_TUNER_PLUGIN", file_of(5));
  const auto differ = [](const char* zero, const char* one, const std::string& zeros_call,
                         const std::string& ones_call) {
    run_processes(2, [&](int rank) {
      const Variable wish("MUSTER_TEST_TUNER", rank == 0 ? zero : one);
      Communicator c = Communicator::from_environment();
      const auto e = outcome_of([&] { expect_sum(c, 4); });
      EXPECT_EQ(e.code, Result::invalid_usage) << e;
      EXPECT_THAT(e.text, AllOf(HasSubstr("calls don't match"), HasSubstr(zeros_call), HasSubstr(ones_call)))
          << rank;
    });
  };
  differ("ring", "tree", "sum, by ring)", "sum, by tree)");
  differ("channels_2,ring", "channels_3,ring", "sum, by ring, 2 channels)", "sum, by ring, 3 channels)");
  differ("", "ring", "sum)", "sum, by ring)");
}

TEST(Tuner, OneRankWithoutAPluginMatters) {
  const Variable wish("MUSTER_TEST_TUNER", "ring,channels_9");
  run_processes(2, [](int rank) {
    const Variable chosen("NCCL_TUNER_PLUGIN", rank == 0 ? file_of(4) : "none");
    Communicator c = Communicator::from_environment();
    int in = 1, out = 0;
    c.all_to_all(&in, &out, 0, DataType::int32);  // of which no plugin knows
    const auto e = outcome_of([&] { expect_sum(c, 4); });
    EXPECT_EQ(e.code, Result::invalid_usage) << e;
    EXPECT_THAT(e.text, HasSubstr("by ring, 9 channels"));
  });
}

}  // namespace
}  // namespace muster
