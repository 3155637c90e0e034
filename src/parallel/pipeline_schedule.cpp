// Schedules of pipelines, and what they come to on paper.
#include <algorithm>

#include "base/error.h"
#include "muster/pipeline.h"
#include "parallel/pipeline_text.h"

namespace muster {
namespace {

void require_pipeline(int stages, int micro_batches, int chunks) {
  if (stages < 1 || micro_batches < 1 || chunks < 1)
    fail(Result::invalid_argument, "A pipeline of {} stages, {} micro-batches and {} chunks: each must be 1 or more.", stages, micro_batches, chunks);
}

// The first `warm_up` forward steps, then one of each kind in turn, then the backward steps that are left.
std::vector<PipelineStep> in_turn(const std::vector<PipelineStep>& forward, const std::vector<PipelineStep>& backward, size_t warm_up) {
  std::vector<PipelineStep> steps(forward.begin(), forward.begin() + static_cast<ptrdiff_t>(warm_up));
  for (size_t i = 0; i < backward.size(); ++i) {
    if (warm_up + i < forward.size()) steps.push_back(forward[warm_up + i]);
    steps.push_back(backward[i]);
  }
  return steps;
}

// A schedule on its way along the time.
class PaperRun {
 public:
  PaperRun(const PipelineSchedule& s, const PipelineCosts& costs) : s_(s), costs_(costs) {
    require_pipeline(s.stages, s.micro_batches, s.chunks);
    if (costs.forward < 1 || costs.backward < 1)
      fail(Result::invalid_argument, "A pipeline's steps cost {} forward and {} backward: both must be 1 or more.", costs.forward, costs.backward);
    if (s.steps.size() != static_cast<size_t>(s.stages))
      fail(Result::invalid_argument, "The pipeline's schedule has steps for {} of its {} stages.", s.steps.size(), s.stages);
    const size_t parts = static_cast<size_t>(s.stages) * static_cast<size_t>(s.chunks);
    for (auto& pass : done_) pass.assign(parts * static_cast<size_t>(s.micro_batches), -1);
    next_.assign(static_cast<size_t>(s.stages), 0);
    free_.assign(static_cast<size_t>(s.stages), 0);
    alive_.assign(static_cast<size_t>(s.stages), 0);
    timing_.ends.resize(static_cast<size_t>(s.stages));
    timing_.peak_activations.assign(static_cast<size_t>(s.stages), 0);
  }

  PipelineTiming finish() {
    for (int stage = 0; stage < s_.stages; ++stage) require_complete(stage);
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < s_.stages; ++stage)
        while (advance(stage)) moved = true;
    }
    for (int stage = 0; stage < s_.stages; ++stage)
      if (left(stage)) fail_waiting(stage);
    timing_.makespan = *std::max_element(free_.begin(), free_.end());
    const int64_t busy = int64_t{s_.stages} * s_.chunks * s_.micro_batches * (costs_.forward + costs_.backward);
    timing_.idle = timing_.makespan * s_.stages - busy;
    timing_.idle_share = static_cast<double>(timing_.idle) / static_cast<double>(timing_.makespan * s_.stages);
    return std::move(timing_);
  }

 private:
  int part(int stage, const PipelineStep& step) const { return step.chunk * s_.stages + stage; }
  int64_t& done(PipelinePass pass, int part, int micro_batch) {
    return done_[static_cast<size_t>(pass)][static_cast<size_t>(part) * static_cast<size_t>(s_.micro_batches) + static_cast<size_t>(micro_batch)];
  }
  const std::vector<PipelineStep>& steps(int stage) const { return s_.steps[static_cast<size_t>(stage)]; }
  bool left(int stage) const { return next_[static_cast<size_t>(stage)] < steps(stage).size(); }

  // Each step of the stage is there, once, and backward behind forward.
  void require_complete(int stage) const {
    std::vector<uint8_t> seen(static_cast<size_t>(s_.chunks) * static_cast<size_t>(s_.micro_batches), 0);
    for (const PipelineStep& step : steps(stage)) {
      if (step.micro_batch < 0 || step.micro_batch >= s_.micro_batches || step.chunk < 0 || step.chunk >= s_.chunks)
        fail(Result::invalid_argument, "Stage {} of the pipeline's schedule has the step {}, but there are {} micro-batches and {} chunks.", stage,
             pipeline_label(step, true), s_.micro_batches, s_.chunks);
      uint8_t& passes = seen[static_cast<size_t>(step.chunk) * static_cast<size_t>(s_.micro_batches) + static_cast<size_t>(step.micro_batch)];
      const bool is_forward = step.pass == PipelinePass::forward;
      if (!is_forward && passes == 0)
        fail(Result::invalid_argument, "Stage {} of the pipeline's schedule runs {} before its forward pass.", stage, label(step));
      if (passes > (is_forward ? 0 : 1))
        fail(Result::invalid_argument, "Stage {} of the pipeline's schedule runs {} twice.", stage, label(step));
      ++passes;
    }
    for (size_t i = 0; i < seen.size(); ++i) {
      if (seen[i] == 2) continue;
      const auto m = static_cast<size_t>(s_.micro_batches);
      const PipelineStep missing = {seen[i] == 0 ? PipelinePass::forward : PipelinePass::backward, static_cast<int>(i % m), static_cast<int>(i / m)};
      fail(Result::invalid_argument, "Stage {} of the pipeline's schedule never runs {}.", stage, label(missing));
    }
  }

