// What every network between hosts must do, tried between threads and between two processes of this machine.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "support/processes.h"
#include "support/program_cases.h"
#include "support/wire_exchange.h"
#include "transports/network_transport.h"

namespace muster::test {

// `ranks[r]`: the network of rank r of two, a thread of this process.
template <class Ranks>
void expect_two_threads_of_a_rank_can_use_it(Ranks& ranks) {
  bool good[2][2] = {};
  std::atomic<int> at_work{4};
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    for (int c = 0; c < 2; ++c)
      threads.emplace_back([&, r, c] { exchange(ranks[r], r, 100 + static_cast<uint64_t>(c), 800, &good[r][c], &at_work); });
  for (auto& t : threads) t.join();
  EXPECT_TRUE(good[0][0] && good[0][1] && good[1][0] && good[1][1]);
}

// `ranks[r]`: that of rank r of n.
template <class Ranks>
void expect_programs_to_be_exact(Ranks& ranks, int n) {
  std::vector<int> all;
  for (int r = 0; r < n; ++r) all.push_back(r);
  uint64_t communicator = 1;
  for (const Algorithm& a : algorithms())
    for (const size_t count : {size_t{5}, size_t{100'000}})
      for (const bool in_place : {false, true}) {
        if (a.windows || (a.whole && count > 100)) continue;
        SCOPED_TRACE(testing::Message() << name_of(a.coll) << " " << a.name << ", " << n << " ranks, count " << count << (in_place ? ", in place" : ""));
        ++communicator;
        run_case({&a, n, count, rooted(a.coll) ? n - 1 : 0, in_place, 1, a.whole ? size_t{4096} : size_t{64} << 10}, [&](int r) {
          return std::make_unique<NetworkTransport>(ranks[r], communicator, all, NetworkTransport::Lanes{1, 64 << 10, 64 << 10}, nullptr);
        });
        if (testing::Test::HasFatalFailure()) return;
      }
}

// Two processes, whose networks `make(rank)` makes. `peer` runs in rank 1, which is killed when it returns; `here` in rank 0.
inline void with_peer_process(const std::function<std::unique_ptr<Network>(int)>& make, const std::function<void(Network&)>& peer,
                              const std::function<void(Network&, pid_t)>& here) {
  const auto run = [&](int rank) {
    const Options options = Options::from_environment();
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    const auto boot = Bootstrap::connect(rendezvous_from_environment(options, deadline).id, 2, rank, options, deadline);
    const std::unique_ptr<Network> network = make(rank);
    network->meet(boot->all_gather(network->address(), deadline));
    if (rank == 0) return here(*network, boot->peers()[1].pid);
    peer(*network);
    kill(getpid(), SIGKILL);
  };
  run_processes(2, run, {.killed = {1}});
}

}  // namespace muster::test
