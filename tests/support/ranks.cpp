#include "support/ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace muster::test {

void run_threads(int n, const std::function<void(Communicator&, int rank)>& fn) {
  const UniqueId id = make_unique_id();
  std::mutex mutex;
  std::vector<std::string> failures;  // in the order they happened: later ones may only follow from the first
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      Communicator communicator;
      try {
        communicator = Communicator::init(n, rank, id);
        fn(communicator, rank);
      } catch (...) {
        {
          std::lock_guard lock(mutex);
          failures.push_back(fmt::format("rank {} {}", rank, text_of_current_exception()));
        }
        if (communicator) communicator.abort();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& failure : failures) ADD_FAILURE() << failure;
}

void run_process_ranks(int n, const std::function<void(Communicator&, int rank)>& fn,
                       const ProcessExpectations& expected) {
  run_processes(
      n,
      [&](int rank) {
        Communicator communicator = Communicator::from_environment();
        fn(communicator, rank);
        communicator.destroy();
      },
      expected);
}

}  // namespace muster::test
