// `muster run`, as a user sees it: output, exit status, and what is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/shell.h"
#include "topology/allowed_cpus.h"

namespace muster::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Runs a shell command in which $muster is the command under test; both streams.
Output shell(const std::string& command) { return output_of("exec 2>&1; muster='" MUSTER_TOOL "'; " + command); }

TEST(MusterRun, GivesRanksTheEnvironmentOfTorchrun) {
  const Output o = shell(
      "$muster run -n 2 --prefix sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR'");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.text, AllOf(HasSubstr("[0] 0/2 0/2 127.0.0.1\n"), HasSubstr("[1] 1/2 1/2 127.0.0.1\n")));
  const Output keys =
      shell("$muster run -n 3 sh -c 'echo $MASTER_PORT $MUSTER_JOB_KEY' | sort | uniq -c | tr -s ' '");
  EXPECT_THAT(keys.text, testing::ContainsRegex("^ 3 [0-9]+ [0-9a-f]{64}\n$"));
}

TEST(MusterRun, EachRankHasItsShareOfTheCoresWhereThereAreEnough) {
  const auto cores = [](const std::string& options) {
    std::map<std::string, int> seen;
    std::istringstream lines(shell("$muster run " + options + " sh -c 'grep Cpus_allowed_list: /proc/self/status'").text);
    for (std::string line; std::getline(lines, line);) ++seen[line];
    return seen;
  };
  const long n = sysconf(_SC_NPROCESSORS_ONLN);
  if (n < 2) GTEST_SKIP() << "one core only";
  EXPECT_EQ(cores("-n 2").size(), 2u) << "each has another half";
  EXPECT_EQ(cores("-n 2 --no-bind").size(), 1u);
  EXPECT_EQ(cores("-n " + std::to_string(n + 1)).size(), 1u) << "all may run everywhere";
}

TEST(MusterRun, RanksThatAreAMultipleOfTheCoresHaveOneEachOfWhichAllHaveAsMany) {
  const std::vector<int> allowed = allowed_cpus();
  if (allowed.size() < 2 || allowed.size() > 16) GTEST_SKIP() << allowed.size() << " cores";
  std::map<std::string, int> ranks_on;
  std::istringstream lines(shell("$muster run -n " + std::to_string(3 * allowed.size()) +
                                 " sh -c 'grep Cpus_allowed_list: /proc/self/status'")
                               .text);
  for (std::string name, cpus; lines >> name >> cpus;) ++ranks_on[cpus];
  std::map<std::string, int> three_each;
  for (const int cpu : allowed) three_each[std::to_string(cpu)] = 3;
  EXPECT_EQ(ranks_on, three_each);
}

TEST(MusterRun, ExitStatusIsThatOfTheFirstFailingRank) {
  EXPECT_EQ(shell("$muster run -n 3 true").status, 0);
  const Output exited = shell("$muster run -n 3 sh -c '[ $RANK = 1 ] && exit 3; sleep 100'");
  EXPECT_EQ(exited.status, 3);
  EXPECT_THAT(exited.text, AllOf(HasSubstr("rank 1 (pid "), HasSubstr(") exited with status 3"),
                                   HasSubstr("the other 2 ranks")));
  const Output killed = shell("$muster run -n 3 sh -c '[ $RANK = 2 ] && kill -9 $$; sleep 100'");
  EXPECT_EQ(killed.status, 137);
  EXPECT_THAT(killed.text, AllOf(HasSubstr("rank 2 (pid "), HasSubstr("was killed by signal 9 (SIGKILL)")));
}

TEST(MusterRun, RanksThatIgnoreSigtermAreKilledAfterTheGraceTime) {
  const Output o = shell(
      "$muster run -n 2 --grace 0.3 sh -c 'trap \"\" TERM; [ $RANK = 0 ] && sleep 0.3 && exit 5; sleep 100; "
      "sleep 100'");
  EXPECT_EQ(o.status, 5);
  EXPECT_THAT(o.text, HasSubstr("is killed: it did not end within 0.3 s"));
}

TEST(MusterRun, PrefixedLinesAreWholeAndComplete) {
  const Output o = shell("$muster run -n 4 --prefix sh -c 'seq 1 20000; printf end' ");
  EXPECT_EQ(o.status, 0);
  std::istringstream lines(o.text);
  std::map<std::string, int> next, ends;
  for (std::string rank, text; lines >> rank >> text;)
    if (text == "end")
      ++ends[rank];
    else
      ASSERT_EQ(text, std::to_string(++next[rank])) << rank;
  EXPECT_EQ(next.size(), 4u);
  for (const auto& [rank, last] : next) EXPECT_EQ(last, 20000) << rank;
  EXPECT_EQ(ends.size(), 4u) << "an unfinished last line was lost";
}

