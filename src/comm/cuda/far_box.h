// What two ranks of different hosts have in place of a mailbox (exec/cuda/mailbox.h): for each end of a
// connection a piece of pinned memory on its own host, with the counters, headers and slots of that one
// direction. Kernels use it as they use a mailbox; the host is the other side. Slots may lie in the GPU's
// memory instead, for an adapter that reads it: the host only knows where they are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/cuda/memory.h"
#include "exec/cuda/kernel_plan.h"
#include "exec/cuda/mailbox.h"

namespace muster::cuda {

class FarBox {
 public:
  enum class Slots : uint8_t { pinned, on_gpu };
  FarBox(int device, const MailboxShape& shape, Slots where = Slots::pinned);

  // As kernels see it. `peer`: whom the end sends to, or receives from.
  KernelEnd end(int peer, bool sends) const;

  // --- for the host's side; message n is in slot n modulo slots() ---
  uint64_t slots() const { return slots_; }
  size_t slot_bytes() const { return slot_bytes_; }
  std::byte* slot(uint64_t n) const {
    return (gpu_slots_.size() > 0 ? gpu_slots_.data() : at(slots_at_)) + n % slots_ * slot_bytes_;
  }
  std::span<std::byte> gpu_slots() const { return {gpu_slots_.data(), gpu_slots_.size()}; }  // or none
  uint64_t& size(uint64_t n) const { return words(kSizesAt)[n % slots_]; }
  uint64_t fingerprint(uint64_t n) const;
  void set_fingerprint(uint64_t n, uint64_t fingerprint) const;
  uint64_t posted() const { return counter(kPostedAt).load(std::memory_order_acquire); }
  void post(uint64_t n) const { counter(kPostedAt).store(n, std::memory_order_release); }
  uint64_t taken() const { return counter(kTakenAt).load(std::memory_order_acquire); }
  void take(uint64_t n) const { counter(kTakenAt).store(n, std::memory_order_release); }

 private:
  // Each counter has a line of GPU caches to itself.
  static constexpr size_t kPostedAt = 0, kTakenAt = 128, kSizesAt = 256;
  std::byte* at(size_t offset) const { return memory_.data() + offset; }
  uint64_t* words(size_t offset) const { return reinterpret_cast<uint64_t*>(at(offset)); }
  std::atomic_ref<uint64_t> counter(size_t offset) const { return std::atomic_ref<uint64_t>(*words(offset)); }

  uint64_t slots_;
  size_t slot_bytes_, headers_at_, slots_at_;
  PinnedMemory memory_;
  DeviceMemory gpu_slots_;
};

}  // namespace muster::cuda
