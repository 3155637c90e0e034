// What travels in front of each message of a network: where it belongs, and the line or the credit itself.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "transports/connection.h"

namespace muster {

static_assert(std::endian::native == std::endian::little, "hosts exchange these as they lie in memory");

enum class WireKind : uint8_t {
  message,  // to the receiving end: a line; `bytes` of payload belong at `offset` of its ring
  credit,   // to the sending end
  flush,    // to the receiving end: say when all messages up to `number` have come
  flushed,  // to the sending end: they have
  ring,     // to the sending end: what its transport needs to write into the receiver's ring itself, in `inlined`
  goodbye,  // the rank is about to leave: it is not lost
  farewell, // a goodbye's answer: all that was sent before it has come
};

struct WireHeader {
  uint64_t secret;        // NetworkSetup::secret
  uint64_t communicator;
  uint32_t from;          // rank
  uint16_t lane;
  WireKind kind;
  uint8_t own;            // of a message of the transport itself, which says nothing to an end; else 0
  uint32_t slot_bytes;    // WireName's
  uint32_t bytes;         // payload that follows
  union {
    uint64_t number;      // of a message: 1, 2, ...; of a flush and its answer: the last message's
    uint64_t consumed;    // of a credit, as CreditLine has it
  };
  union {
    uint64_t offset;
    uint64_t freed;
  };
  uint64_t fingerprint;
  std::byte inlined[kInlineBytes];  // a short message, or what the line of a long one says of the ring
};
static_assert(sizeof(WireHeader) == 88);

}  // namespace muster
