// Runs compiled plans on host memory. One thread may drive several runs (ranks, communicators) at once: a run that can't
// go on is left and looked at again.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "exec/host/compiled_plan.h"

namespace muster {

// Where a rank's buffers are in this process's address space, for window references.
struct WindowTable {
  std::byte* const* input = nullptr;   // by rank
  std::byte* const* output = nullptr;
};

// A message whose fingerprint isn't the expected one.
struct FingerprintMismatch {
  int peer;
  uint64_t expected;
  uint64_t found;
};

// One plan under way. Built on the stack of the calling thread; small plans need no allocation.
class Run {
 public:
  // `buffers`: input, output, scratch; or, for send_recv, each message's memory. `fingerprints`: one for a collective,
  // else one per message. `stream_slots`: long messages are written past the caches.
  Run(const CompiledPlan& plan, std::byte* const* buffers, const uint64_t* fingerprints, uint64_t weight_bits = 0,
      WindowTable windows = {}, bool stream_slots = true);
  // One that isn't done has failed: networks let go of the buffers, too.
  ~Run() {
    if (unsent_ && !done()) [[unlikely]]
      plan_.network->settle();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Takes every step that can be taken now, and moves what goes to other hosts and comes from there. True if there was
  // anything. Throws FingerprintMismatch, and what Transport::progress() throws.
  bool advance();
  // All steps are taken, and networks read none of its memory any more.
  bool done() const { return remaining_ == 0; }
  // A rank that this run is waiting for, or -1: for messages about late ranks.
  int waiting_for() const;

 private:
  struct Cursor {
    uint64_t tile;
    uint32_t loop;
    uint32_t step;
  };
  // Memory that a network sends from, until its connection has sent the message of that number.
  struct Unsent {
    const std::byte *begin, *end;
    const SlotSender* by;
    uint64_t number;
  };
  bool take_steps();
  bool step(const CompiledLoop& loop, const CompiledStep& s, uint64_t tile);
  bool overwrites_unsent(const CompiledLoop& loop, const CompiledStep& s, uint64_t begin);
  bool all_sent() const;
  bool advance_short();
  bool ready(const CompiledStep& s) const;
  void check_fingerprints(const CompiledStep& s, uint64_t fingerprint) const;
  void hand_over(const CompiledStep& s, uint64_t fingerprint) const;
  // `destinations` of them are at at[s.sources] and behind.
  void apply(const CompiledStep& s, void* const* at, uint32_t destinations, uint64_t count, uint64_t bytes, uint64_t weighted, uint64_t streamed) const;
  void skip_empty(const CompiledChannel& channel, Cursor* cursor);
  static constexpr size_t kSmallChannels = 8;

  const CompiledPlan& plan_;
  std::byte* const* buffers_;
  const uint64_t* fingerprints_;
  uint64_t weight_bits_;
  WindowTable windows_;
  uint32_t remaining_ = 0;  // channels, and one for what is still to be sent to other hosts
  uint8_t streams_;
  uint32_t short_step_ = 0;  // of a short plan
  Cursor* cursors_ = nullptr;
  std::unique_ptr<Cursor[]> many_;
  Cursor small_[kSmallChannels];
  std::unique_ptr<std::vector<Unsent>> unsent_;  // null: nothing was sent so
};

}  // namespace muster
