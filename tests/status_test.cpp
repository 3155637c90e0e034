// `muster status`: the ranks that are behind or ahead are named from outside their processes, also when these
// don't run; memory that can't be read is said to be so.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "comm/host_status.h"
#include "comm/verdict.h"
#include "life_support.h"
#include "muster/muster.h"
#include "support/shell.h"

namespace muster {
namespace {

using nlohmann::json;
using test::expect_works;
using test::gather;
using test::kInt;
using test::outcome_of;
using test::Output;
using test::output_of;
using test::run_process_ranks;
using test::run_threads;
using testing::AllOf;
using testing::Contains;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using namespace std::chrono_literals;
using Ints = std::vector<int>;

Output muster_status(const std::string& arguments) { return output_of(MUSTER_TOOL " status " + arguments); }

// The communicator of this name, as the tool tells of it; null: it doesn't.
json find(const json& all, const std::string& name) {
  for (const json& c : all.at("communicators"))
    if (c.at("name") == name) return c;
  return nullptr;
}
json tell(const std::string& name, const std::string& arguments = "") {
  const Output o = muster_status("--json " + arguments);
  const json all = json::parse(o.text, nullptr, false);
  EXPECT_FALSE(all.is_discarded()) << o.text;
  EXPECT_EQ(all.at("schema"), 1);
  return find(all, name);
}
// Asks until the answer is as wanted; the test's time limit ends it.
template <class F>
json tell_until(const std::string& name, F wanted, const std::string& arguments = "") {
  for (;;) {
    json c = tell(name, arguments);
    if (!c.is_null() && wanted(c)) return c;
    std::this_thread::sleep_for(10ms);
  }
}

std::string name_here(const char* what) { return std::string(what) + " " + std::to_string(getpid()); }

void add_up(Communicator& c, int times) {
  for (int i = 0; i < times; ++i) {
    int x = 1, y = 0;
    c.all_reduce(&x, &y, 1, kInt, RedOp::sum);
    ASSERT_EQ(y, c.size());
  }
}

// --- processes ---

TEST(Status, NamesTheStoppedProcess) {
  constexpr int kStopped = 5, kReader = 2;
  run_process_ranks(8, [](Communicator& c, int rank) {
    const Ints pids = gather(c, getpid());  // call 1
    add_up(c, 16);
    std::string name;
    json before;
    if (rank == kReader) {
      // The ranks' name for the communicator isn't known here; a rank finds it by its own process.
      const json all = json::parse(muster_status("--json --pid " + std::to_string(getpid())).text);
      ASSERT_EQ(all.at("communicators").size(), 1u);
      name = all.at("communicators")[0].at("name");
    }
    std::vector<int64_t> in(1000, rank), out(1000);
    if (rank == kStopped) kill(getpid(), SIGSTOP);
    std::thread reader;
    if (rank == kReader)
      reader = std::thread([&] {
        const json j = tell_until(name, [](const json& k) {
          return k.at("verdict").at("state") == "apart" && k.at("verdict").at("behind").size() == 1;
        });
        EXPECT_EQ(j.at("verdict").at("behind"), json(Ints{kStopped}));
        EXPECT_EQ(j.at("verdict").at("ahead"), json(Ints{}));
        EXPECT_EQ(j.at("verdict").at("halted"), json(Ints{kStopped}));
        EXPECT_EQ(j.at("verdict").at("call"), 18);
        const std::string pid = std::to_string(pids[kStopped]);
        EXPECT_EQ(
            j.at("verdict").at("text"),
            "Rank 5 (pid " + pid +
                ", stopped by a signal) is behind by 1 call: it has started call 17, the other 7 call 18.");
        EXPECT_EQ(j.at("size"), 8);
        EXPECT_EQ(j.at("error"), nullptr);
        ASSERT_EQ(j.at("ranks").size(), 8u);
        for (int r = 0; r < 8; ++r) {
          const json& k = j.at("ranks")[r];
          const bool stopped = r == kStopped;
          EXPECT_EQ(k.at("rank"), r);
          EXPECT_EQ(k.at("pid"), pids[r]);
          EXPECT_EQ(k.at("process"), stopped ? "stopped" : "running");
          EXPECT_FALSE(k.at("moving"));
          EXPECT_EQ(k.at("finished").at("number"), 17);
          EXPECT_EQ(k.at("finished").at("call"), "all_reduce(count 1, int32, sum)");
          const json& started = k.at("started");
          EXPECT_EQ(started.at("number"), stopped ? 17 : 18);
          EXPECT_EQ(started.at("collective"), "all_reduce");
          EXPECT_EQ(started.at("count"), stopped ? 1 : 1000);
          EXPECT_EQ(started.at("type"), stopped ? "int32" : "int64");
          EXPECT_LE(started.at("seconds_ago"), 60);
        }
        // For people, too; and it is seen who is waited for.
        const Output text = muster_status("");
        EXPECT_THAT(text.text,
                    AllOf(HasSubstr("Communicator " + name),
                          HasSubstr("Rank 5 (pid " + pid + ", stopped by a signal) is behind by 1 call")));
        EXPECT_THAT(
            text.text,
            ContainsRegex("5 +" + pid +
                          " +stopped +17 all_reduce\\(count 1, int32, sum\\), [0-9]+ s ago +17 all_reduce"));
        tell_until(name, [](const json& k) {
          const json& wait = k.at("ranks")[kReader].at("wait");
          return wait.is_object() && wait.at("in") == "collective";
        });
        kill(pids[kStopped], SIGCONT);
      });
    c.all_reduce(in.data(), out.data(), in.size(), DataType::int64, RedOp::sum);
    if (reader.joinable()) reader.join();
    for (const int64_t x : out) ASSERT_EQ(x, 28);
    if (rank == kReader) {
      const json j = tell(name);
      EXPECT_EQ(j.at("ranks")[kReader].at("finished").at("number"), 18);
      EXPECT_EQ(j.at("ranks")[kReader].at("wait"), nullptr);
    }
    add_up(c, 1);
  });
}

TEST(Status, NamesTheProcessThatEnded) {
  run_process_ranks(4,
                    [](Communicator& c, int rank) {
                      const Ints pids = gather(c, getpid());
                      if (rank == 3) kill(getpid(), SIGKILL);
                      const test::Outcome o = outcome_of([&] { add_up(c, 1); });
                      EXPECT_EQ(o.code, Result::remote_error) << o;
                      const HostStatus s = read_host_status(Ints{getpid()}, 1ms);
                      ASSERT_EQ(s.communicators.size(), 1u);
                      EXPECT_EQ(s.communicators[0].error, Result::remote_error);
                      const Verdict v = judge(s.communicators[0]);
                      EXPECT_THAT(v.gone, Contains(3));  // the others end soon, too
                      EXPECT_THAT(v.text, HasSubstr("ank 3 (pid " + std::to_string(pids[3]) + ", gone)"));
                    },
                    {{3}});
}

// A wait that has no number among the calls.
TEST(Status, TellsOfAWaitForAMessage) {
  run_threads(2, [](Communicator& c, int rank) {
    add_up(c, 3);
    int x = 7;
    if (rank == 0) {
      c.recv(&x, 1, kInt, 1);
      EXPECT_EQ(x, 8);
      const HostStatus s = read_host_status(Ints{getpid()}, 1ms);
      EXPECT_FALSE(s.communicators.at(0).ranks.at(0).wait);
    } else {
      for (;;) {
        const HostStatus s = read_host_status(Ints{getpid()}, 1ms);
        const auto& wait = s.communicators.at(0).ranks.at(0).wait;
        if (wait) {
          EXPECT_EQ(wait->kind, RankWait::messages);
          EXPECT_EQ(wait->peer, 1);
          const Verdict v = judge(s.communicators.at(0));
          EXPECT_EQ(v.kind, Verdict::Kind::idle);
          EXPECT_THAT(v.text,
                      ContainsRegex("Rank 0 has waited .* s in a group of sends and receives for rank 1"));
          break;
        }
        std::this_thread::sleep_for(5ms);
      }
      ++x;
      c.send(&x, 1, kInt, 0);
    }
  });
}

// Times are those of the calls, not of the communicator's beginning.
TEST(Status, TellsSinceWhen) {
  run_threads(2, [](Communicator& c, int rank) {
    add_up(c, 1);
    const auto first = [] { return read_host_status(Ints{getpid()}, 1ms).communicators.at(0).ranks.at(0); };
    RankStatus idle;
    if (rank == 0)
      for (idle = first(); idle.finished.seconds_ago < 1.5; idle = first()) std::this_thread::sleep_for(20ms);
    EXPECT_EQ(idle.process, ProcessState::running);
    add_up(c, 1);
    if (rank == 0)
      while (first().finished.seconds_ago >= 1.5) std::this_thread::sleep_for(20ms);
    add_up(c, 1);
  });
}

// --- the few are named, and the direction ---

// Ranks of `few` do one call more than the others, or one call less.
void few_of_32(const Ints& few, bool more) {
  std::atomic<bool> seen{false};
  run_threads(32, [&](Communicator& c, int rank) {
    add_up(c, 640);
    const bool is_few = std::find(few.begin(), few.end(), rank) != few.end();
    const bool late = is_few != more;
    const int reader = more ? 0 : few[0];
    if (rank == reader) {
      Verdict v;
      do v = judge(read_host_status(Ints{getpid()}, 20ms).communicators.at(0));
      while (v.kind != Verdict::Kind::apart || v.behind.size() + v.ahead.size() != few.size());
      EXPECT_EQ(v.ahead, more ? few : Ints{});
      EXPECT_EQ(v.behind, more ? Ints{} : few);
      EXPECT_EQ(v.call, more ? 640u : 641u);
      EXPECT_THAT(
          v.text,
          HasSubstr(more ? "are ahead by 1 call: they have started call 641, the other 30 call 640"
                         : "are behind by 1 call: they have started call 640, the other 30 call 641"));
      seen = true;
    }
    while (late && !seen) std::this_thread::sleep_for(1ms);
    add_up(c, 1);
  });
}
TEST(Status, NamesTheTwoThatAreAhead) { few_of_32({3, 17}, true); }
TEST(Status, NamesTheTwoThatAreBehind) { few_of_32({3, 17}, false); }

// --- several communicators ---

TEST(Status, ListsChildrenBehindTheirParent) {
  run_threads(4, [](Communicator& c, int rank) {
    Config config;
    config.name = rank < 2 ? name_here("low") : name_here("high");
    Communicator half = c.split(rank / 2, rank, config);
    Communicator quarter = half.split(0, 0);
    add_up(half, rank < 2 ? 3 : 5);
    gather(c, 0);  // calls 2: all have made theirs
    if (rank == 0) {
      const json all = json::parse(muster_status("--json --pid " + std::to_string(getpid())).text);
      std::vector<json> ours;
      for (const json& k : all.at("communicators")) ours.push_back(k);
      ASSERT_EQ(ours.size(), 5u);
      EXPECT_EQ(ours[0].at("parent"), nullptr);
      EXPECT_EQ(ours[0].at("size"), 4);
      EXPECT_EQ(ours[0].at("ranks")[0].at("started").at("number"), 2);  // split and all_gather
      for (const size_t i : {size_t{1}, size_t{3}}) {
        EXPECT_EQ(ours[i].at("parent"), ours[0].at("id"));
        EXPECT_EQ(ours[i + 1].at("parent"), ours[i].at("id"));
        EXPECT_EQ(ours[i].at("size"), 2);
      }
      const json low = find(all, name_here("low")), high = find(all, name_here("high"));
      ASSERT_FALSE(low.is_null());
      ASSERT_FALSE(high.is_null());
      EXPECT_EQ(low.at("ranks")[0].at("finished").at("number"), 4);  // split and three more
      EXPECT_EQ(high.at("ranks")[0].at("finished").at("number"), 6);
    }
    gather(c, 0);
    quarter.destroy();
    half.destroy();
    quarter = Communicator();
    half = Communicator();
    gather(c, 0);
    const auto listed = [] { return read_host_status(Ints{getpid()}, 1ms).communicators.size(); };
    if (rank == 0) {
      EXPECT_EQ(listed(), 1u);
    }
    gather(c, 0);
    Communicator again = c.split(0, -rank);  // behind the hole that they left
    gather(again, 0);
    if (rank == 0) {
      EXPECT_EQ(listed(), 2u);
    }
    gather(again, 0);
  });
}

TEST(Status, NothingIsLeftOfACommunicator) {
  run_threads(2, [](Communicator& c, int) { add_up(c, 1); });
  const HostStatus s = read_host_status(Ints{getpid()}, 1ms);
  EXPECT_THAT(s.communicators, IsEmpty());
  EXPECT_THAT(s.problems, IsEmpty());
}

// --- memory that can't be read ---

struct Image {
  SegmentHead head{};
  ErrorRecord error{};
  RankControl controls[2]{};
};
static_assert(sizeof(Image) == kControlsAt + 2 * sizeof(RankControl));

class Page : public testing::Test {
 protected:
  Page() {
    image_.head.magic = kSegmentMagic;
    image_.head.layout = kLayout;
    std::strcpy(image_.head.version, "0.0.7");
    image_.head.head_bytes = sizeof(SegmentHead);
    image_.head.control_bytes = sizeof(RankControl);
    image_.head.nranks = 2;
    image_.head.bytes = kBytes;
    image_.head.id = 1;
    image_.head.size = 2;
    std::strcpy(image_.head.name, "made up");
    for (int r = 0; r < 2; ++r) {
      image_.controls[r].rank = r;
      image_.controls[r].pid = getpid();
      image_.controls[r].start = std::stoull(read_start());
      image_.controls[r].entered = image_.controls[r].finished = 3;
    }
  }
  static std::string read_start();
  // What the tool's reader says of a process that holds this.
  static HostStatus read(const void* bytes, size_t n, size_t file_bytes) {
    const Fd fd(memfd_create(kSegmentFile, MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(file_bytes)), 0);
    EXPECT_EQ(pwrite(fd.get(), bytes, std::min(n, file_bytes), 0),
              static_cast<ssize_t>(std::min(n, file_bytes)));
    return read_host_status(Ints{getpid()}, 0ms);
  }
  HostStatus read(size_t file_bytes = kBytes) const { return read(&image_, sizeof image_, file_bytes); }
  void expect_problem(const HostStatus& s, const std::string& text) {
    EXPECT_THAT(s.communicators, IsEmpty());
    ASSERT_EQ(s.problems.size(), 1u);
    EXPECT_EQ(s.problems[0], "pid " + std::to_string(getpid()) + ": " + text);
  }

