// What a tuner plugin makes of a communicator's calls.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/tuner_library.h"
#include "plan/gpu_choice.h"
#include "plan/planner.h"

namespace muster {

// What a plugin makes of a call on GPU memory.
struct GpuWish {
  CallShape call;         // as of tuned()
  std::string protocols;  // as choose_on_gpus() takes them
  std::string by;         // "tuner plugin NAME"; empty: it has no wish
};

// The plugin is given the planner's prices of what Muster has that goes by a name of NCCL's; with protocol
// Simple on host memory, with those that there are on GPUs:
//   Ring   ring; of broadcast and reduce chain
//   Tree   tree
// Everything else is -1. Afterwards the cheapest entry decides, unless the plugin left the table as it was,
// or the planner's own choice has no such name and is cheaper still.
class Tuner {
 public:
  // Throws system_error where the plugin's init fails.
  Tuner(std::shared_ptr<const TunerLibrary> library, const TunerPlace& place,
        const std::string& communicator);
  ~Tuner() { end(); }
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  // The call with what the plugin chose for it: CallShape::allowed is one algorithm, CallShape::channels a
  // number of channels, or both are as they came. Options that force an algorithm or channels go before it.
  // Any thread.
  CallShape tuned(const CallShape& call, const PlanInputs& inputs);
  // The same on GPUs. `protocols`: that NCCL_PROTO leaves, as choose_on_gpus() takes them.
  GpuWish tuned_on_gpus(const CallShape& call, const GpuPlanInputs& inputs, const std::string& protocols);
  // "tuner plugin NAME"
  std::string name() const { return "tuner plugin " + library_->name(); }
  // The plugin's destroy; once, and not in a forked child, whose plugin this isn't.
  void end() noexcept;

 private:
  struct Wish {
    std::optional<PricedWay> way;  // nothing: the planner's own
    int channels = 0;              // 0: the planner's own
  };
  // `ways`: all that there are; `own`: the planner's choice. Nothing: the plugin has no say.
  std::optional<Wish> ask(const CallShape& call, int nranks, const std::vector<PricedWay>& ways,
                          const PricedWay& own);
  CallShape applied(const Wish& wish, const CallShape& call, const PlanInputs& inputs) const;

  const std::shared_ptr<const TunerLibrary> library_;
  const std::string communicator_;
  const int fork_generation_;
  std::mutex mutex_;
  void* context_ = nullptr;
  bool ended_ = false, warned_ = false;
};

}  // namespace muster
