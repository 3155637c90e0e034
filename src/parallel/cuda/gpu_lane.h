// Communication on a CUDA stream of its own, beside the caller's.
#pragma once

#include <deque>
#include <vector>

#include "device/cuda/stream.h"
#include "parallel/training_device.h"

namespace muster::cuda {

class GpuLane final : public CommunicationLane {
 public:
  // `caller`: the stream of the caller's work.
  GpuLane(int device, StreamHandle caller)
      : device_(device), caller_(caller), stream_(device), before_(device) {}
  ~GpuLane() override;
  void all_reduce(Communicator& c, std::byte* data, size_t elements, DataType type) override;
  void reduce_scatter(Communicator& c, const std::byte* all, std::byte* mine, size_t elements,
                      DataType type) override;
  void all_gather(Communicator& c, const std::byte* mine, std::byte* all, size_t elements,
                  DataType type) override;
  uint64_t given() override;
  void await(uint64_t given) override;
  void settle() const { stream_.synchronize(); }  // waits

 private:
  GpuStream begin(Communicator& c);  // behind the caller's work

  const int device_;
  const StreamHandle caller_;
  Stream stream_;
  Event before_;  // a call: the caller's work until then
  std::vector<const Communicator*> used_;
  std::deque<Event> points_;  // that given() numbered and nobody has waited for
  uint64_t numbered_ = 0;     // by given(): the last of points_
};

}  // namespace muster::cuda
