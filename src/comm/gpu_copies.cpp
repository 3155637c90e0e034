#include "comm/gpu_copies.h"

#include "base/log.h"
#include "comm/cta_policy.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

uint64_t chunk_bytes(const Call& call) { return call.shape.count * size_of(call.shape.type); }

}  // namespace

CopyPlan plan_copies(Impl& comm, const Call& call) {
  if (!comm.copy_engines_wanted) comm.copy_engines_wanted = wants_copy_engines(comm.options, comm.config);
  if (!*comm.copy_engines_wanted || call.shape.count == 0 || call.gpu_group) return {};
  if (call.shape.coll != Coll::all_gather && call.shape.coll != Coll::all_to_all)
    return {{}, "copy engines run all-gathers and all-to-alls only"};
  CopyPlan plan{comm.gpu_windows.find(call.recv, chunk_bytes(call) * static_cast<uint64_t>(comm.size)), {}};
  if (!plan.to.window)
    plan.why_not = "its receive buffer is in no window of ncclCommWindowRegister";
  else if (!plan.to.window->obstacle.empty())
    plan = {{}, fmt::format("window {}: {}", plan.to.window->number, plan.to.window->obstacle)};
  return plan;
}

// Each rank begins with another peer, so that not all copy to one at once.
std::vector<GpuCopies::Copy> copies_of(const Impl& comm, const Call& call, const CopyPlan& plan, const std::byte* input) {
  const uint64_t bytes = chunk_bytes(call);
  const bool to_each_its_own = call.shape.coll == Coll::all_to_all;
  std::vector<GpuCopies::Copy> copies;
  for (int i = 1; i <= comm.size; ++i) {
    const auto peer = static_cast<uint64_t>((comm.rank + i) % comm.size);
    std::byte* const to = plan.to.window->parts[peer].get() + plan.to.offset + static_cast<uint64_t>(comm.rank) * bytes;
    const std::byte* const from = to_each_its_own ? input + peer * bytes : input;
    if (to != from) copies.push_back({static_cast<int>(peer), to, from, bytes});
  }
  return copies;
}

void explain_copies(Impl& comm, const Call& call, const CopyPlan& plan) {
  if (plan.to.window) {
    if (comm.report)
      comm.report->note(fmt::format("{}, {} ranks: copy engines (each rank copies its parts to its peers; no kernel): the CTA policy is "
                                    "zero, and the receive buffers are in window {}",
                                    to_string(call), comm.size, plan.to.window->number));
  } else if (!plan.why_not.empty()) {
    const std::string text =
        fmt::format("{} runs by kernels though the CTA policy is zero: {}", to_string(call), plan.why_not);
    if (comm.report) comm.report->note(text);
    if (comm.copies_refused.insert(call.shape.coll).second)
      log_info(Topic::tuning, "communicator {}: {}", comm.name, text);
  }
}

}  // namespace muster
