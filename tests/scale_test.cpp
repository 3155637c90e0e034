// Communicators of hundreds of ranks, threads of processes, that meet at one root or at several.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "muster/muster.h"
#include "support/hosts.h"
#include "support/processes.h"

namespace muster {
namespace {

long sockets() {
  long n = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    n += std::filesystem::read_symlink(entry.path(), none).string().starts_with("socket:");
  return n;
}

// In processes that `run` starts. What joins hosts may have `more` sockets per rank.
using Run = std::function<void(int processes, const std::function<void(int process)>&)>;
void meet_and_reduce(const Run& run, int processes, int threads, int roots, int more = 0) {
  run(processes, [&](int process) {
    auto some = Communicator::from_environment();
    // Each of the first processes makes an id; all get all.
    std::vector<UniqueId> ids(static_cast<size_t>(processes));
    UniqueId mine{};
    if (process < roots) mine = make_unique_id();
    some.all_gather(&mine, ids.data(), sizeof mine, DataType::uint8);
    const long before = sockets();
    const int n = processes * threads;
    std::vector<Communicator> all(static_cast<size_t>(threads));
    std::vector<std::thread> ranks;
    std::atomic<int> wrong{0};
    for (int t = 0; t < threads; ++t)
      ranks.emplace_back([&, t] {
        try {
          const int rank = process * threads + t;
          auto comm = Communicator::init(n, rank, std::span(ids.data(), static_cast<size_t>(roots)));
          std::vector<int> values{1, rank, rank * rank};
          comm.all_reduce(values.data(), values.data(), values.size(), DataType::int32, RedOp::sum);
          if (values != std::vector<int>{n, n * (n - 1) / 2, (n - 1) * n * (2 * n - 1) / 6}) ++wrong;
          all[static_cast<size_t>(t)] = std::move(comm);
        } catch (const std::exception& e) {
          ADD_FAILURE() << e.what();
        }
      });
    for (auto& r : ranks) r.join();
    EXPECT_EQ(wrong, 0);
    some.barrier();
    // Two neighbours, a parent, and eight children of one rank in eight; the first rank of a root's share is a child, too.
    long open = sockets() - before;
    EXPECT_LE(open, (12 + more) * threads + 10);
    some.all_reduce(&open, &open, 1, DataType::int64, RedOp::sum);
    EXPECT_LE(open, (5 + more) * n);

  });
}

void on_one_host(int processes, const std::function<void(int process)>& fn) { test::run_processes(processes, fn); }

TEST(Scale, SixtyFourRanksAndEightRoots) { meet_and_reduce(on_one_host, 8, 8, 8); }

TEST(Scale, TwoHundredAndFiftySixRanks) { meet_and_reduce(on_one_host, 16, 16, 1); }

// What joins hosts has connections only where messages went, too.
TEST(Scale, TwoHundredAndFiftySixRanksOfTwoHosts) {
  NEED_HOSTS();
  const test::Hosts hosts({.hosts = 2});
  const auto on_two = [&](int processes, const std::function<void(int process)>& fn) {
    std::vector<int> host_of(static_cast<size_t>(processes));
    for (size_t p = 0; p < host_of.size(); ++p) host_of[p] = 2 * p < host_of.size() ? 0 : 1;
    hosts.run(host_of, fn);
  };
  meet_and_reduce(on_two, 16, 16, 1, 3);
}

TEST(Scale, LongTwoHundredAndFiftySixRanksOfFourRoots) { meet_and_reduce(on_one_host, 16, 16, 4); }

TEST(Scale, LongTwoHundredAndFiftySixRanksOfEightRoots) { meet_and_reduce(on_one_host, 16, 16, 8); }

}  // namespace
}  // namespace muster
