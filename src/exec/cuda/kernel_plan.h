// What the kernels read: a program bound to a call's shape, in plain structs in GPU memory, and one call's
// arguments.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::cuda {

// Most sources, and most destinations, of one step: bits of KernelStep::weighted.
inline constexpr uint32_t kMostKernelPlaces = 64;
inline constexpr uint32_t kMostKernelChannels = 64;
// Of a block; registers are bounded by it (kernels.cu).
inline constexpr uint32_t kMostKernelThreads = 512;
// Of a line of protocol LL (lines.cuh), and what of it is data.
inline constexpr uint32_t kLineBytes = 16, kLineData = 8;

struct KernelPlace {
  enum Kind : uint32_t { local, slot, window };
  Kind kind;
  uint32_t buffer;  // local, window
  uint32_t at;      // slot: index of the end; window: rank of the owner
};

// A connection's end that a step uses.
struct KernelUse {
  uint32_t end;
  uint32_t sends;  // 1: its next slot is a destination; 0: a source
};

struct KernelStep {
  uint32_t place;  // first of its places: sources, then destinations
  uint32_t sources, destinations;
  uint32_t pieces;  // 0: token
  uint32_t first_use, last_use;
  uint32_t length;    // index of the first piece's length
  uint32_t offset;    // index of the first piece's offsets (one per place)
  uint32_t combines;  // 0: a copy
  uint32_t finish;
  uint64_t longest;   // elements of the longest piece
  uint64_t weighted;  // bit j: source j is multiplied by the call's weight
  uint64_t mark;      // of a V-variant whose lengths only both ends know: mixed into the fingerprint
};

struct KernelLoop {
  uint32_t first, last;  // steps
  uint64_t tiles;
  uint32_t sends_empty;  // the first message of a step is sent even if there is nothing in it
};

struct KernelChannel {
  uint32_t first, last;  // loops
};

// One end of a connection, in its rank's GPU memory. A message's slot is its number modulo the number of
// slots. Numbers are 64-bit counters that only grow; each has one writer.
struct KernelEnd {
  std::byte* slots;    // in the receiver's mailbox
  std::byte* lines;    // there, by slot: of messages of lines (lines.cuh)
  std::byte* headers;  // there, by slot: a line whose data is the message's fingerprint
  uint64_t* posted;    // there: messages that are complete, written by the sender; those of lines don't count
  uint64_t* taken;  // in the sender's mailbox: messages whose slots are free again, written by the receiver
  uint64_t count;   // messages that this end has sent, or taken, in all calls
  int32_t peer;
  // There, by slot: bytes of the message, written by the sender. Null: nobody needs them but the receiver's
  // kernel, which knows.
  uint64_t* sizes;
};

inline constexpr int kWaitedRankBits = 24;  // more ranks than there can be

// What a channel tells the host, in pinned memory: its block is the only writer.
struct alignas(64) ChannelReport {
  uint64_t mismatch;         // 1: a message of another call came, and the channel has stopped
  uint64_t expected, found;  // fingerprints
  int64_t peer;              // whose message it was
  // A rank it has been waiting for for long, plus 1, and above kWaitedRankBits the number of the message, which
  // tells one wait from the next; 0: none.
  int64_t waits_for;
};

// Pinned memory of one rank.
struct KernelReport {
  alignas(64) uint32_t abort;  // written by the host: kernels end
  ChannelReport channels[kMostKernelChannels];
};

// One call.
struct KernelArgs {
  const KernelChannel* channels;
  const KernelLoop* loops;
  const KernelStep* steps;
  const KernelPlace* places;
  const KernelUse* uses;
  const uint64_t* lengths;
  const uint64_t* offsets;
  KernelEnd* ends;
  KernelReport* report;
  std::byte* buffers[3];         // input, output, scratch
  std::byte* const* windows[2];  // inputs and outputs of all ranks, by rank; null without windows
  uint64_t tile;                 // elements
  uint64_t fingerprint;
  const void* weight_at;  // null: weight_bits
  uint64_t weight_bits;   // in the element type
  uint64_t slot_bytes;
  uint64_t line_bytes;  // of a slot's lines
  uint32_t slots;       // a power of two
  uint32_t lines;       // 1: messages are of lines
  uint32_t element;     // bytes
  uint32_t divisor;     // > 1: `finish` divides by it
  uint32_t op;          // RedOp
  uint32_t channel_count;
  // Of logical operations: bits that make an element true, and the element that stands for true. 0 of others.
  uint64_t magnitude, one;
};

// By value with each launch: calls that a block runs one after the other. Parameters of kernels are 4 KiB before
// CUDA 12.1, and on GPUs before sm_70.
inline constexpr uint32_t kMostLaunchBytes = 4096;
inline constexpr uint32_t kMostCallsOfLaunch = (kMostLaunchBytes - sizeof(uint64_t)) / sizeof(KernelArgs);
struct KernelLaunch {
  KernelArgs calls[kMostCallsOfLaunch];
  uint32_t count;
};
static_assert(sizeof(KernelLaunch) <= kMostLaunchBytes);

}  // namespace muster::cuda
