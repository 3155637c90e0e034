// Collectives that only move whole pieces into the memory of peers, by copy engines: each rank copies what is
// its own to where its peers want it, between two meetings of all ranks. Streams do it alone; no kernel runs.
//
// Ranks meet by words of host memory, a table of each rank that its peers map. Before the copies rank r tells
// every peer that its memory may be written to, and waits until all have; behind them, that its copies have
// come, and waits again. A word is the call's fingerprint, so that another call is noticed, and is zero again
// before its writer can pass the other meeting: so what is captured may be replayed, as often and in whatever
// order, as long as it is the same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/cuda/runtime.h"
#include "device/cuda/stream_words.h"
#include "exec/host/executor.h"

namespace muster::cuda {

struct PeerCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
};

// Of a table: for each meeting a line per peer, which that peer writes, then a line that says which call's
// meeting its own stream is in.
inline constexpr int kMeetings = 2;
inline constexpr size_t kMeetingLine = 64;
constexpr size_t meeting_table_bytes(int ranks) {
  return kMeetings * (static_cast<size_t>(ranks) + 1) * kMeetingLine;
}

// Of one thread at a time; release(), mismatch() and waiting_for() may be called from any.
class CopyExecutor {
 public:
  // `tables`: by rank, in addresses that `device` reaches, zero at first; `own`: this rank's, for the host.
  CopyExecutor(int device, int rank, std::vector<std::shared_ptr<std::byte>> tables, std::byte* own);

  // On the stream, after what is there already; all calls of a rank must be in one order, the same on all.
  void run(std::span<const PeerCopy> copies, uint64_t fingerprint, StreamHandle stream);

  // Ends the waits that its streams are in, whoever hasn't come; what they leave is undefined. To be repeated
  // until they are through.
  void release();
  // A peer that has come to the meeting of another call.
  std::optional<FingerprintMismatch> mismatch() const;
  struct Wait {
    int rank = -1;       // who hasn't come
    uint64_t which = 0;  // of which call and meeting
  };
  std::optional<Wait> wait() const;

 private:
  std::byte* word(std::byte* table, int meeting, int rank) const;
  void meet(int meeting, uint64_t mark, StreamHandle stream) const;
  uint64_t load(int meeting, int rank) const;  // of this rank's table
  int ranks() const { return static_cast<int>(tables_.size()); }

  const int device_, rank_;
  const std::vector<std::shared_ptr<std::byte>> tables_;
  std::byte* const own_;
};

}  // namespace muster::cuda
