#include "plan/gpu_choice.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "plan/estimate.h"
#include "plan/prediction.h"

namespace muster {
namespace {

// What the kernels have, in the order in which they are taken where prices don't decide.
constexpr Protocol kKernelProtocols[] = {Protocol::simple, Protocol::ll};

class GpuPlanner {
 public:
  GpuPlanner(const CallShape& call, const GpuPlanInputs& in, const std::string& protocols)
      : call_(call), in_(in), list_(protocols), asked_(protocols_of(protocols)) {
    if (in.plan.nranks > 1 && !preferred()) refuse_protocols();
  }

  GpuChoice choose() const {
    const Choice usual = usual_choice();
    const std::vector<Candidate> all = candidates(usual);
    if (all.empty()) return {usual, preferred().value_or(Protocol::simple), usual_us(usual)};
    return choice_of(all, usual);
  }

  std::vector<PricedWay> ways() const {
    std::vector<PricedWay> ways;
    for (const Candidate& c : candidates(usual_choice())) ways.push_back({c.known, c.protocol, c.price.us()});
    return ways;
  }

 private:
  // By the rules for host memory. Throws where options and the call forbid all there is.
  Choice usual_choice() const {
    Choice c = muster::choose(call_, inputs_of(preferred().value_or(Protocol::simple)));
    if (!c.custom) c.channels = std::min(c.channels, in_.plan.lanes);
    return c;
  }

  // Those that can be had, by price.
  std::vector<Candidate> candidates(const Choice& usual) const {
    if (in_.plan.nranks == 1 || usual.custom || !on_one_host()) return {};
    std::vector<Candidate> all = predict(bare(), in_.links, constants(), options()).candidates;
    std::erase_if(all, [&](const Candidate& c) { return !serves(c); });
    return all;
  }

  bool on_one_host() const { return in_.ll_bytes > 0; }
  // Of several hosts prices are those of their networks.
  double usual_us(const Choice& usual) const {
    return usual.custom || on_one_host() ? 0 : estimate_us(*usual.algorithm, call_, in_.plan);
  }

  std::optional<Protocol> preferred() const {
    for (const Protocol p : kKernelProtocols)
      if (asked_for(p) && (p != Protocol::ll || on_one_host())) return p;
    return std::nullopt;
  }
  bool asked_for(Protocol p) const { return std::find(asked_.begin(), asked_.end(), p) != asked_.end(); }

  [[noreturn]] void refuse_protocols() const {
    const std::string why = on_one_host()
                                ? obstacle(Protocol::ll128, in_.links)
                                : "LL is for ranks of one host: networks carry messages that are counted";
    fail(Result::invalid_usage,
         "NCCL_PROTO='{}' leaves {} on GPU memory no protocol that its kernels have: LL and Simple. {}. Add "
         "one of "
         "them or unset it",
         list_, name_of(call_.coll), why.empty() ? "They have no LL128 in this version" : why);
  }

  // A message's data has so much room.
  PlanInputs inputs_of(Protocol p) const {
    PlanInputs in = in_.plan;
    if (p == Protocol::ll) in.slot_bytes = in.message_bytes = in_.ll_bytes;
    return in;
  }
  const Constants& constants() const { return in_.tuned ? *in_.tuned : Constants::built_in(); }

  // Which algorithms may run it can_run() says.
  CallShape bare() const {
    CallShape c = call_;
    c.allowed = 0;
    return c;
  }

  int most_channels() const {
    const PlanInputs& p = in_.plan;
    return p.most_channels ? std::min(p.most_channels, p.lanes) : p.lanes;
  }
  int wanted_channels() const { return call_.channels ? call_.channels : in_.plan.channels; }
  int forced_channels() const { return std::min(wanted_channels(), in_.plan.lanes); }

  PredictOptions options() const {
    PredictOptions o;
    o.protocol = list_;
    o.most_channels = most_channels();
    o.simple_message_bytes = in_.plan.slot_bytes;
    if (const int forced = forced_channels()) o.least_channels = o.most_channels = forced;
    return o;
  }

  bool serves(const Candidate& c) const {
    if (!c.known || !c.obstacle.empty()) return false;
    if (std::find(std::begin(kKernelProtocols), std::end(kKernelProtocols), c.protocol) ==
        std::end(kKernelProtocols))
      return false;
    const bool is_forced = find_algorithm(call_.coll, in_.plan.algorithm) == c.known;
    if (!in_.plan.trees && !call_.allowed && !is_forced && c.algorithm == "tree") return false;
    return can_run(*c.known, call_, inputs_of(c.protocol));
  }

  GpuChoice choice_of(const std::vector<Candidate>& all, const Choice& usual) const {
    const Candidate& best = all.front();
    GpuChoice g;
    g.protocol = best.protocol;
    g.us = best.price.us();
    g.choice.algorithm = best.known;
    g.choice.tile_bytes = inputs_of(best.protocol).slot_bytes;
    g.choice.channels = best.known->whole ? 1 : forced_channels() ? forced_channels() : best.channels;
    std::string& reason = g.choice.reason;
    reason = fmt::format("cheapest on GPUs ({}): {:.3g} us", name_of(in_.links.near), g.us);
    if (all.size() > 1)
      reason +=
          fmt::format(", {} by {} {:.3g}", all[1].algorithm, name_of(all[1].protocol), all[1].price.us());
    if (!in_.plan.algorithm.empty() || call_.allowed) reason += "; " + usual.reason;
    if (wanted_channels() > in_.plan.lanes)
      reason +=
          fmt::format("; {} channels are the most of these GPUs, not {}", in_.plan.lanes, wanted_channels());
    if (!list_.empty()) reason += fmt::format("; NCCL_PROTO={}", list_);
    return g;
  }

  const CallShape& call_;
  const GpuPlanInputs& in_;
  const std::string& list_;
  const std::vector<Protocol> asked_;
};

}  // namespace

GpuChoice choose_on_gpus(const CallShape& call, const GpuPlanInputs& inputs, const std::string& protocols) {
  return GpuPlanner(call, inputs, protocols).choose();
}

std::vector<PricedWay> ways_on_gpus(const CallShape& call, const GpuPlanInputs& inputs,
                                    const std::string& protocols) {
  return GpuPlanner(call, inputs, protocols).ways();
}

std::string describe(const std::string& call, int nranks, const GpuChoice& g) {
  const Choice& c = g.choice;
  return fmt::format("{}, {} ranks on GPUs: {} ({}), {}, {} channel{}, tile {} B: {}", call, nranks,
                     c.algorithm->name, c.algorithm->idea, name_of(g.protocol), c.channels,
                     c.channels == 1 ? "" : "s", c.tile_bytes, c.reason);
}

}  // namespace muster
