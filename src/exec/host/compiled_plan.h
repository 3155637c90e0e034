// A program bound to a call's shape and to this rank's connections: offsets and lengths are worked out, so that running a
// step takes a few loads. Built once per shape, run many times.
#pragma once

#include <cstdint>
#include <vector>

#include "device/host/kernels.h"
#include "exec/host/chunk_table.h"
#include "muster/bytes_sent.h"
#include "plan/planner.h"
#include "program/program.h"
#include "transports/transport.h"

namespace muster {

// Most sources, and most destinations, of one step: bits of ReduceArgs::weighted and ::streamed.
inline constexpr uint32_t kMostPlaces = 64;

enum : uint8_t { kStreamOutput = 1, kStreamSlot = 2 };

struct StepPlace {
  enum class Kind : uint8_t { local, send, receive, window };
  Kind kind = Kind::local;
  bool raw = false;      // the factor of pre_mul_sum is applied when it is read
  // Bit kStreamOutput or kStreamSlot: a destination that is written with non-temporal stores when a run asks for it.
  uint8_t streams = 0;
  uint16_t buffer = 0;
  int32_t peer = -1;
  SlotSender* sender = nullptr;
  SlotReceiver* receiver = nullptr;
  uint64_t offset = 0;  // of the first piece, in bytes: all that a short plan needs
};

struct CompiledStep {
  uint32_t place = 0;         // first of its places: sources, then destinations
  uint16_t sources = 0;
  uint16_t destinations = 0;
  uint32_t pieces = 0;        // 0: token
  uint32_t first_receive = 0, last_receive = 0;  // in CompiledPlan::receives: what must be full
  uint32_t first_send = 0, last_send = 0;        // in CompiledPlan::sends: what must be free
  uint32_t length = 0;        // index of the first piece's length
  uint32_t offset = 0;        // index of the first piece's offsets (one per place)
  uint64_t longest = 0;       // elements of the longest piece
  uint64_t mark = 0;          // V-variants whose lengths only both ends know: the elements of its chunk, part of the fingerprint
  bool finish = false;
  uint8_t streams = 0;        // of all its destinations
  bool combines = false;      // more than one source, or a value to weigh or divide: a kernel rather than a copy
  // What it sends to other hosts isn't copied: it lies in this place, which is local. -1: there is none, or several pieces.
  int16_t lies_in = -1;
};

struct CompiledLoop {
  uint32_t first = 0, last = 0;  // steps
  uint64_t tiles = 1;
  int32_t message = -1;
  uint32_t element = 1;          // bytes per element
  bool sends_empty = false;      // the first message of a step is sent even if there is nothing in it: it tells so
};

struct CompiledChannel {
  uint32_t first = 0, last = 0;  // loops
};

struct CompiledPlan {
  CallShape call;
  Choice choice;
  std::vector<CompiledChannel> channels;
  std::vector<CompiledLoop> loops;
  std::vector<CompiledStep> steps;
  std::vector<StepPlace> places;
  struct Receive {
    SlotReceiver* from;
    int32_t peer;
  };
  struct Send {
    SlotSender* to;
    int32_t peer;
    bool pack;  // see SlotSender::commit
  };
  std::vector<Receive> receives;  // step by step
  std::vector<Send> sends;
  // Of a plan with connections to other hosts: what must be asked for progress, and the ends of those connections.
  Transport* network = nullptr;
  std::vector<Receive> from_hosts;
  std::vector<Send> to_hosts;
  // One channel, one loop, one tile, one piece per step: what most calls with few bytes are.
  bool is_short = false;
  std::vector<uint64_t> lengths;  // elements, per piece
  std::vector<uint64_t> offsets;  // bytes from the buffer's start, per piece and place
  uint64_t tile = 0;              // elements
  uint64_t scratch_bytes = 0;
  ReduceFn kernel = nullptr;
  uint32_t divisor = 0;
  uint8_t streams = 0;            // of all its steps
  BytesSent bytes_sent;           // in one run
};

// Sizes of a send_recv program's messages, in call order.
struct MessageSize {
  uint64_t count = 0;
  DataType type = DataType::int8;
};

// `table`: the chunks of a V-variant; `call` is then that of the even collective whose program it runs.
CompiledPlan compile(const Program& program, const CallShape& call, const Choice& choice, Transport* transport,
                     const ChunkTable* table = nullptr);
CompiledPlan compile_messages(const Program& program, const std::vector<MessageSize>& sizes, const Choice& choice, Transport* transport);

}  // namespace muster
