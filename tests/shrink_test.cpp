// Communicators of those who are left: shrink of healthy, failed, aborted and revoked parents.
#include "life_support.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace muster {
namespace {

using namespace test;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

std::vector<int> list(std::initializer_list<int> ranks) { return ranks; }

TEST(Shrink, OfAHealthyParentWhichStaysUsable) {
  on_threads_and_processes(5, [](Communicator& c, int rank) {
    expect_works(c);
    if (rank != 1 && rank != 3) {
      Communicator less = c.shrink(list({3, 1}));
      EXPECT_EQ(gather(less, rank), std::vector({0, 2, 4}));
      expect_works(less, 5);
      if (rank != 4) {
        Communicator two = less.shrink(list({2}));
        EXPECT_EQ(gather(two, rank), std::vector({0, 2}));
        expect_works(two);
      }
    }
    expect_works(c);  // with those that were excluded
    // Different sets of ranks, one after the other: their counts of shrinks differ by now.
    if (rank != 0) {
      Communicator others = c.shrink(list({0}));
      EXPECT_EQ(gather(others, rank), std::vector({1, 2, 3, 4}));
    }
    Communicator all = c.shrink({});
    EXPECT_EQ(gather(all, rank), std::vector({0, 1, 2, 3, 4}));
    expect_works(all);
    expect_works(c);
  });
}

TEST(Shrink, ListsThatCantBeAreRefused) {
  run_threads(2, [](Communicator& c, int rank) {
    const auto refused = [&](std::vector<int> ranks, const char* part) {
      const Outcome o = outcome_of([&] { c.shrink(ranks); });
      EXPECT_EQ(o.code, Result::invalid_argument) << o;
      EXPECT_THAT(o.text, HasSubstr(part));
    };
    refused({2}, "excluded rank 2 is not in 0..1");
    refused({-1}, "excluded rank -1");
    refused({1 - rank, 1 - rank}, "excluded twice");
    refused({rank}, "excludes itself");
    EXPECT_EQ(outcome_of([&] { c.shrink({}, static_cast<ShrinkMode>(2)); }).code, Result::invalid_argument);
    expect_works(c);
    Communicator alone = c.shrink(list({1 - rank}));
    EXPECT_EQ(alone.size(), 1);
    expect_works(alone);
  });
}

TEST(Shrink, ListsThatDifferAreNamed) {
  const Variable patience("MUSTER_INIT_TIMEOUT", "1.5");  // of rank 3, which others exclude
  run_threads(4, [](Communicator& c, int rank) {
    if (rank != 3) {
      const Outcome o = outcome_of([&] { c.shrink(rank == 1 ? list({}) : list({3})); });
      EXPECT_EQ(o.code, Result::invalid_usage) << o;
      EXPECT_THAT(o.text, AllOf(HasSubstr("excludes rank 3"), HasSubstr("excludes no rank"),
                                HasSubstr("rank 1 (host ")));
    } else {
      const Outcome o = outcome_of([&] { c.shrink({}); });
      EXPECT_EQ(o.code, Result::timeout) << o;
      EXPECT_THAT(o.text, HasSubstr("rank 0 (host "));
    }
    expect_works(c);  // none of it is the parent's error
    if (rank != 3) {
      Communicator less = c.shrink(list({3}));
      expect_works(less);
    }
  });
}

// All excluded ranks are gone by kill -9, in the middle of calls of any size; the survivors go on.
TEST(Shrink, AfterDeaths) {
  for (int run = 0; run < 4; ++run)
    run_processes(5,
                  [run](int rank) {
                    Communicator c = Communicator::from_environment();
                    expect_works(c);
                    if (rank == 1 || rank == 4)
                      std::thread([run] {
                        std::this_thread::sleep_for(std::chrono::milliseconds(3 + run * 7));
                        kill(getpid(), SIGKILL);
                      }).detach();
                    std::vector<float> a(80'000, 1), b(a.size());
                    Outcome o;
                    for (int i = 0; o.code == Result::success; ++i)
                      o = outcome_of([&] {
                        c.all_reduce(a.data(), b.data(), i % 3 ? 100 : a.size(), DataType::float32,
                                     RedOp::sum);
                      });
                    EXPECT_EQ(o.code, Result::remote_error) << o;
                    if (rank == 1 || rank == 4)
                      std::this_thread::sleep_for(std::chrono::hours(1));  // the other one was first
                    EXPECT_EQ(outcome_of([&] { c.split(0, 0); }).code, Result::remote_error);
                    EXPECT_EQ(outcome_of([&] {
                                c.shrink(list({1, 4}));
                              }).code,
                              Result::remote_error)
                        << "the parent isn't healthy";
                    Communicator less = c.shrink(list({4, 1}), ShrinkMode::abort);
                    EXPECT_EQ(gather(less, rank), std::vector({0, 2, 3}));
                    c.destroy();
                    for (int i = 0; i < 3; ++i) expect_works(less, i);
                    // The shrunk one is a parent like others, and a later death is seen in it.
                    Communicator child = less.split(0, -rank);
                    expect_works(child);
                    if (rank == 2) raise(SIGKILL);
                    const Outcome second = poll_until_error(child);
                    EXPECT_EQ(second.code, Result::remote_error);
                    EXPECT_THAT(second.text, HasSubstr("rank 1 (host "));
                    Communicator two = less.shrink(list({1}), ShrinkMode::abort);
                    EXPECT_EQ(gather(two, rank), std::vector({0, 3}));
                    expect_works(two);
                  },
                  {{1, 2, 4}});
}

// Who excludes only some of the dead learns who else is missing.
TEST(Shrink, WithADeadRankThatIsNotExcluded) {
  run_processes(4,
                [](int rank) {
                  Communicator c = Communicator::from_environment();
                  gather(c, rank);
                  if (rank >= 2) raise(SIGKILL);
                  EXPECT_EQ(poll_until_error(c).code, Result::remote_error);
                  const Outcome o = outcome_of([&] { c.shrink(list({2}), ShrinkMode::abort); });
                  EXPECT_EQ(o.code, Result::remote_error) << o;
                  EXPECT_THAT(o.text, AnyOf(HasSubstr("rank 3 (host "), HasSubstr("gave up")));
                  Communicator two;  // another may still be in the attempt that failed
                  for (Outcome again{Result::remote_error, ""}; again.code != Result::success;)
                    again = outcome_of([&] { two = c.shrink(list({2, 3}), ShrinkMode::abort); });
                  expect_works(two);
                },
                {{2, 3}});
}

// Calls under way end, on all ranks; the excluded one isn't dead but doesn't answer.
TEST(Shrink, AbortsCallsUnderWay) {
  run_threads(3, [](Communicator& c, int rank) {
    gather(c, rank);
    if (rank == 2) {  // never enters the call
      EXPECT_EQ(poll_until_error(c).code, Result::remote_error);
      return;
    }
    HostStream stream;
    std::vector<int> a(1000, 1), b(1000);
    for (int i = 0; i < 3; ++i)
      outcome_of([&] { c.all_reduce(a.data(), b.data(), a.size(), kInt, RedOp::sum, &stream); });
    Communicator two = c.shrink(list({2}), ShrinkMode::abort);
    const Outcome o = outcome_of([&] { stream.synchronize(); });
    EXPECT_THAT(o.code, AnyOf(Result::remote_error, Result::success))
        << "none, if the other rank shrank before the first was queued";
    EXPECT_EQ(gather(two, rank), std::vector({0, 1}));
    expect_works(two);
    std::string text;
    EXPECT_EQ(c.async_error(&text), Result::remote_error);
    EXPECT_THAT(text, HasSubstr("which shrinks it"));
  });
}

TEST(Shrink, OfAnAbortedParent) {
  run_threads(3, [](Communicator& c, int rank) {
    expect_works(c);
    c.abort();
    Communicator same = c.shrink({}, ShrinkMode::abort);
    EXPECT_EQ(gather(same, rank), std::vector({0, 1, 2}));
    expect_works(same);
  });
}

TEST(Revoke, EndsCallsOnAllRanksAndLeavesAParent) {
  on_threads_and_processes(4, [](Communicator& c, int rank) {
    gather(c, rank);
    std::thread revoker;
    if (rank == 2)
      revoker = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        c.revoke();
      });
    Outcome o;
    std::vector<int> a(30'000, 1), b(a.size());
    while (o.code == Result::success)
      o = outcome_of([&] { c.all_reduce(a.data(), b.data(), a.size(), kInt, RedOp::sum); });
    if (revoker.joinable()) revoker.join();
    EXPECT_EQ(o.code, Result::invalid_usage) << o;
    EXPECT_THAT(o.text, HasSubstr("revoked by rank 2 (host "));
    EXPECT_EQ(c.async_error(), Result::invalid_usage);
    EXPECT_EQ(outcome_of([&] { c.finalize(); }).code, Result::invalid_usage);
    EXPECT_EQ(outcome_of([&] { c.grow(5); }).code, Result::invalid_usage);
    c.revoke();  // as good as before
    Communicator half = c.split(rank / 2, -rank);
    EXPECT_EQ(gather(half, rank), std::vector({rank / 2 * 2 + 1, rank / 2 * 2}));
    expect_works(half);
    if (rank != 1) {
      Communicator three = c.shrink(list({1}));
      EXPECT_EQ(gather(three, rank), std::vector({0, 2, 3}));
      expect_works(three);
    }
  });
}

// A split meets a revocation at any moment: it is completed either way.
TEST(Revoke, WhileOthersSplit) {
  for (int i = 0; i < 40; ++i)
    run_threads(3, [i](Communicator& c, int rank) {
      gather(c, rank);
      if (rank == i % 3) {
        std::this_thread::sleep_for(std::chrono::microseconds(i * 13));
        c.revoke();
      }
      Communicator child = c.split(0, 0);
      expect_works(child);
    });
}

}  // namespace
}  // namespace muster
