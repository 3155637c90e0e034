// Pipeline parallelism: which stage runs which micro-batch when, as data, and running it over a communicator.
//
// A model is cut into stages * chunks parts, one behind the other; part k lies on stage k % stages as its chunk k / stages.
// Between parts there are boundaries: part k takes micro-batch m's activations at boundary k and leaves them at k + 1, and
// backward takes gradients at k + 1 and leaves them at k.
//
// Sources: Huang et al. 2019, "GPipe" (all forward, then all backward; idle share (p-1)/(m+p-1)); Narayanan et al. 2021,
// "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (PTD-P), section 2.2 (1F1B and its
// interleaved form with v chunks, whose idle time is v times shorter). Here p: stages, m: micro-batches, v: chunks.
//
// Errors are muster::Error. The functions on schedules are pure: from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "muster/muster.h"

namespace muster {

enum class PipelinePass : uint8_t { forward, backward };

struct PipelineStep {
  PipelinePass pass = PipelinePass::forward;
  int micro_batch = 0;
  int chunk = 0;  // of the stage
  friend bool operator==(const PipelineStep&, const PipelineStep&) = default;
};

// For each stage what it runs, in order. May be written by hand: examine() says whether it can be run.
struct PipelineSchedule {
  std::string name;
  int stages = 1;
  int micro_batches = 1;
  int chunks = 1;
  std::vector<std::vector<PipelineStep>> steps;  // by stage
  friend bool operator==(const PipelineSchedule&, const PipelineSchedule&) = default;
};

// invalid_argument: a number below 1; interleaved: micro-batches that aren't a multiple of the stages (PTD-P, section 2.2).
MUSTER_API PipelineSchedule gpipe_schedule(int stages, int micro_batches);
MUSTER_API PipelineSchedule one_forward_one_backward_schedule(int stages, int micro_batches);
MUSTER_API PipelineSchedule interleaved_schedule(int stages, int micro_batches, int chunks);

// How long one chunk takes for one micro-batch, in any unit, the same on all stages. Backward computes two gradients where
// forward computes one product.
struct PipelineCosts {
  int forward = 1;   // 1 or more
  int backward = 2;  // 1 or more
};

struct PipelineTiming {
  int64_t makespan = 0;                    // from the first step's beginning to the last one's end
  int64_t idle = 0;                        // of all stages together; idle / (stages * makespan) is the idle share
  std::vector<std::vector<int64_t>> ends;  // when each step ends: by stage and place in its list
  std::vector<int> peak_activations;       // by stage: most inputs (micro-batches times chunks) that wait for their backward pass
  double idle_share = 0;
};

// Runs the schedule on paper: each step begins when its stage is free and what it needs is there; messages take no time.
// invalid_argument, with stage and step: a step is missing, twice or none of the model's, a backward pass comes before its
// forward pass, or stages wait for each other for ever.
MUSTER_API PipelineTiming examine(const PipelineSchedule& schedule, const PipelineCosts& costs = {});

// One line per stage: "stage 0: F0 F1 B0 B1", chunks as letters: "F0a".
MUSTER_API std::string text(const PipelineSchedule& schedule);
// One line per stage along the time: a column per unit of time, labels where steps begin, - while they go on, . while idle.
MUSTER_API std::string drawing(const PipelineSchedule& schedule, const PipelineCosts& costs = {});
// The same as a picture.
MUSTER_API std::string svg(const PipelineSchedule& schedule, const PipelineCosts& costs = {});

// What the stages do. Callbacks run on the calling thread, and are only called for what lies on this stage. Activations and
// gradients at one boundary have the same number of elements.
struct PipelineModel {
  DataType type = DataType::float32;  // of activations and gradients; the same on all stages
  // At boundary 0 to stages * chunks, for each micro-batch its own; 0 is allowed. Only stage 0 is asked, before the first
  // step: the others are told.
  std::function<size_t(int micro_batch, int boundary)> elements;
  // The first part's stage: a micro-batch into the model.
  std::function<void(int micro_batch, void* input)> load;
  std::function<void(int chunk, int micro_batch, const void* input, void* output)> forward;
  // `input` is what forward had.
  std::function<void(int chunk, int micro_batch, const void* input, const void* output_gradient, void* input_gradient)> backward;
  // The last part's stage, right after its forward pass: the gradient of the loss with respect to the model's output.
  std::function<void(int micro_batch, const void* output, void* gradient)> loss;
  // By chunk; empty: none. A part without layers hands on what it gets, both ways, and neither forward nor backward is called
  // for it. Its two boundaries must have equal sizes.
  std::vector<bool> without_layers;
};

struct PipelineRun {
  double total_seconds = 0;     // from the first step to the end of the last on this stage, after all have met
  double busy_seconds = 0;      // in callbacks
  int peak_activations = 0;     // inputs kept for backward at one time; a part without layers keeps none
  uint64_t messages_sent = 0;   // to other stages
  uint64_t bytes_sent = 0;
};

// Collective over `stages`, whose size is the schedule's; rank s is stage s. Blocking.
//
// Messages can't be waited for in a circle: all ranks know when, in examine()'s time, each message is sent, and each takes part in
// messages in the order of these times, those of one time in one group. Of all messages not yet delivered the earliest then
// has both its ranks ready. Messages between two ranks are in one order at both ends, so they can't be mistaken for each
// other, also where the next stage is the previous one, too (two stages with chunks).
//
// On all ranks before the first step: invalid_argument as examine(), if the communicator has another size, or for a part
// without layers whose boundaries differ, or a callback is missing; invalid_usage: schedules, costs or types differ. What a callback throws leaves this
// function; the others then wait until this rank's communicator is aborted or destroyed.
MUSTER_API PipelineRun run_pipeline(Communicator& stages, const PipelineSchedule& schedule, const PipelineModel& model,
                                    const PipelineCosts& costs = {});

}  // namespace muster
