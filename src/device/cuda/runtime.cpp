#include "device/cuda/runtime.h"

#include "base/error.h"
#include "device/cuda/check.h"

namespace muster::cuda {

const char* remedy(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
      return "Look at nvidia-smi and CUDA_VISIBLE_DEVICES";
    case cudaErrorInsufficientDriver:
      return "The NVIDIA driver is missing or older than the CUDA runtime this library was built with: "
             "update it";
    case cudaErrorMemoryAllocation:
      return "Free GPU memory, or use fewer channels or smaller buffers (NCCL_MAX_CTAS, NCCL_BUFFSIZE)";
    case cudaErrorInvalidDevice:
      return "Devices are numbered from 0 among those that CUDA_VISIBLE_DEVICES leaves";
    case cudaErrorPeerAccessUnsupported:
      return "These GPUs can't reach each other's memory; nvidia-smi topo -p2p rw says why";
    case cudaErrorTooManyPeers:
      return "A GPU can have so many peers only: use fewer GPUs per process, or NVSwitch";
    case cudaErrorNoKernelImageForDevice:
      return "The library has no code for this GPU: build it with its architecture in "
             "MUSTER_CUDA_ARCHITECTURES";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
      return "A kernel of this process failed, perhaps not one of this library; compute-sanitizer finds "
             "which. The GPU can't be used by this process any more";
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureUnsupported:
      return "Begin the capture anew, and make communicators and plans before it";
    default:
      return "";
  }
}

void fail_cuda(cudaError_t error, const std::string& what) {
  cudaGetLastError();
  const char* help = remedy(error);
  fail(Result::unhandled_device_error, "{}: {} ({}){}{}", what, cudaGetErrorName(error),
       cudaGetErrorString(error), *help ? ". " : "", help);
}

const Devices& devices() {
  static const Devices found = [] {
    Devices d;
    const cudaError_t error = cudaGetDeviceCount(&d.count);
    if (error != cudaSuccess) {
      cudaGetLastError();
      d.count = 0;
      d.why_none =
          fmt::format("{} ({}). {}", cudaGetErrorName(error), cudaGetErrorString(error), remedy(error));
    } else if (d.count == 0) {
      d.why_none = remedy(cudaErrorNoDevice);
    }
    return d;
  }();
  return found;
}

std::string describe_device(int device) {
  cudaDeviceProp properties;
  char bus[32] = "";
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess ||
      cudaDeviceGetPCIBusId(bus, sizeof bus, device) != cudaSuccess) {
    cudaGetLastError();
    return fmt::format("GPU {}", device);
  }
  return fmt::format("GPU {} ({}, {})", device, properties.name, bus);
}

std::string bus_id(int device) {
  char text[32] = "";
  check(cudaDeviceGetPCIBusId(text, sizeof text, device), "where GPU {} is on the PCI bus", device);
  return text;
}

int device_at(const std::string& bus_id) {
  int device = -1;
  if (cudaDeviceGetByPCIBusId(&device, bus_id.c_str()) == cudaSuccess) return device;
  cudaGetLastError();
  return -1;
}

int current_device() {
  int device = -1;
  check(cudaGetDevice(&device), "the calling thread's GPU");
  return device;
}

DeviceGuard::DeviceGuard(int device) : device_(device) {
  check(cudaGetDevice(&before_), "the calling thread's GPU");
  if (before_ != device) check(cudaSetDevice(device), "choosing GPU {} of {}", device, devices().count);
}

DeviceGuard::~DeviceGuard() {
  if (before_ != device_ && cudaSetDevice(before_) != cudaSuccess) cudaGetLastError();
}

bool enable_peer_access(int device, int peer) {
  if (device == peer) return true;
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, device, peer), "whether GPU {} reaches GPU {}", device, peer);
  if (!can) return false;
  const DeviceGuard guard(device);
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return true;
  }
  check(error, "access from {} to the memory of {}", describe_device(device), describe_device(peer));
  return true;
}

}  // namespace muster::cuda
