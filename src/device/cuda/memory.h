// GPU memory and host memory that GPUs reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "device/cuda/runtime.h"

namespace muster::cuda {

enum class MemoryKind : uint8_t {
  host,    // the runtime doesn't know it: GPUs don't reach it
  pinned,  // host memory that all GPUs reach
  device,
  managed,  // moves between host and GPUs as it is used
};
std::string_view name_of(MemoryKind kind);

struct PointerInfo {
  MemoryKind kind = MemoryKind::host;
  int device = -1;  // that it was allocated on or for; -1: host memory that the runtime doesn't know
  void* on_device = nullptr;  // the address by which kernels reach it; null for plain host memory
};
// Of any address, null and freed ones too.
PointerInfo inspect(const void* p);

// Memory of one GPU, zeroed, aligned to 256 bytes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(int device, size_t bytes);
  ~DeviceMemory() { release(); }
  DeviceMemory(DeviceMemory&& o) noexcept { swap(o); }
  DeviceMemory& operator=(DeviceMemory&& o) noexcept {
    swap(o);
    return *this;
  }

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  int device() const { return device_; }
  // Both wait. Offsets and lengths are bytes.
  void write(size_t offset, const void* from, size_t bytes);
  void read(size_t offset, void* to, size_t bytes) const;

 private:
  void swap(DeviceMemory& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    std::swap(device_, o.device_);
  }
  void release() noexcept;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  int device_ = -1;
};

// Fills GPU memory with zeros, and waits.
void clear_memory(int device, std::byte* memory, size_t bytes);

// Copies GPU memory to the host, and waits.
void read_memory(int device, const std::byte* from, void* to, size_t bytes);

// Host memory that all GPUs load and store; zeroed. `device`: the one whose context is made for it where
// there is none.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(int device, size_t bytes);
  ~PinnedMemory() { release(); }
  PinnedMemory(PinnedMemory&& o) noexcept { swap(o); }
  PinnedMemory& operator=(PinnedMemory&& o) noexcept {
    swap(o);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::byte* on_device() const { return on_device_; }
  size_t size() const { return bytes_; }

 private:
  void swap(PinnedMemory& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(on_device_, o.on_device_);
    std::swap(bytes_, o.bytes_);
  }
  void release() noexcept;
  std::byte* data_ = nullptr;
  std::byte* on_device_ = nullptr;
  size_t bytes_ = 0;
};

// Host memory that others allocated, reached by all GPUs while this lives; page-aligned. `device`: as above.
class RegisteredMemory {
 public:
  RegisteredMemory(int device, std::byte* memory, size_t bytes);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  std::byte* on_device() const { return on_device_; }

 private:
  std::byte* memory_;
  std::byte* on_device_ = nullptr;
};

// What another process needs to reach an allocation of DeviceMemory; plain bytes, as the runtime's
// cudaIpcMemHandle_t.
struct IpcHandle {
  std::byte bytes[64];
};
// `memory`: anywhere in an allocation of this process; others reach where that begins.
IpcHandle export_memory(const std::byte* memory, int device);

// An allocation of another process, reached from `device`.
class ImportedMemory {
 public:
  ImportedMemory(int device, const IpcHandle& handle);
  ~ImportedMemory();
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  int device_;
  std::byte* data_ = nullptr;
};

}  // namespace muster::cuda
