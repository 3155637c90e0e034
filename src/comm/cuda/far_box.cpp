#include "comm/cuda/far_box.h"

#include "base/math.h"
#include "exec/cuda/line_flag.h"

namespace muster::cuda {
namespace {

constexpr size_t kHeaderWords = 2;  // a line (lines.cuh)
constexpr size_t kBoxAlignment = 128;

}  // namespace

FarBox::FarBox(int device, const MailboxShape& shape, Slots where)
    : slots_(shape.slots),
      slot_bytes_(shape.slot_bytes),
      headers_at_(kSizesAt + align_up(slots_ * sizeof(uint64_t), kBoxAlignment)),
      slots_at_(headers_at_ + align_up(slots_ * kHeaderWords * sizeof(uint64_t), kBoxAlignment)),
      memory_(device, slots_at_ + (where == Slots::pinned ? slots_ * slot_bytes_ : 0)),
      gpu_slots_(where == Slots::on_gpu ? DeviceMemory(device, slots_ * slot_bytes_) : DeviceMemory()) {}

KernelEnd FarBox::end(int peer, bool sends) const {
  std::byte* const base = memory_.on_device();
  const auto word = [&](size_t offset) { return reinterpret_cast<uint64_t*>(base + offset); };
  return {.slots = gpu_slots_.size() > 0 ? gpu_slots_.data() : base + slots_at_,
          .lines = nullptr,
          .headers = base + headers_at_,
          .posted = word(kPostedAt),
          .taken = word(kTakenAt),
          .count = 0,
          .peer = peer,
          .sizes = sends ? word(kSizesAt) : nullptr};
}

// A word of a line: four bytes of data, and above them the flag.
uint64_t FarBox::fingerprint(uint64_t n) const {
  const uint64_t* const line = words(headers_at_) + n % slots_ * kHeaderWords;
  return (line[0] & 0xffffffffu) | line[1] << 32;
}

void FarBox::set_fingerprint(uint64_t n, uint64_t fingerprint) const {
  uint64_t* const line = words(headers_at_) + n % slots_ * kHeaderWords;
  const uint64_t high = uint64_t{flag_of(n)} << 32;
  std::atomic_ref(line[0]).store((fingerprint & 0xffffffffu) | high, std::memory_order_relaxed);
  std::atomic_ref(line[1]).store(fingerprint >> 32 | high, std::memory_order_relaxed);
}

}  // namespace muster::cuda
