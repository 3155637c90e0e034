// What a step of training takes, by arithmetic: memory (training_memory.h), what each collective moves and
// takes (the planner's prices), what of it computation hides, the pipeline's idle time, and what bounds the
// step.
//
// Time of the step = micro-batches * (computation + exposed communication of the slowest stage) + idle + what
// of data-parallel communication isn't hidden + the optimizer.
//
//   computation   matrix products' operations (transformer.h) / (peak * share). Recomputed: selective,
//   attention's scores
//                 and their product once more (Korthikanti et al., appendix A); full, all of forward.
//   tensor        of a layer and micro-batch two all-reduces forward and two backward of s b h values
//   (Shoeybi et al., Megatron-LM,
//                 2019), with sequence parallelism an all-gather and a reduce-scatter in place of each, and
//                 two more all-gathers backward that the weights' gradients hide (Korthikanti et al.,
//                 section 4.2.2)
//   context       keys and values gathered, forward and backward, and their gradients reduce-scattered (Llama
//   3 report, 3.3.2) expert        all-to-all to the experts and back, forward and backward, tokens spread
//   evenly pipeline      a message of s b h / t values per boundary, forward and backward (PTD-P,
//   section 4.1); idle
//                 (p - 1) / v micro-batches' time (PTD-P, section 2.2)
//   data          ZeRO 0: all-reduce of gradients; 1: that, and all-gather of weights; 2: a reduce-scatter
//   for each
//                 micro-batch, and all-gather; 3: two all-gathers and a reduce-scatter for each micro-batch
//                 (ZeRO, section 7). Hidden behind one micro-batch's backward, all-gathers of weights behind
//                 forward, but at least a layer's share isn't.
//   optimizer     state read and written once at the memory's bandwidth
//
// Not in it: that communication slows computation which it is hidden behind, stragglers, reading data,
// checkpoints.
#pragma once

#include <string>
#include <vector>

#include "parallel/gpu_spec.h"
#include "parallel/group_prices.h"
#include "parallel/training_memory.h"

namespace muster {

struct TrainingTime {  // seconds
  double compute = 0, tensor = 0, context = 0, expert = 0, pipeline = 0, idle = 0, data = 0, optimizer = 0;
  double total() const { return compute + tensor + context + expert + pipeline + idle + data + optimizer; }
};

// One collective of one GPU of the slowest stage, for a step.
struct Traffic {
  std::string axis;  // "tp", "cp", "ep", "pp", "dp"
  std::string what;  // "activations"
  Coll coll = Coll::all_reduce;
  int64_t ranks = 1;
  std::string link;       // the slowest that it uses
  std::string algorithm;  // the planner's choice
  double bytes = 0;       // of one call, as nccl-tests counts sizes
  double calls = 0;
  double near_bytes = 0, far_bytes = 0;  // sent in all, within the host and to others
  double seconds = 0, exposed = 0;       // of all calls
};

struct TrainingEstimate {
  Training training;
  PeakMemory memory;
  bool fits = false;
  std::vector<Traffic> traffic;
  TrainingTime time;
  double idle_fraction = 0;    // of the pipeline's time
  double tokens_per_s = 0;     // of all GPUs
  double model_tflops = 0;     // per GPU and second, nothing recomputed counted
  double hardware_tflops = 0;  // with what is recomputed
  double mfu = 0;              // model_tflops of the peak
  double over_six_nd = 0;      // model operations / (6 * active parameters * tokens)
  std::string bound;           // the largest part of the time
  std::string link_bound;      // the links that most exposed time is spent on; empty: none
  double link_seconds = 0;     // how much
};

// Throws as check() does, and where prices are for another number of ranks.
TrainingEstimate estimate_training(const Transformer& model, const Training& training, const GpuSpec& gpu,
                                   GroupPrices& prices);

}  // namespace muster
