// GPU memory that ranks of other processes of the host reach: one offers a range, the others map it.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/descriptor_offer.h"
#include "comm/cuda/mailbox_memory.h"
#include "device/cuda/virtual_memory.h"

namespace muster::cuda {

// One allocation of a range, as others are told of it: plain bytes.
struct SharedPiece {
  enum class Kind : uint64_t { none, ipc, descriptor, fabric } kind = Kind::none;
  uint64_t bytes = 0;
  std::byte handle[64] = {};  // IpcHandle, DescriptorTicket, FabricHandle
};
const char* name_of(SharedPiece::Kind kind);

// Others can map the range as long as the offer is there; what they have mapped they keep.
class MemoryOffer {
 public:
  // A range in memory of cudaMalloc, or of cuMemCreate: there it may reach over several allocations, mapped one behind the
  // other. Throws unhandled_device_error where it is neither, or wasn't made to be shared; system_error without descriptors.
  MemoryOffer(const void* p, size_t bytes);
  const std::vector<SharedPiece>& pieces() const { return pieces_; }
  uint64_t offset() const { return offset_; }  // of p from the beginning of the first piece

 private:
  void add_mapped(const PhysicalMemory::Mapped& memory);
  void add_ipc(const std::byte* p, size_t bytes);
  std::vector<SharedPiece> pieces_;
  std::list<DescriptorOffer> descriptors_;
  uint64_t offset_ = 0;
};

// A range that another process offers, mapped for `device`. `whom`: whose it is, for messages. Throws unhandled_device_error,
// or system_error where its descriptors can't be had.
Reached reach_memory(int device, std::span<const SharedPiece> pieces, uint64_t offset, const std::string& whom);

}  // namespace muster::cuda
