// From a group of sends and receives to what the kernel reads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "exec/cuda/mailbox.h"
#include "exec/cuda/message_plan.h"
#include "exec/group_message.h"

namespace muster::cuda {

struct MessageImage {
  std::vector<KernelFlow> flows;
  std::vector<KernelMessage> messages;
  uint64_t longest_move = 0;  // bytes that a block moves at once, at most
  // Of connections, each once.
  std::vector<uint32_t> ends() const;
  uint32_t most_blocks = kMostMessageBlocks;
  uint32_t blocks() const { return std::min(static_cast<uint32_t>(flows.size()), most_blocks); }
};

// Messages to one peer are taken by it in the order in which they are here. Long ones are cut into parts, one
// per lane for messages. The k-th to itself meets the k-th from itself. Throws invalid_usage for messages to
// itself that don't match, and for more peers than `most_blocks` blocks keep going.
MessageImage image_of(std::span<const GroupMessage> group, int rank, const MailboxShape& mailbox,
                      uint32_t most_blocks = kMostMessageBlocks);

// Pinned memory for images, each used again when the kernel that reads it has ended.
class MessageTables {
 public:
  explicit MessageTables(int device) : device_(device) {}

  struct Table {
    explicit Table(int device, size_t bytes) : memory(device, bytes), read(device) {}
    PinnedMemory memory;
    Event read;             // behind the kernel that reads it
    bool captured = false;  // a graph's, which may be replayed as long as it likes
  };
  Table& take(size_t bytes);

 private:
  int device_;
  std::list<Table> tables_;
};

}  // namespace muster::cuda
