// Words of memory that streams themselves write and wait for, in order with what else they have: no kernel
// does it, so no multiprocessor is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "device/cuda/runtime.h"

namespace muster::cuda {

struct WordStep {
  enum Kind : uint8_t {
    write,        // what the stream did before is visible to whoever sees the value, on any GPU or the host
    await_equal,  // what whoever wrote the value did before is visible to what the stream does from then on
  };
  Kind kind;
  std::byte* at;  // 8 bytes, aligned, in an address that the stream's GPU reaches
  uint64_t value;
};

// Why streams of `device` can't; empty: they can.
std::string stream_words_refusal(int device);
// Gives the steps to a stream of `device`, one after the other. May be captured.
void enqueue_words(std::span<const WordStep> steps, int device, StreamHandle stream);

}  // namespace muster::cuda
