#include "base/lasting_memory.h"

#include <mutex>

#include "base/fork.h"

namespace muster {
namespace {

constexpr int kMostNested = 16;  // ranges looked at per question

}  // namespace

// Never freed: threads outlive static objects. What a child inherited may end in the parent without its
// knowing.
LastingMemory& LastingMemory::of_process() {
  struct Mine {
    const Mine* inherited;  // of the process that this one was forked from
    int generation = fork_generation();
    LastingMemory memory{static_cast<uint64_t>(generation)
                         << 48};  // not those of the parent's that the child may end
  };
  static std::atomic<Mine*> mine{nullptr};
  Mine* m = mine.load(std::memory_order_acquire);
  while (!m || m->generation != fork_generation()) [[unlikely]] {
      auto* const made = new Mine{m};
      if (mine.compare_exchange_strong(m, made, std::memory_order_acq_rel)) return made->memory;
      delete made;
    }
  return m->memory;
}

uint64_t LastingMemory::add(Span range, bool shared, const void* owner) {
  const auto begin = reinterpret_cast<uintptr_t>(range.data());
  const std::unique_lock lock(mutex_);
  const uint64_t life = ++last_life_;
  by_life_[life] = by_begin_.insert({begin, {{begin, begin + range.size(), life, shared}, owner}});
  return life;
}

void LastingMemory::erase(ByBegin::iterator it) {
  by_life_.erase(it->second.range.life);
  by_begin_.erase(it);
  ended_.fetch_add(1, std::memory_order_release);
}

void LastingMemory::end(uint64_t life) {
  const std::unique_lock lock(mutex_);
  if (const auto it = by_life_.find(life); it != by_life_.end()) erase(it->second);
}

void LastingMemory::end_all_of(const void* owner) {
  if (!owner) return;
  const std::unique_lock lock(mutex_);
  for (auto it = by_begin_.begin(); it != by_begin_.end();)
    if (const auto i = it++; i->second.owner == owner) erase(i);
}

void LastingMemory::end_within(Span range) {
  const auto begin = reinterpret_cast<uintptr_t>(range.data()), end = begin + range.size();
  const std::unique_lock lock(mutex_);
  for (auto it = by_begin_.begin(); it != by_begin_.end() && it->first < end;)
    if (const auto i = it++; i->second.range.end > begin) erase(i);
}

LastingMemory::Range LastingMemory::find(const void* p, size_t bytes) const {
  const std::shared_lock lock(mutex_);
  auto it = by_begin_.upper_bound(reinterpret_cast<uintptr_t>(p));
  for (int i = 0; i < kMostNested && it != by_begin_.begin(); ++i)
    if ((--it)->second.range.holds(p, bytes)) return it->second.range;
  return {};
}

bool LastingMemory::lives(uint64_t life) const {
  const std::shared_lock lock(mutex_);
  return by_life_.contains(life);
}

}  // namespace muster
