// ZeRO (Rajbhandari et al. 2020) on host memory or GPUs: data-parallel training whose state is replicated or
// sharded by one number, the stage.
//
// A step is, on every rank:
//
//   for each micro-batch:
//     forward:  w = zero.use(t, Pass::forward); compute; zero.done(t)       for each tensor
//     backward: w = zero.use(t, Pass::backward); compute; zero.done(t); zero.gradient(t, g)
//     zero.end_micro_batch()
//   zero.step()
//
// stage                  0 (DDP)      1            2               3 (FSDP)
// gradients, in backward all-reduce   all-reduce   reduce-scatter  reduce-scatter
// parameters, after step -            all-gather   all-gather      -
// parameters, when used  -            -            -               all-gather, twice
//
// Buckets of gradients are reduced by a stream's thread, or a CUDA stream, as soon as they are full, and new
// parameters gathered behind step() until they are used, while the caller computes on. With several
// micro-batches stages 0 and 1 add up micro-batches before ranks, so that one of them communicates, 2 and 3
// ranks before micro-batches, in the parameters' type. With MUSTER_REPRODUCIBLE=1 all add up ranks first, and
// all stages give the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "muster/bytes_sent.h"
#include "muster/gpu.h"
#include "muster/muster.h"
#include "muster/zero_layout.h"

namespace muster::zero {

// Adam with decoupled weight decay (Loshchilov and Hutter 2019); the defaults are PyTorch's.
struct AdamW {
  float learning_rate = 1e-3f, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, weight_decay = 0.01f;
};

// Equal on all ranks: a difference is an error of the constructor.
struct Options {
  int stage = 2;                       // 0 to 3
  DataType type = DataType::bfloat16;  // of parameters and gradients: float16, bfloat16, float32
  size_t alignment = 1;                // elements of which shards are a multiple, in each bucket
  size_t bucket = 25 * (1 << 20) / 2;  // elements: PyTorch DDP's 25 MiB of 16-bit gradients
  int micro_batches = 1;               // per step; gradients are averaged over them and over the ranks
  int prefetch = 1;                    // stage 3: buckets gathered ahead of the one in use; 0: none
  double clip_norm = 0;                // gradients are scaled down to this global norm; 0: they aren't
  // What the caller has multiplied the loss by; see loss_scale(). 0: 65536 for float16, 1 for others. float16
  // halves it (not below 1) when a gradient overflows, and doubles it after scale_growth steps without
  // (PyTorch's GradScaler has these numbers).
  float loss_scale = 0;
  int scale_growth = 2000;
  // Parameters are gathered as int8, with a float32 scale for each kQuantisedBlock of a shard: about half of
  // the bytes. What is computed with then differs from what is kept by at most max|x| of the block / 254, and
  // the rounding to `type`; master copies keep all bits. Stages 1 to 3; not float32 in stages 1 and 2, where
  // the gathered parameters are the master copy.
  bool quantised_gather = false;
  AdamW adam;
};
inline constexpr size_t kQuantisedBlock = 256;

// Initial values, equal on all ranks; read by the constructor only. In host memory, or in that of the GPU
// that the state is on.
struct Tensor {
  const float* values = nullptr;  // may be null if there are none
  size_t elements = 0;
};

enum class Pass { forward, backward };

struct StepResult {
  // A gradient was infinite or NaN: nothing has changed but the loss scale, on all ranks alike.
  bool skipped = false;
  std::optional<double> norm;  // of the averaged gradients, before clipping; float16 or clip_norm only
};

// A part of a tensor's state that a rank keeps, in float32: elements [begin, begin + elements).
struct StatePiece {
  size_t tensor = 0, begin = 0, elements = 0;
  float *parameters = nullptr, *first_moment = nullptr, *second_moment = nullptr;
};

// What else a checkpoint needs, equal on all ranks.
struct Progress {
  int64_t steps = 0;             // that changed parameters
  float loss_scale = 1;          // of the next micro-batch
  int steps_since_overflow = 0;  // float16's; below Options::scale_growth
  friend bool operator==(const Progress&, const Progress&) = default;
};

// Parameters, gradients and Adam's state of one model on one rank, all in host memory or all on one GPU; what
// the caller gives must be there, too (invalid_argument).
//
// On a GPU everything is in the order of the caller's CUDA stream: calls return when the stream has what they
// do, and what is computed there next sees it. use() gives what kernels of the stream may read that are
// launched before done(); gradients are taken as the stream's kernels have made them, and may be overwritten
// by later ones. Communication is on streams of its own, behind the caller's work that it needs. What waits:
// the constructor, step() with float16 or clip_norm (the norm decides), the destructor. Errors of
// communicators come out of a later call. The results are those of host memory, bit for bit (NaNs aside),
// where reductions are: with MUSTER_REPRODUCIBLE=1 always.
//
// The constructor, end_micro_batch, step and restore are collective, and so are, in stage 3, use and done:
// every rank makes those calls in the same order. gradient may be called by several threads, also while
// others call use and done, in any order of tensors, which may differ by rank: buckets are always reduced in
// the same order. Everything else: one thread at a time. Errors of communicators come out of the call that
// waits for them; the object is of no use afterwards.
class MUSTER_API Optimizer {
 public:
  // Shards over `communicator`'s ranks, by communicators of its own. `replicas`, if there is one, has the
  // ranks that hold the same shard elsewhere: sharding inside a host and replicating across hosts is
  // communicator = ranks of one host, replicas = ranks of the same number in all hosts. Stage 0 has no
  // shards, and so no replicas. invalid_argument: options out of range, a communicator that doesn't block;
  // invalid_usage naming the rank: options, sizes or initial values that differ.
  Optimizer(Communicator& communicator, std::span<const Tensor> tensors, const Options& options = {},
            Communicator* replicas = nullptr);
  // The same on the calling thread's current GPU, of which the stream is, and which lives longer than this.
  // invalid_usage: the library has no part for GPUs, or there is none; on all ranks: two of one process are on
  // one GPU, where one's freeing of memory could wait forever for the other's kernels.
  Optimizer(Communicator& communicator, std::span<const Tensor> tensors, const Options& options,
            GpuStream stream, Communicator* replicas = nullptr);
  ~Optimizer();  // waits for reductions under way
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  const Layout& layout() const;

