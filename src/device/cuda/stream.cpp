#include "device/cuda/stream.h"

#include "device/cuda/check.h"

namespace muster::cuda {
namespace {

// What asks whether something is over answers so.
bool is_over(cudaError_t error, const char* what, int device) {
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(error, "{} of {}", what, describe_device(device));
  return true;
}

}  // namespace

bool is_capturing(StreamHandle stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking stream {} whether it is captured",
        static_cast<const void*>(stream));
  return status != cudaStreamCaptureStatusNone;
}

Stream::Stream(int device) : device_(device) {
  const DeviceGuard guard(device);
  check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "a stream of {}",
        describe_device(device));
}
Stream::~Stream() {
  if (cudaStreamDestroy(handle_) != cudaSuccess) cudaGetLastError();
}
bool Stream::idle() const { return is_over(cudaStreamQuery(handle_), "a stream", device_); }
void Stream::synchronize() const {
  check(cudaStreamSynchronize(handle_), "waiting for a stream of {}", describe_device(device_));
}

Event::Event(int device) : device_(device) {
  const DeviceGuard guard(device);
  check(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming), "an event of {}",
        describe_device(device));
}
Event::~Event() {
  if (cudaEventDestroy(handle_) != cudaSuccess) cudaGetLastError();
}
void Event::record(StreamHandle stream) {
  const DeviceGuard guard(device_);
  check(cudaEventRecord(handle_, stream), "recording an event of {}", describe_device(device_));
}
void Event::hold_back(StreamHandle stream) const {
  check(cudaStreamWaitEvent(stream, handle_, 0), "making a stream wait for an event of {}",
        describe_device(device_));
}
bool Event::reached() const { return is_over(cudaEventQuery(handle_), "an event", device_); }
void Event::synchronize() const {
  check(cudaEventSynchronize(handle_), "waiting for an event of {}", describe_device(device_));
}

}  // namespace muster::cuda
