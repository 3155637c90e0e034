// The one interface of a transport: connections by peer and lane, windows where it can, and progress.
#pragma once

#include <cstddef>
#include <string_view>

#include "transports/connection.h"

namespace muster {

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view name() const = 0;
  // Largest message of one slot.
  virtual size_t slot_bytes() const = 0;
  virtual int lanes() const = 0;
  // Made on first use; the reference stays valid. `largest`: bytes of the largest message it will carry. Throws
  // system_error when memory for it can't be had.
  virtual SlotSender& sender(int peer, int lane, size_t largest) = 0;
  virtual SlotReceiver& receiver(int peer, int lane) = 0;
  // Moves data where the network needs a hand; shared memory has nothing to do. True if anything moved.
  // Throws remote_error where a peer can't be reached any more.
  virtual bool progress() { return false; }
  // After a call failed: when it returns no memory of the call is read any more.
  virtual void settle() noexcept {}
};

}  // namespace muster
