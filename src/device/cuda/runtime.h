// The CUDA runtime as the rest of the library sees it: which GPUs there are, and how its errors become the
// library's. Nothing here needs the toolkit's headers; where there is no driver there are no GPUs, and that
// is all.
//
// Every function leaves the caller's current device as it was, may be called from any thread, and doesn't
// disturb a stream capture that another thread has under way.
#pragma once

#include <cstddef>
#include <string>

// The runtime's types, by the names that its headers give them.
struct CUstream_st;
struct CUevent_st;

namespace muster::cuda {

using StreamHandle = CUstream_st*;  // a cudaStream_t
using EventHandle = CUevent_st*;    // a cudaEvent_t

struct Devices {
  int count = 0;
  std::string why_none;  // of a count of 0: the runtime's reason, and what helps
};
// Asked once in a process; makes no context.
const Devices& devices();

// "GPU 1 (NVIDIA H200, 0000:1b:00.0)"
std::string describe_device(int device);
// Where it is on the PCI bus, which is the same in all processes of a host: "0000:1B:00.0".
std::string bus_id(int device);
// -1: this process doesn't see it.
int device_at(const std::string& bus_id);
// The calling thread's.
int current_device();

// Makes a device the calling thread's current one, and on leaving the one that it was before.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = -1, device_;
};

// Whether kernels of `device` can load and store memory of `peer`, and lets them from then on. One device
// reaches itself.
bool enable_peer_access(int device, int peer);

}  // namespace muster::cuda
