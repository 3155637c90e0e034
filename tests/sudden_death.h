// A rank that is killed at any time, from its first connection on, and what the others are to see of that.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "muster/muster.h"
#include "support/outcome.h"

namespace muster::test {

inline void kill_this_process_within(std::chrono::microseconds most) {
  std::thread([most] {
    std::this_thread::sleep_for(std::chrono::microseconds(std::random_device()() % static_cast<unsigned>(most.count())));
    kill(getpid(), SIGKILL);
  }).detach();
}

// In each rank's process. The others come to an error, never to a signal, while they meet or in `calls`, which is to return
// the first one. MUSTER_INIT_TIMEOUT says how long those wait that the victim never met.
inline void expect_to_survive(int rank, int victim, std::chrono::microseconds within, const std::function<Outcome(Communicator&)>& calls) {
  if (rank == victim) kill_this_process_within(within);
  Communicator c;
  Outcome o = outcome_of([&] { c = Communicator::from_environment(); });
  if (o.code == Result::success) o = calls(c);
  if (c) {
    EXPECT_EQ(o.code, Result::remote_error) << o;
    EXPECT_THAT(o.text, testing::HasSubstr("rank " + std::to_string(victim) + " (host "));
  } else {
    EXPECT_THAT(o.code, testing::AnyOf(Result::remote_error, Result::timeout, Result::system_error)) << o;
  }
}

}  // namespace muster::test
