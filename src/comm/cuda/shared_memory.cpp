#include "comm/cuda/shared_memory.h"

#include <cstring>
#include <vector>

#include "base/error.h"
#include "bootstrap/wire.h"
#include "comm/cuda/memory_offer.h"
#include "device/cuda/memory.h"

namespace muster::cuda {

GpuOffer share_memory(const void* p, size_t bytes) {
  const PointerInfo info = inspect(p);
  if (info.kind != MemoryKind::device)
    fail(Result::invalid_usage, "{} at {} can't be shared with other processes; memory of cudaMalloc or ncclMemAlloc can",
         name_of(info.kind), p);
  const auto offer = std::make_shared<const MemoryOffer>(p, bytes);
  Writer text;
  text.u64(offer->offset());
  for (const SharedPiece& piece : offer->pieces()) text.raw({reinterpret_cast<const char*>(&piece), sizeof piece});
  return {text.take(), offer};
}

std::shared_ptr<std::byte> reach_shared(const std::string& shared, int device, const std::string& whom) {
  Reader r(shared);
  const uint64_t offset = r.u64();
  std::vector<SharedPiece> pieces;
  while (r.ok() && !r.at_end()) {
    const std::string_view bytes = r.raw(sizeof(SharedPiece));
    if (r.ok()) std::memcpy(&pieces.emplace_back(), bytes.data(), sizeof(SharedPiece));
  }
  if (!r.ok()) fail(Result::internal_error, "where GPU memory of {} is can't be read", whom);
  return reach_memory(device, pieces, offset, whom);
}

}  // namespace muster::cuda
