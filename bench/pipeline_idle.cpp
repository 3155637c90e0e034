// How much of their time a pipeline's stages are idle, beside the formula: `muster run -n 4 pipeline_idle`.
//
//   pipeline_idle [--schedule gpipe|1f1b|interleaved] [--micro-batches M] [--chunks V] [--forward MS]
//   [--elements N]
//
// A stage is a rank. Steps sleep, backward ones twice as long as forward, chunks a V-th of that, so ranks
// need no core each; messages have N elements. `measured` is what all stages together don't spend in their
// steps, of the time of the slowest; `formula` (p-1)/(vm+p-1).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>
#include <thread>

#include "muster/pipeline.h"

int main(int argc, char** argv) try {
  using muster::DataType;
  std::string name = "1f1b";
  int micro_batches = 0, chunks = 1;
  double forward_ms = 60;
  size_t elements = 1000;
  CLI::App app("How much of their time a pipeline's stages are idle, beside the formula");
  app.add_option("--schedule", name)
      ->check(CLI::IsMember({"gpipe", "1f1b", "interleaved"}))
      ->capture_default_str();
  app.add_option("--micro-batches", micro_batches, "0: twice the stages")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--chunks", chunks, "Of each stage; interleaved only")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--forward", forward_ms, "Milliseconds of a stage's forward pass")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--elements", elements, "Of a message")->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (name != "interleaved" && chunks > 1)
    throw std::runtime_error("--chunks of more than 1 are for --schedule interleaved");

  muster::Communicator stages = muster::Communicator::from_environment();
  const int p = stages.size(), m = micro_batches ? micro_batches : 2 * p;
  const muster::PipelineSchedule schedule = name == "gpipe"  ? muster::gpipe_schedule(p, m)
                                            : name == "1f1b" ? muster::one_forward_one_backward_schedule(p, m)
                                                             : muster::interleaved_schedule(p, m, chunks);
  const auto pass = [&](double times) {
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(forward_ms * times / chunks));
  };
  muster::PipelineModel model;
  model.elements = [&](int, int) { return elements; };
  model.load = [](int, void*) {};
  model.forward = [&](int, int, const void*, void*) { pass(1); };
  model.backward = [&](int, int, const void*, const void*, void*) { pass(2); };
  model.loss = [](int, const void*, void*) {};
  const muster::PipelineRun run = run_pipeline(stages, schedule, model);
  double busy = run.busy_seconds, longest = run.total_seconds;
  stages.all_reduce(&busy, &busy, 1, DataType::float64, muster::RedOp::sum);
  stages.all_reduce(&longest, &longest, 1, DataType::float64, muster::RedOp::max);
  if (stages.rank() == 0)
    fmt::print("{}, {} stages, {} micro-batches, {} chunks: idle {:.3f} measured, {:.3f} by the formula\n",
               name, p, m, chunks, 1 - busy / (p * longest), (p - 1.0) / (chunks * m + p - 1.0));
  stages.destroy();
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