  // The tensor's parameters, in Options::type, until done(). In stage 3 its bucket is gathered, and the next
  // ones of the pass begin to be; it is released when none of its tensors is in use and all were, or the pass
  // has come to another bucket. In other stages parameters are always there, once what step() began to gather
  // has come. A tensor may be in use several times.
  const void* use(size_t tensor, Pass pass);
  void done(size_t tensor);

  // The gradient of a tensor in this micro-batch, in Options::type; copied before it returns. Twice:
  // invalid_usage. Tensors without one count as zero.
  void gradient(size_t tensor, const void* values);
  void end_micro_batch();
  // AdamW with the gradients of Options::micro_batches micro-batches, then new parameters. invalid_usage:
  // fewer or more have ended, or tensors are in use.
  StepResult step();
  // From the next step on, equal on all ranks: a learning rate that changes.
  void set_adam(const AdamW& adam);
  // What the loss of the next micro-batch is to be multiplied by.
  float loss_scale() const;

  // For checkpoints, between steps: where this rank keeps what of which tensors. In stage 0 that is all of
  // them, in others each element is on one rank of `communicator`; replicas have the same. So a checkpoint
  // that is laid out by tensors fits any stage, number of ranks, bucket and alignment. Pointers are valid as
  // long as the object; they may be written to if restore() is called before anything else. On a GPU all that
  // is in the order of the stream.
  std::vector<StatePiece> state();
  Progress progress() const;
  // After all pieces have been written: goes on from there. Parameters are made of them, rounded to
  // Options::type. invalid_argument: numbers out of range; invalid_usage: progress differs by rank, a step
  // has begun or tensors are in use.
  void restore(const Progress& progress);

  // Bytes allocated for the state: state_bytes(layout().padded(), ranks, stage, type).
  StateBytes allocated() const;
  // Bytes of buffers that buckets pass through, most so far: for reductions under way in stages 2 and 3,
  // parameters in use and gathered ahead in 3, and quantised ones.
  size_t passing_bytes() const;
  // What this rank has sent for all of it; waits for parameters that are being gathered.
  BytesSent bytes_sent() const;

 private:
  struct MUSTER_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::zero
