#include "exec/cuda/copies.h"

#include <atomic>
#include <utility>

#include "device/cuda/check.h"

namespace muster::cuda {
namespace {

// What stands in words: zero is nobody's.
constexpr uint64_t mark_of(uint64_t fingerprint) { return fingerprint + 1; }
constexpr uint64_t fingerprint_of(uint64_t mark) { return mark - 1; }

std::atomic_ref<uint64_t> as_atomic(std::byte* word) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word));
}

}  // namespace

CopyExecutor::CopyExecutor(int device, int rank, std::vector<std::shared_ptr<std::byte>> tables, std::byte* own)
    : device_(device), rank_(rank), tables_(std::move(tables)), own_(own) {}

// `rank` == ranks(): the line behind those of peers.
std::byte* CopyExecutor::word(std::byte* table, int meeting, int rank) const {
  return table + (static_cast<size_t>(meeting) * (tables_.size() + 1) + static_cast<size_t>(rank)) * kMeetingLine;
}

uint64_t CopyExecutor::load(int meeting, int rank) const {
  return as_atomic(word(own_, meeting, rank)).load(std::memory_order_acquire);
}

void CopyExecutor::meet(int meeting, uint64_t mark, StreamHandle stream) const {
  std::byte* const own = tables_[static_cast<size_t>(rank_)].get();
  std::vector<WordStep> steps{{WordStep::write, word(own, meeting, ranks()), mark}};
  const auto for_peers = [&](WordStep::Kind kind, bool theirs, uint64_t value) {
    for (int i = 1; i < ranks(); ++i) {
      const int peer = (rank_ + i) % ranks();
      steps.push_back({kind,
                       theirs ? word(tables_[static_cast<size_t>(peer)].get(), meeting, rank_)
                              : word(own, meeting, peer),
                       value});
    }
  };
  for_peers(WordStep::write, true, mark);
  for_peers(WordStep::await_equal, false, mark);
  // Before any peer can be further than this meeting: mismatch() looks at words while this one is set.
  steps.push_back({WordStep::write, word(own, meeting, ranks()), 0});
  for_peers(WordStep::write, false, 0);
  enqueue_words(steps, device_, stream);
}

void CopyExecutor::run(std::span<const PeerCopy> copies, uint64_t fingerprint, StreamHandle stream) {
  const uint64_t mark = mark_of(fingerprint);
  meet(0, mark, stream);
  {
    const DeviceGuard guard(device_);
    for (const PeerCopy& c : copies)
      check(cudaMemcpyAsync(c.to, c.from, c.bytes, cudaMemcpyDefault, stream),
            "copying {} bytes from {} to a peer", c.bytes, describe_device(device_));
  }
  meet(1, mark, stream);
}

void CopyExecutor::release() {
  for (int m = 0; m < kMeetings; ++m) {
    const uint64_t mark = load(m, ranks());
    if (mark == 0) continue;
    for (int r = 0; r < ranks(); ++r)
      if (r != rank_) as_atomic(word(own_, m, r)).store(mark, std::memory_order_release);
  }
}

std::optional<FingerprintMismatch> CopyExecutor::mismatch() const {
  const uint64_t mark = load(0, ranks());
  if (mark == 0) return std::nullopt;
  for (int r = 0; r < ranks(); ++r) {
    const uint64_t theirs = r == rank_ ? 0 : load(0, r);
    // Still in the same meeting, so theirs was of it, too.
    if (theirs != 0 && theirs != mark && load(0, ranks()) == mark)
      return FingerprintMismatch{r, fingerprint_of(mark), fingerprint_of(theirs)};
  }
  return std::nullopt;
}

std::optional<CopyExecutor::Wait> CopyExecutor::wait() const {
  for (int m = 0; m < kMeetings; ++m)
    if (const uint64_t mark = load(m, ranks()); mark != 0)
      for (int r = 0; r < ranks(); ++r)
        if (r != rank_ && load(m, r) == 0) return Wait{r, mark * kMeetings + static_cast<uint64_t>(m)};
  return std::nullopt;
}

}  // namespace muster::cuda
