#include "comm/cuda/mailbox_memory.h"

#include "base/error.h"
#include "device/cuda/virtual_memory.h"
#include "device/host/arena.h"

namespace muster::cuda {
namespace {

// Memory of this process's Arena that GPUs reach.
class HostMailbox {
 public:
  HostMailbox(int device, size_t bytes)
      : memory_(static_cast<std::byte*>(Arena::of_process().allocate(bytes))) {
    try {
      registered_ = std::make_unique<RegisteredMemory>(device, memory_, bytes);
    } catch (...) {
      Arena::of_process().release(memory_);
      throw;
    }
  }
  ~HostMailbox() {
    registered_.reset();
    Arena::of_process().release(memory_);
  }
  HostMailbox(const HostMailbox&) = delete;
  HostMailbox& operator=(const HostMailbox&) = delete;
  std::byte* memory() const { return memory_; }
  std::byte* on_device() const { return registered_->on_device(); }

 private:
  std::byte* memory_;
  std::unique_ptr<RegisteredMemory> registered_;
};

uint64_t key_of(const void* p) { return reinterpret_cast<uint64_t>(p); }

}  // namespace

Registry<std::byte>& reached() {
  static auto* const all = new Registry<std::byte>;  // ranks may end after this library's statics
  return *all;
}

Reached make_gpu_mailbox(int device, size_t bytes, bool is_virtual) {
  const auto keep = [](const auto& memory) {
    return reached().get(key_of(memory->data()), [&] { return Reached(memory, memory->data()); });
  };
  if (is_virtual) return keep(std::shared_ptr<const MappedMemory>(make_virtual_memory(device, bytes)));
  return keep(std::make_shared<const DeviceMemory>(device, bytes));
}

Reached make_host_mailbox(int device, size_t bytes, uint64_t* offset) {
  const auto memory = std::make_shared<const HostMailbox>(device, bytes);
  *offset = static_cast<uint64_t>(memory->memory() - Arena::of_process().base());
  return reached().get(key_of(memory->memory()), [&] { return Reached(memory, memory->on_device()); });
}

Reached reach_host_mailbox(int device, const std::shared_ptr<std::byte>& arena, uint64_t offset,
                           size_t bytes) {
  struct Mapped {
    std::shared_ptr<std::byte> arena;  // outlives the registration
    RegisteredMemory registered;
  };
  std::byte* const at = arena.get() + offset;
  return reached().get(key_of(at), [&] {
    const auto mapped = std::shared_ptr<Mapped>(new Mapped{arena, {device, at, bytes}});
    return Reached(mapped, mapped->registered.on_device());
  });
}

std::shared_ptr<Household> Household::of(uint64_t communicator) {
  static auto* const all = new Registry<Household>;
  return all->get(communicator, [] { return std::make_shared<Household>(); });
}

void Household::enter() {
  const std::lock_guard lock(mutex_);
  ++ranks_;
}

void Household::keep(Reached mailbox) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(mailbox));
}

std::vector<Reached> Household::leave() {
  const std::lock_guard lock(mutex_);
  if (--ranks_ > 0) return {};
  return std::move(kept_);
}

}  // namespace muster::cuda
