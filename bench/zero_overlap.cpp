// How much of its communication a training step hides: `muster run -n 2 zero_overlap`.
//
//   zero_overlap [--compute sleep|work] [--stage 0..3] [--elements N] [--buckets N] [--steps N] [--ratio R]
//
// A model of N bfloat16 parameters in equal buckets. `communication` is the reduce-scatter and all-gather of
// all buckets (stage 0: the all-reduce) with nothing else going on; `computation` takes R times as long: a
// third of what isn't the optimizer's update is forward, the rest backward. It sleeps, which takes no core
// from communication, or works. `step` is a step of zero::Optimizer with that computation, in a row of steps;
// `ratio` how much longer it takes than the longer of the two. Times are medians over steps of the slowest
// rank.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "muster/zero.h"

namespace {

using muster::DataType;
using muster::RedOp;
namespace zero = muster::zero;
using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

struct Settings {
  bool works = false;
  size_t elements = 32 << 20, buckets = 16;
  int stage = 2, steps = 10;
  double ratio = 1;
};

// The same amount of work each time, whoever else uses the cores.
class Work {
 public:
  explicit Work(muster::Communicator& world) {
    world.barrier();  // as fast as cores are when all ranks work
    const auto start = Clock::now();
    run(kTrial);
    double s = seconds(Clock::now() - start);
    world.all_reduce(&s, &s, 1, DataType::float64, RedOp::max);
    rounds_per_second_ = kTrial / s;
  }
  void take(double s) { run(s * rounds_per_second_); }

 private:
  static constexpr double kTrial = 5e7;
  void run(double rounds) {
    for (long i = 0; i < static_cast<long>(rounds); ++i) x_ = x_ * 0.999f + 1e-3f;
  }
  double rounds_per_second_ = 1;
  volatile float x_ = 1;
};

// Median of the slowest rank's times.
double median_time(muster::Communicator& world, int steps, const std::function<void()>& step) {
  std::vector<double> times;
  step();
  for (int i = 0; i < steps; ++i) {
    const auto start = Clock::now();
    step();
    times.push_back(seconds(Clock::now() - start));
  }
  world.all_reduce(times.data(), times.data(), times.size(), DataType::float64, RedOp::max);
  std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
  return times[static_cast<size_t>(steps / 2)];
}

double communication(muster::Communicator& world, const Settings& s) {
  const size_t ranks = static_cast<size_t>(world.size()), shard = s.elements / s.buckets / ranks;
  std::vector<uint16_t> bucket(shard * ranks * s.buckets);
  muster::HostStream stream;
  const auto gather = [&](uint16_t* all, uint16_t* mine) {
    world.all_gather(mine, all, shard, DataType::bfloat16, &stream);
  };
  return median_time(world, s.steps, [&] {
    for (size_t b = 0; b < s.buckets; ++b) {
      uint16_t *const all = &bucket[b * shard * ranks], *const mine =
                                                            all + static_cast<size_t>(world.rank()) * shard;
      if (s.stage < 2) {
        world.all_reduce(all, all, shard * ranks, DataType::bfloat16, RedOp::avg, &stream);
        if (s.stage == 1) gather(all, mine);
      } else {
        world.reduce_scatter(all, mine, shard, DataType::bfloat16, RedOp::avg, &stream);
        for (int times = 1; times < s.stage; ++times) gather(all, mine);
      }
    }
    stream.synchronize();
  });
}

// Steps with `forward` and `backward` per bucket.
double step_time(muster::Communicator& world, muster::Communicator& ranks, size_t elements, const Settings& s,
                 const std::function<void()>& forward, const std::function<void()>& backward) {
  const size_t each = elements / s.buckets;
  const std::vector<float> start(each, 0.5f);
  const std::vector<uint16_t> gradient(each, 0x3c00);  // 2^-7
  const std::vector<zero::Tensor> tensors(s.buckets, {start.data(), each});
  zero::Options options;
  options.stage = s.stage;
  options.bucket = each;
  zero::Optimizer optimizer(ranks, tensors, options);
  return median_time(world, s.steps, [&] {
    for (size_t t = 0; t < s.buckets; ++t) {
      optimizer.use(t, zero::Pass::forward);
      forward();
      optimizer.done(t);
    }
    for (size_t t = s.buckets; t-- > 0;) {
      optimizer.use(t, zero::Pass::backward);
      backward();
      optimizer.done(t);
      optimizer.gradient(t, gradient.data());
    }
    optimizer.end_micro_batch();
    optimizer.step();
  });
}

}  // namespace

int main(int argc, char** argv) try {
  Settings s;
  std::string compute = "sleep";
  CLI::App app("How much of its communication a training step hides");
  app.add_option("--compute", compute, "What stands for forward and backward passes")
      ->check(CLI::IsMember({"sleep", "work"}))
      ->capture_default_str();
  app.add_option("--stage", s.stage)->check(CLI::Range(0, 3))->capture_default_str();
  app.add_option("--elements", s.elements, "Parameters")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--buckets", s.buckets)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", s.steps)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--ratio", s.ratio, "Computation / communication")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  s.works = compute == "work";

  muster::Communicator world = muster::Communicator::from_environment();
  {
    Work work(world);
    const auto computing = [&](double t) -> std::function<void()> {
      if (s.works) return [&work, t] { work.take(t); };
      return [t] { std::this_thread::sleep_for(std::chrono::duration<double>(t)); };
    };
    const auto idle = [] {};
    const size_t ranks = static_cast<size_t>(world.size());
    const double sent = communication(world, s);
    // A rank alone that updates as much: its share, or in stage 0 all.
    muster::Communicator alone = world.split(world.rank(), 0);
    const double update =
        step_time(world, alone, s.stage == 0 ? s.elements : s.elements / ranks, s, idle, idle);
    const double passes = std::max(s.ratio * sent - update, 0.0),
                 bucket = passes / static_cast<double>(s.buckets);
    const double computed = passes + update;
    const double nothing_hidden = step_time(world, world, s.elements, s, idle, idle) + passes;
    const double step =
        step_time(world, world, s.elements, s, computing(bucket / 3), computing(bucket * 2 / 3));
    if (world.rank() == 0)
      fmt::print(
          "stage {}, {} ranks, {} parameters in {} buckets, passes that {}, on {} cores\n"
          "communication {:8.2f} ms\n"
          "computation   {:8.2f} ms, of which {:.2f} are the update\n"
          "step          {:8.2f} ms\n"
          "ratio         {:8.3f} of the longer; with nothing hidden {:.3f}\n",
          s.stage, ranks, s.elements, s.buckets, s.works ? "work" : "sleep",
          std::thread::hardware_concurrency(), sent * 1e3, computed * 1e3, update * 1e3, step * 1e3,
          step / std::max(sent, computed), nothing_hidden / std::max(sent, computed));
    alone.destroy();
  }
  world.destroy();
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
