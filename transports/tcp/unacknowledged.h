// What a stream has sent and the peer's host hasn't acknowledged: kept, so that another stream can send it again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transports/wire_end.h"

namespace muster::tcp {

class Unacknowledged {
 public:
  struct Message {
    uint64_t end = 0;  // bytes of the stream up to its own last
    WireHeader header{};
    WireOp* op = nullptr;               // whose payload it is; null: it is free, and the payload lies in `copy`
    std::unique_ptr<std::byte[]> copy;  // null also where there is no payload
  };

  // The kernel has taken all of `op`, whose bytes in the stream these are. True: a copy is kept, and the op is free.
  bool add(WireOp& op, size_t bytes);
  // The peer's host has so many bytes of the stream; ops that are free by that are added to `free`.
  void acknowledge(uint64_t bytes, std::vector<WireOp*>* free);
  // Copies what is still in ops' memory, so that all of them are free.
  void copy_all(std::vector<WireOp*>* free);

  bool has_ops() const { return ops_ > 0; }
  size_t size() const { return messages_.size(); }
  uint64_t acknowledged() const { return acknowledged_; }        // messages
  uint64_t total() const { return acknowledged_ + messages_.size(); }  // ever added
  // Of `total()` messages the peer has the first `received`, at least those acknowledged: the rest, and nothing is kept any more. Ops of
  // the others are added to `free`.
  std::vector<Message> take_behind(uint64_t received, std::vector<WireOp*>* free);

 private:
  void forget(size_t first_messages, std::vector<WireOp*>* free);

  std::vector<Message> messages_;  // in the stream's order
  uint64_t acknowledged_ = 0, end_ = 0;
  size_t ops_ = 0;
};

}  // namespace muster::tcp
