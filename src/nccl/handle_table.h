// Handles that can be told from garbage: a handle is the address of a slot of a table, so whether a pointer
// is one, and whether what it stands for still lives, is seen without touching what it points to.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

#include "base/error.h"

namespace muster::nccl {

// All T of the process. For static storage, where all is zero without a constructor, so that only slots that
// were used cost memory. Slots are reused late, so that a stale handle is seen as such; a T is never freed,
// but told to clear() itself.
template <class T, size_t kSlots>
class HandleTable {
 public:
  // `plural`: what messages call them, e.g. "communicators".
  T& open(const char* plural) {
    std::lock_guard lock(mutex_);
    Slot* slot = nullptr;
    if (freed_ > kQuarantine || (used_ == kSlots && freed_ > 0)) {
      slot = oldest_;
      oldest_ = slot->next;
      --freed_;
    } else if (used_ < kSlots) {
      slot = &slots_[used_++];
      new (slot->storage) T;
    } else {
      fail(Result::system_error, "{} {} are in use, and there can be no more. Destroy some", kSlots, plural);
    }
    slot->is_live().store(true, std::memory_order_release);
    return slot->value();
  }

  // Null: `handle` is none, or not any more. Any thread.
  T* find(const void* handle) {
    Slot* slot = slot_at(handle);
    return slot && slot->is_live().load(std::memory_order_acquire) ? &slot->value() : nullptr;
  }
  bool is_stale(const void* handle) {
    Slot* slot = slot_at(handle);
    return slot && !slot->is_live().load();
  }

  // From now on the handle is none; the T stays as it is until it is recycled. False: another thread was
  // first.
  bool retire(T& value) { return slot_of(value).is_live().exchange(false); }
  void recycle(T& value) {
    value.clear();
    Slot& slot = slot_of(value);
    slot.next = nullptr;
    std::lock_guard lock(mutex_);
    (freed_ == 0 ? oldest_ : newest_->next) = &slot;
    newest_ = &slot;
    ++freed_;
  }

  template <class F>
  void for_each_live(F f) {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < used_; ++i)
      if (slots_[i].is_live().load()) f(slots_[i].value());
  }

 private:
  static constexpr size_t kQuarantine = 256;

  struct Slot;
  struct Body {
    alignas(T) std::byte storage[sizeof(T)];
    Slot* next;
    bool live;
  };
  struct alignas(std::bit_ceil(sizeof(Body))) Slot : Body {
    T& value() { return *std::launder(reinterpret_cast<T*>(this->storage)); }
    std::atomic_ref<bool> is_live() { return std::atomic_ref<bool>(this->live); }
  };
  static Slot& slot_of(T& value) { return *reinterpret_cast<Slot*>(&value); }

  Slot* slot_at(const void* handle) {
    const uintptr_t offset = reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(slots_);
    if (offset >= sizeof slots_ || offset % sizeof(Slot) != 0) [[unlikely]]
      return nullptr;
    return &slots_[offset / sizeof(Slot)];
  }

  Slot slots_[kSlots];
  Slot* oldest_;
  Slot* newest_;
  size_t used_, freed_;
  static inline std::mutex mutex_;
};

}  // namespace muster::nccl