TEST(MusterRun, StreamsStayApart) {
  EXPECT_EQ(shell("$muster run -n 1 --prefix sh -c 'echo out; echo err >&2' 2>/dev/null").text,
            "[0] out\n");
  EXPECT_EQ(shell("$muster run -n 1 --prefix sh -c 'echo out; echo err >&2' 2>&1 >/dev/null").text,
            "[0] err\n");
  EXPECT_EQ(shell("$muster run -n 2 sh -c 'echo out' | sort | uniq -c | tr -s ' '").text, " 2 out\n");
}

TEST(MusterRun, AClosedOutputEndsTheRanks) {
  EXPECT_EQ(shell("$muster run -n 2 --prefix yes 2>/dev/null | head -1").text.substr(3), " y\n");
}

TEST(MusterRun, InputGoesToRankZero) {
  EXPECT_EQ(shell("echo typed | $muster run -n 3 --prefix cat").text, "[0] typed\n");
}

TEST(MusterRun, ArgumentsOfTheProgramAreLeftAlone) {
  EXPECT_EQ(shell("$muster run -n 1 printf '%s.' -n 4 --prefix -- x").text, "-n.4.--prefix.--.x.");
  EXPECT_EQ(shell("$muster run -n 1 -- printf '%s.' -h -- x").text, "-h.--.x.");
}

TEST(MusterRun, SignalsArePassedOn) {
  const Output usr = shell(
      "$muster run -n 2 sh -c 'trap \"echo got; exit 0\" USR1; echo up; while :; do sleep 0.05; done' > "
      "out.$$ & pid=$!; "
      "while [ \"$(grep -c up out.$$)\" != 2 ]; do sleep 0.05; done; kill -USR1 $pid; wait $pid; echo status "
      "$?; cat out.$$; rm out.$$");
  EXPECT_THAT(usr.text, AllOf(HasSubstr("status 0"), HasSubstr("got\ngot\n")));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    // env: a shell's background jobs ignore SIGINT and SIGQUIT otherwise.
    const Output o = shell("env --default-signal $muster run -n 2 sleep 100 & pid=$!; sleep 0.3; kill -" +
                            std::to_string(signal) + " $pid; wait $pid; echo status $?");
    EXPECT_THAT(o.text, HasSubstr("status " + std::to_string(128 + signal)));
  }
}

TEST(MusterRun, NothingIsLeftBehind) {
  // A rank's own children end with it, and so do ranks whose launcher is killed. The name finds them.
  const std::string seconds = "9" + std::to_string(getpid());
  const std::string count = "sleep 0.3; ps -e -o args= | grep -c '^sleep " + seconds + "'";
  EXPECT_EQ(shell("$muster run -n 2 sh -c 'sleep " + seconds + " & exit 0'; " + count).text, "0\n");
  EXPECT_THAT(
      shell("$muster run -n 2 sleep " + seconds + " & pid=$!; sleep 0.3; kill -9 $pid; " + count).text,
      testing::EndsWith("0\n"));
}

TEST(MusterRun, StubbornLeftoversOfOneRankDoNotEndTheOthers) {
  const Output o = shell(
      "$muster run -n 2 --grace 0.1 sh -c 'trap \"\" TERM; if [ $RANK = 0 ]; then sleep 100 & exit 0; fi; "
      "sleep 1; echo fine'");
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.text, "fine\n");
}

TEST(MusterRun, MistakesAreExplained) {
  const Output missing = shell("$muster run -n 2 ./no-such-program");
  EXPECT_EQ(missing.status, 127);
  EXPECT_THAT(missing.text, AllOf(HasSubstr("can't start './no-such-program'"), HasSubstr("ENOENT")));
  EXPECT_EQ(shell("$muster run -n 2 /etc/passwd").status, 126);
  for (const std::string n : {"0", "-1", "x", "4097", "1.5"}) {
    const Output o = shell("$muster run -n " + n + " true");
    EXPECT_EQ(o.status, 2) << n;
    EXPECT_THAT(o.text, HasSubstr("ranks")) << n;
  }
  EXPECT_THAT(shell("$muster run true").text, HasSubstr("--ranks is required"));
  EXPECT_THAT(shell("$muster run -n 2").text, HasSubstr("no program to run"));
  EXPECT_THAT(shell("$muster run -n 2 --bogus true").text,
              HasSubstr("--bogus: is no option of muster run"));
}

TEST(Muster, PrintsItsOptionsAndVersion) {
  EXPECT_EQ(shell("$muster version").text, MUSTER_VERSION "\n");
  const Output o = shell("MUSTER_LOG=info $muster doctor --options");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.text, AllOf(HasSubstr("MUSTER_TIMEOUT"), HasSubstr("now set to 'info'"),
                              Not(HasSubstr("MUSTER_TEST"))));
  EXPECT_EQ(shell("$muster").status, 2);
  EXPECT_THAT(shell("MUSTER_JOB_KEY=hidden $muster doctor --options").text, AllOf(HasSubstr("now set (environment)"), Not(HasSubstr("hidden"))));
}

}  // namespace
}  // namespace muster::test
