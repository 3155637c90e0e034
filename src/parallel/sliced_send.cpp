// Handing a replicated tensor to the next stage in slices.
#include <vector>

#include "base/error.h"
#include "parallel/completing_calls.h"
#include "base/math.h"
#include "muster/tensor_parallel.h"

namespace muster {
namespace {

uint64_t hash_bytes(const std::byte* data, size_t bytes) {
  uint64_t h = bytes;
  for (size_t i = 0; i < bytes; ++i) h = (h ^ static_cast<uint64_t>(data[i])) * 0x100000001b3ULL;  // FNV-1a
  return mix64(h);
}

[[noreturn]] void fail_different(uint64_t rank) {
  fail(Result::invalid_usage,
       "A tensor was to be sent in slices, but rank {} of the sending tensor-parallel group has another one than rank 0: send it whole, from each "
       "rank (Communicator::send).",
       rank);
}

}  // namespace

void send_sliced(Communicator& pipe, int to, Communicator& group, const void* tensor, size_t count, DataType type, bool check) {
  const auto* bytes = static_cast<const std::byte*>(tensor);
  if (check) {
    require_completing_calls("send_sliced with a check", group);
    const uint64_t mine = hash_bytes(bytes, count * size_of(type));
    std::vector<uint64_t> all(static_cast<size_t>(group.size()));
    group.all_gather(&mine, all.data(), 1, DataType::uint64);
    uint64_t different = 0;  // 0: none is
    for (size_t r = all.size(); --r > 0;)
      if (all[r] != all[0]) different = r;
    pipe.send(&different, 1, DataType::uint64, to);
    if (different != 0) fail_different(different);
  }
  const Shard mine = shard_of(count, group.size(), group.rank());
  pipe.send(bytes + mine.begin * size_of(type), mine.count, type, to);
}

void recv_sliced(Communicator& pipe, int from, Communicator& group, void* tensor, size_t count, DataType type, bool check) {
  if (check) {
    require_completing_calls("recv_sliced with a check", group);
    uint64_t different = 0;
    pipe.recv(&different, 1, DataType::uint64, from);
    if (different != 0) fail_different(different);
  }
  auto* bytes = static_cast<std::byte*>(tensor);
  const Shard mine = shard_of(count, group.size(), group.rank());
  std::byte* const slice = bytes + mine.begin * size_of(type);
  pipe.recv(slice, mine.count, type, from);
  group.all_gather_v(slice, mine.count, bytes, shard_counts(count, group.size()), {}, type);
}

}  // namespace muster