  static constexpr size_t kBytes = 16 * kSegmentPage;
  Image image_;
};
std::string Page::read_start() {
  // The 22nd field; the 2nd is in parentheses and may hold blanks.
  std::string line, word;
  std::getline(std::ifstream("/proc/self/stat"), line);
  std::istringstream rest(line.substr(line.rfind(')') + 1));
  for (int i = 3; i <= 22; ++i) rest >> word;
  return word;
}

TEST_F(Page, IsReadAsItStands) {
  const HostStatus s = read();
  EXPECT_THAT(s.problems, IsEmpty());
  ASSERT_EQ(s.communicators.size(), 1u);
  EXPECT_EQ(s.communicators[0].name, "made up");
  ASSERT_EQ(s.communicators[0].ranks.size(), 2u);
  EXPECT_EQ(s.communicators[0].ranks[1].started.number, 3u);
  EXPECT_FALSE(s.communicators[0].ranks[1].started.shape);               // its ledger is empty
  EXPECT_EQ(s.communicators[0].ranks[1].process, ProcessState::silent);  // it was never heard of
}

TEST_F(Page, OfAnotherVersion) {
  image_.head.layout = kLayout + 1;
  image_.head.head_bytes = 5;  // what comes behind means something else
  expect_problem(read(), fmt::format("it runs Muster 0.0.7, which lays its state out another way ({}, not {}). Use the `muster` "
                                     "command of that version",
                                     kLayout + 1, kLayout));
}

TEST_F(Page, Garbage) {
  const std::string text(kBytes, 'x');
  expect_problem(read(text.data(), text.size(), kBytes), "its shared memory doesn't begin as Muster's does");
  image_.head.nranks = 1 << 30;
  expect_problem(read(), "its shared memory is damaged: the sizes in it can't be");
  image_.head.nranks = 2;
  image_.controls[1].rank = 0;
  expect_problem(
      read(),
      "its shared memory is damaged: communicator made up has a second rank 0, or none of that number");
}

TEST_F(Page, CutOff) {
  expect_problem(read(100), "its shared memory is cut off after 100 bytes");
  const std::string end = std::to_string(kControlsAt + 2 * sizeof(RankControl));
  expect_problem(read(1000),
                 "its shared memory is cut off: it ends at byte 1000, and the ranks' state at " + end);
}

TEST_F(Page, StillBeingMade) {
  image_.head.id = 0;
  const HostStatus s = read();
  EXPECT_THAT(s.communicators, IsEmpty());
  EXPECT_THAT(s.problems, IsEmpty());
}

TEST_F(Page, RanksOfOtherHosts) {
  image_.head.size = 6;
  image_.controls[1].rank = 4;
  const HostStatus s = read();
  ASSERT_EQ(s.communicators.size(), 1u);
  EXPECT_THAT(s.communicators[0].elsewhere, ElementsAre(1, 2, 3, 5));
  EXPECT_THAT(judge(s.communicators[0]).text,
              HasSubstr("Ranks 1..3, 5 are on other hosts: run `muster status` there, too"));
}

// Whatever stands there, it is read to the end.
TEST_F(Page, AnyBytes) {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (int run = 0; run < 1000; ++run) {
    std::vector<unsigned char> bytes(sizeof(Image));
    std::memcpy(bytes.data(), static_cast<const void*>(&image_), sizeof image_);
    const size_t from = run % 2 ? offsetof(SegmentHead, head_bytes) : kErrorAt;
    for (size_t i = 0; i < (run % 4 < 2 ? 3 : bytes.size()); ++i)
      bytes[from + below(bytes.size() - from)] = static_cast<unsigned char>(random());
    const HostStatus s = read(bytes.data(), bytes.size(), kBytes);
    for (const CommunicatorStatus& c : s.communicators) EXPECT_FALSE(judge(c).text.empty());
  }
}

TEST(Status, SaysWhichProcessCantBeLookedInto) {
  const Output o = muster_status("--pid 2147483647 2>&1");
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.text, HasSubstr("pid 2147483647 can't be looked into: ENOENT"));
}

// --- verdicts ---

CommunicatorStatus of_ranks(const std::vector<std::pair<uint64_t, uint64_t>>& started_finished) {
  CommunicatorStatus c;
  c.size = static_cast<int>(started_finished.size());
  for (const auto& [started, finished] : started_finished) {
    RankStatus r;
    r.rank = static_cast<int>(c.ranks.size());
    r.pid = 100 + r.rank;
    r.started.number = started;
    r.finished.number = finished;
    c.ranks.push_back(r);
  }
  return c;
}

TEST(Verdict, OfEquallyManyThoseBehindAreNamed) {
  const Verdict v = judge(of_ranks({{7, 6}, {5, 5}}));
  EXPECT_THAT(v.behind, ElementsAre(1));
  EXPECT_THAT(v.ahead, IsEmpty());
  EXPECT_EQ(v.text, "Rank 1 (pid 101) is behind by 2 calls: it has started call 5, the other one call 7.");
}

TEST(Verdict, BothDirections) {
  const Verdict v = judge(of_ranks({{7, 6}, {7, 6}, {8, 7}, {7, 6}, {0, 0}}));
  EXPECT_THAT(v.behind, ElementsAre(4));
  EXPECT_THAT(v.ahead, ElementsAre(2));
  EXPECT_EQ(v.text,
            "Rank 4 (pid 104) is behind by 7 calls: it has started no call; rank 2 (pid 102) is ahead by 1 "
            "call: it has started call 8, the other 3 call 7.");
}

TEST(Verdict, Level) {
  EXPECT_EQ(judge(of_ranks({{7, 7}, {7, 7}})).text,
            "All 2 ranks have finished call 7, and none has started another.");
  EXPECT_EQ(judge(of_ranks({{7, 7}, {7, 7}})).kind, Verdict::Kind::idle);
  EXPECT_EQ(judge(of_ranks({{0, 0}, {0, 0}})).text, "None of the 2 ranks has started a call.");
  EXPECT_EQ(judge(of_ranks({{7, 6}, {7, 6}})).text, "All 2 ranks are in call 7: none is behind.");
  EXPECT_EQ(
      judge(of_ranks({{7, 6}, {7, 7}, {7, 7}})).text,
      "All 3 ranks have started call 7, and 2 of them have finished it: rank 0 (pid 100) is still in it.");
}

TEST(Verdict, StoppedInTheSameCall) {
  CommunicatorStatus c = of_ranks({{7, 6}, {7, 6}, {7, 6}});
  c.ranks[1].process = ProcessState::stopped;
  const Verdict v = judge(c);
  EXPECT_THAT(v.halted, ElementsAre(1));
  EXPECT_EQ(v.text,
            "All 3 ranks are in call 7: none is behind. Not running: rank 1 (pid 101, stopped by a signal).");
}

TEST(Verdict, WhoHasLeftIsNotBehind) {
  CommunicatorStatus c = of_ranks({{7, 7}, {7, 7}, {5, 5}});
  c.ranks[2].left = true;
  const Verdict v = judge(c);
  EXPECT_EQ(v.kind, Verdict::Kind::idle);
  EXPECT_THAT(v.behind, IsEmpty());
  EXPECT_THAT(v.text, HasSubstr("Destroyed their communicator: rank 2."));
}

TEST(Verdict, ManyAreNamedByNumber) {
  std::vector<std::pair<uint64_t, uint64_t>> ranks(2048, {640, 639});
  for (size_t r = 100; r < 1100; ++r) ranks[r] = {639, 639};
  EXPECT_EQ(judge(of_ranks(ranks)).text,
            "Ranks 100..1099 are behind by 1 call: they have started call 639, the other 1048 call 640.");
}

}  // namespace
}  // namespace muster
