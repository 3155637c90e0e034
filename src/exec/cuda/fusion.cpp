#include "exec/cuda/fusion.h"

#include <algorithm>

namespace muster::cuda {
namespace {

using BoundCall = KernelExecutor::BoundCall;

// Addresses; empty: begin == end.
struct Memory {
  uintptr_t begin = 0, end = 0;
};

bool overlap(const Memory& a, const Memory& b) {
  return a.begin != a.end && b.begin != b.end && a.begin < b.end && b.begin < a.end;
}

Memory memory_of(const BoundCall& call, uint32_t buffer, const ByteRange& range) {
  if (range.begin == range.end) return {};
  const void* const base = buffer == kInput    ? call.buffers.input
                           : buffer == kOutput ? call.buffers.output
                                               : call.plan->scratch();
  const auto at = reinterpret_cast<uintptr_t>(base);
  return {at + range.begin, at + range.end};
}

Memory scalar_of(const BoundCall& call) {
  constexpr uintptr_t kLargest = 8;  // bytes of an element
  const auto at = reinterpret_cast<uintptr_t>(call.weight.at);
  return call.weight.at ? Memory{at, at + kLargest} : Memory{};
}

// Whether `a` writes what `b` reads or writes.
bool writes_memory_of(const BoundCall& a, const BoundCall& b) {
  for (const uint32_t i : {kInput, kOutput, kScratch}) {
    const Memory written = memory_of(a, i, a.plan->footprint().writes[i]);
    if (overlap(written, scalar_of(b))) return true;
    for (const uint32_t j : {kInput, kOutput, kScratch})
      if (overlap(written, memory_of(b, j, b.plan->footprint().reads[j])) ||
          overlap(written, memory_of(b, j, b.plan->footprint().writes[j])))
        return true;
  }
  return false;
}

bool have_one_block(const BoundCall& a, const BoundCall& b) {
  return a.plan->channels() == 1 && b.plan->channels() == 1;
}

bool blocks_may_differ(const BoundCall& a, const BoundCall& b) {
  return a.plan->own_lanes() && b.plan->own_lanes() && !writes_memory_of(a, b) && !writes_memory_of(b, a);
}

bool stays_alone(const BoundCall& call) { return call.plan->copies() || call.plan->windows(); }

}  // namespace

bool fits(std::span<const BoundCall> launch, const BoundCall& next) {
  if (launch.size() >= kMostCallsOfLaunch || stays_alone(next)) return false;
  return std::ranges::all_of(launch, [&](const BoundCall& call) {
    const void *const one = call.plan->kernel(), *const other = next.plan->kernel();
    return !stays_alone(call) && (!one || !other || one == other) &&
           (have_one_block(call, next) || blocks_may_differ(call, next));
  });
}

}  // namespace muster::cuda
