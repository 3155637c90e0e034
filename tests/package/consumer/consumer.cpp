// Uses the installed library as any program would: two ranks add up their numbers, and an error is caught.
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "muster/muster.h"

int main() {
  std::vector<muster::Communicator> ranks = muster::Communicator::init_all(2);
  float sums[2] = {};
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      const float mine = static_cast<float>(r + 1);
      ranks[r].all_reduce(&mine, &sums[r], 1, muster::DataType::float32, muster::RedOp::sum);
    });
  for (std::thread& t : threads) t.join();

  bool caught = false;
  try {
    ranks[0].all_reduce(nullptr, nullptr, 1, muster::DataType::float32, muster::RedOp::sum);
  } catch (const muster::Error& e) {
    caught = e.code() == muster::Result::invalid_argument;
  }
  std::printf("Muster %s: %g %g, error caught: %s\n", muster::version(), sums[0], sums[1], caught ? "yes" : "no");
  return sums[0] == 3 && sums[1] == 3 && caught ? 0 : 1;
}
