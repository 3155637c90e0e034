#include "muster/coalesced.h"

#include <cstring>
#include <memory>

#include "base/error.h"
#include "comm/gpu_rank.h"
#include "parallel/completing_calls.h"

namespace muster {

CoalescedLayout::CoalescedLayout(std::span<const size_t> sizes, int world, size_t alignment) : world_(world) {
  zero::Partition({}, world, alignment);  // says what is wrong with them also where there is no tensor
  for (const size_t& size : sizes) {
    shard_begins_.push_back(shard_);
    partitions_.emplace_back(std::span(&size, 1), world, alignment);
    size_t all = 0;
    if (__builtin_add_overflow(shard_, partitions_.back().shard(), &shard_) ||
        __builtin_mul_overflow(shard_, static_cast<size_t>(world), &all))
      fail(Result::invalid_argument,
           "the {} tensors in {} shards aligned to {} have more elements than an address counts",
           sizes.size(), world, alignment);
  }
}

namespace {

void require_host_memory(const char* call, const void* p, size_t elements, const char* what) {
  if (elements > 0 && !p)
    fail(Result::invalid_argument, "{} of tensors: {} ({} elements) is null", call, what, elements);
  if (const GpuLibrary* const gpus = gpu_library(); gpus && p && gpus->holds(p))
    fail(Result::invalid_argument,
         "{} of tensors: {} is GPU memory. Copy it to the host, or call muster/gpu.h's {} for each tensor in "
         "a group",
         call, what, call);
}

// The ranks' shards, one behind the other, for the length of one call.
class FlatBuffer {
 public:
  // Throws unless the call can be made with these arguments.
  FlatBuffer(const char* call, const Communicator& c, const CoalescedLayout& layout,
             std::span<const void* const> tensors, DataType type)
      : layout_(layout), width_(size_of(type)) {
    require_completing_calls(fmt::format("{} of tensors", call).c_str(), c);
    if (layout.world() != c.size() || layout.tensors() != tensors.size())
      fail(Result::invalid_argument,
           "{} of {} tensors on communicator {} with {} ranks by a layout of {} tensors for {} ranks", call,
           tensors.size(), c.name(), c.size(), layout.tensors(), layout.world());
    if (width_ == 0)
      fail(Result::invalid_argument, "{} of tensors of type {}, which is none", call, static_cast<int>(type));
    for (size_t t = 0; t < tensors.size(); ++t)
      require_host_memory(call, tensors[t], layout.partition(t).elements(), "one of them");
    size_t bytes = 0;
    if (__builtin_mul_overflow(layout.padded(), width_, &bytes))
      fail(Result::invalid_argument,
           "{} of tensors: {} elements, padded, of {} bytes are more than an address counts", call,
           layout.padded(), width_);
    bytes_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  }

  std::byte* data() { return bytes_.get(); }

  void pack(std::span<const void* const> tensors) {
    each_part([&](size_t t, int rank, std::byte* place) {
      const zero::Partition& p = layout_.partition(t);
      const size_t own = (p.end(rank) - p.begin(rank)) * width_;
      if (own > 0)
        std::memcpy(place, static_cast<const std::byte*>(tensors[t]) + p.begin(rank) * width_, own);
      std::memset(place + own, 0, p.padding(rank) * width_);
    });
  }
  void unpack(std::span<void* const> tensors) {
    each_part([&](size_t t, int rank, const std::byte* place) {
      const zero::Partition& p = layout_.partition(t);
      const size_t own = (p.end(rank) - p.begin(rank)) * width_;
      if (own > 0) std::memcpy(static_cast<std::byte*>(tensors[t]) + p.begin(rank) * width_, place, own);
    });
  }

 private:
  void each_part(auto&& use) {
    for (int rank = 0; rank < layout_.world(); ++rank)
      for (size_t t = 0; t < layout_.tensors(); ++t)
        use(t, rank,
            data() + (static_cast<size_t>(rank) * layout_.shard() + layout_.shard_begin(t)) * width_);
  }

  const CoalescedLayout& layout_;
  const size_t width_;
  std::unique_ptr<std::byte[]> bytes_;
};

std::vector<const void*> as_const(std::span<void* const> tensors) { return {tensors.begin(), tensors.end()}; }

}  // namespace

void all_reduce(Communicator& communicator, const CoalescedLayout& layout, std::span<void* const> tensors,
                DataType type, ReduceOp op) {
  const std::vector<const void*> from = as_const(tensors);
  FlatBuffer flat("all_reduce", communicator, layout, from, type);
  flat.pack(from);
  communicator.all_reduce(flat.data(), flat.data(), layout.padded(), type, op);
  flat.unpack(tensors);
}

void reduce_scatter(Communicator& communicator, const CoalescedLayout& layout,
                    std::span<const void* const> tensors, void* shard, DataType type, ReduceOp op) {
  FlatBuffer flat("reduce_scatter", communicator, layout, tensors, type);
  require_host_memory("reduce_scatter", shard, layout.shard(), "the shard");
  flat.pack(tensors);
  communicator.reduce_scatter(flat.data(), shard, layout.shard(), type, op);
}

void all_gather(Communicator& communicator, const CoalescedLayout& layout, const void* shard,
                std::span<void* const> tensors, DataType type) {
  FlatBuffer flat("all_gather", communicator, layout, as_const(tensors), type);
  require_host_memory("all_gather", shard, layout.shard(), "the shard");
  communicator.all_gather(shard, flat.data(), layout.shard(), type);
  flat.unpack(tensors);
}

}  // namespace muster
