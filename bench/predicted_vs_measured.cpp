// What the host cost model says of each algorithm, beside what it takes; start it with `muster run -n N`.
// scripts/predicted_vs_measured.py runs it for several N and sums up.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/time_call.h"
#include "comm/tuning_profile.h"
#include "plan/host_price.h"
#include "plan/selection.h"

namespace {

using namespace muster;

class Comparison {
 public:
  Comparison(Communicator& comm, std::shared_ptr<const Constants> constants, double seconds, int rounds)
      : comm_(comm), constants_(std::move(constants)), seconds_(seconds), rounds_(rounds), free_(comm.impl()->inputs) {}

  // Rows: collective, algorithm, ranks, bytes, predicted microseconds, and by whom it is chosen: t thresholds, m the
  // model; capitals: where all buffers are windows; x: it is never chosen, only forced, since its results would be
  // rounded on the way. Then the measured microseconds, of each round one.
  void size(Coll coll, uint64_t bytes) {
    const PlanInputs& in = comm_.impl()->inputs;
    const auto n = static_cast<uint64_t>(comm_.size());
    CallShape shape{coll, DataType::float32, RedOp::sum, 0, bytes / 4 / (splits_count(coll) ? 1 : n)};
    if (shape.count == 0) return;
    PlanInputs modelled = in;
    modelled.tuned = constants_;
    std::vector<const Algorithm*> can;
    std::vector<TimedCall> calls;
    for (const Algorithm& a : algorithms()) {
      if (a.coll != coll || (!a.windows && !can_run(a, shape, free_))) continue;
      TimedCall forced{shape, a.windows};
      forced.shape.allowed = only(a);
      if (a.windows) {
        forced.shape.allowed |= only(*choose(shape, free_).algorithm);
        if (!choose_windows(forced.shape, free_).algorithm) continue;
      }
      can.push_back(&a);
      calls.push_back(forced);
    }
    const auto times = time_calls(comm_, calls, std::chrono::duration<double>(seconds_ / (rounds_ + 1)), rounds_);
    if (comm_.rank() != 0) return;
    for (size_t i = 0; i < can.size(); ++i) {
      const Algorithm& a = *can[i];
      std::string by = reduces(coll) && !a.rank_order ? "x" : "";
      if (choose(shape, free_).algorithm == &a) by += 't';
      if (choose(shape, modelled).algorithm == &a) by += 'm';
      if (with_windows(shape, free_) == &a) by += 'T';
      if (with_windows(shape, modelled) == &a) by += 'M';
      fmt::print("{} {} {} {} {:.4g} {} {:.4g}\n", name_of(coll), a.name, comm_.size(), bytes,
                 host_price(a, shape, in, *constants_).us, by.empty() ? "-" : by, fmt::join(times[i], ","));
      std::fflush(stdout);
    }
  }

 private:
  static const Algorithm* with_windows(const CallShape& shape, const PlanInputs& in) {
    const Choice windows = choose_windows(shape, in);
    return windows.algorithm ? windows.algorithm : choose(shape, in).algorithm;
  }

  Communicator& comm_;
  std::shared_ptr<const Constants> constants_;
  double seconds_;
  int rounds_;
  PlanInputs free_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Predicted and measured times of all algorithms; start it with `muster run -n N`"};
  std::vector<uint64_t> sizes = {8, 128, 2048, 32768, 524288, 8388608};
  double milliseconds = 5;
  int rounds = 5;
  app.add_option("--sizes", sizes, "Bytes, as nccl-tests counts them")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--time-ms", milliseconds, "Per algorithm and size")->check(CLI::PositiveNumber);
  app.add_option("--rounds", rounds, "In which all algorithms take their turns")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    // Prices are by the profile that is set; the calls run as without one, but for what is forced.
    const TuningProfile profile = load_tuning_profile(Options::from_environment());
    setenv("MUSTER_TUNING_PROFILE", "", 1);
    Communicator comm = Communicator::from_environment();
    Comparison comparison(
        comm,
        profile.constants ? profile.constants : std::make_shared<const Constants>(Constants::built_in()),
        milliseconds / 1e3, rounds);
    for (int c = 0; c < kColls; ++c) {
      const Coll coll = static_cast<Coll>(c);
      if (is_uneven(coll) || coll == Coll::send_recv) continue;
      for (const uint64_t bytes : sizes) comparison.size(coll, bytes);
    }
    comm.destroy();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "predicted_vs_measured: %s\n", e.what());
    return 1;
  }
}