  // When what the step needs from another part is there; -1: it isn't yet.
  int64_t input_time(int stage, const PipelineStep& step) {
    const int k = part(stage, step), last = s_.stages * s_.chunks - 1;
    if (step.pass == PipelinePass::forward) return k == 0 ? 0 : done(PipelinePass::forward, k - 1, step.micro_batch);
    return k == last ? done(PipelinePass::forward, k, step.micro_batch) : done(PipelinePass::backward, k + 1, step.micro_batch);
  }

  bool advance(int stage) {
    if (!left(stage)) return false;
    const auto s = static_cast<size_t>(stage);
    const PipelineStep& step = steps(stage)[next_[s]];
    const int64_t ready = input_time(stage, step);
    if (ready < 0) return false;
    const bool is_forward = step.pass == PipelinePass::forward;
    free_[s] = std::max(free_[s], ready) + (is_forward ? costs_.forward : costs_.backward);
    done(step.pass, part(stage, step), step.micro_batch) = free_[s];
    alive_[s] += is_forward ? 1 : -1;
    timing_.peak_activations[s] = std::max(timing_.peak_activations[s], alive_[s]);
    timing_.ends[s].push_back(free_[s]);
    ++next_[s];
    return true;
  }

  std::string label(const PipelineStep& step) const { return pipeline_label(step, s_.chunks > 1); }

  [[noreturn]] void fail_waiting(int stage) {
    const PipelineStep& step = steps(stage)[next_[static_cast<size_t>(stage)]];
    const int k = part(stage, step) + (step.pass == PipelinePass::forward ? -1 : 1);
    const int from = k % s_.stages;
    const PipelineStep awaited = {step.pass, step.micro_batch, k / s_.stages};
    fail(Result::invalid_argument,
         "The pipeline's schedule {} stops: stage {} waits with {} for {} of stage {}, which comes there after a step that waits, too. Reorder the steps.",
         s_.name, stage, label(step), label(awaited), from);
  }

  const PipelineSchedule& s_;
  const PipelineCosts costs_;
  std::vector<int64_t> done_[2];  // by pass, part and micro-batch: when; -1: not yet
  std::vector<size_t> next_;      // by stage
  std::vector<int64_t> free_;
  std::vector<int> alive_;
  PipelineTiming timing_;
};

}  // namespace

PipelineSchedule gpipe_schedule(int stages, int micro_batches) {
  require_pipeline(stages, micro_batches, 1);
  std::vector<PipelineStep> steps;
  for (int m = 0; m < micro_batches; ++m) steps.push_back({PipelinePass::forward, m, 0});
  for (int m = 0; m < micro_batches; ++m) steps.push_back({PipelinePass::backward, m, 0});
  return {"GPipe", stages, micro_batches, 1, std::vector<std::vector<PipelineStep>>(static_cast<size_t>(stages), steps)};
}

PipelineSchedule one_forward_one_backward_schedule(int stages, int micro_batches) {
  require_pipeline(stages, micro_batches, 1);
  PipelineSchedule s = {"1F1B", stages, micro_batches, 1, {}};
  std::vector<PipelineStep> forward, backward;
  for (int m = 0; m < micro_batches; ++m) {
    forward.push_back({PipelinePass::forward, m, 0});
    backward.push_back({PipelinePass::backward, m, 0});
  }
  for (int stage = 0; stage < stages; ++stage)
    s.steps.push_back(in_turn(forward, backward, static_cast<size_t>(std::min(stages - stage - 1, micro_batches))));
  return s;
}

PipelineSchedule interleaved_schedule(int stages, int micro_batches, int chunks) {
  require_pipeline(stages, micro_batches, chunks);
  if (chunks == 1) return one_forward_one_backward_schedule(stages, micro_batches);
  if (micro_batches % stages != 0)
    fail(Result::invalid_argument, "An interleaved pipeline of {} stages can't run {} micro-batches: their number must be a multiple of the stages, such as {}.",
         stages, micro_batches, (micro_batches / stages + 1) * stages);
  PipelineSchedule s = {"interleaved 1F1B", stages, micro_batches, chunks, {}};
  // As many micro-batches as there are stages go through all chunks before the next ones do.
  std::vector<PipelineStep> forward, backward;
  for (int first = 0; first < micro_batches; first += stages)
    for (int c = 0; c < chunks; ++c)
      for (int m = first; m < first + stages; ++m) {
        forward.push_back({PipelinePass::forward, m, c});
        backward.push_back({PipelinePass::backward, m, chunks - 1 - c});
      }
  for (int stage = 0; stage < stages; ++stage) {
    const size_t warm_up = static_cast<size_t>(stages - stage - 1) * 2 + static_cast<size_t>(chunks - 1) * static_cast<size_t>(stages);
    s.steps.push_back(in_turn(forward, backward, std::min(warm_up, forward.size())));
  }
  return s;
}

PipelineTiming examine(const PipelineSchedule& schedule, const PipelineCosts& costs) { return PaperRun(schedule, costs).finish(); }

}  // namespace muster
