#include "parallel/cuda/gpu_lane.h"

#include <algorithm>
#include <exception>
#include <string>

namespace muster::cuda {

GpuLane::~GpuLane() {
  try {
    stream_.synchronize();
  } catch (const std::exception&) {  // a broken context: nothing runs there any more
  }
}

GpuStream GpuLane::begin(Communicator& c) {
  if (std::find(used_.begin(), used_.end(), &c) == used_.end()) used_.push_back(&c);
  before_.record(caller_);
  before_.hold_back(stream_.handle());
  return {stream_.handle()};
}

void GpuLane::all_reduce(Communicator& c, std::byte* data, size_t elements, DataType type) {
  gpu::all_reduce(c, data, data, elements, type, RedOp::avg, begin(c));
}
void GpuLane::reduce_scatter(Communicator& c, const std::byte* all, std::byte* mine, size_t elements,
                             DataType type) {
  gpu::reduce_scatter(c, all, mine, elements, type, RedOp::avg, begin(c));
}
void GpuLane::all_gather(Communicator& c, const std::byte* mine, std::byte* all, size_t elements,
                         DataType type) {
  gpu::all_gather(c, mine, all, elements, type, begin(c));
}

uint64_t GpuLane::given() {
  points_.emplace_back(device_).record(stream_.handle());
  return ++numbered_;
}

// The stream runs in order, so what is behind a point is behind those before it.
void GpuLane::await(uint64_t given) {
  const uint64_t first = numbered_ - points_.size() + 1;
  if (given >= first) {
    points_[given - first].hold_back(caller_);
    for (uint64_t i = first; i <= given; ++i) points_.pop_front();
  }
  for (const Communicator* c : used_) {
    std::string text;
    const Result state = c->async_error(&text);
    if (state != Result::success && state != Result::in_progress) throw Error(state, text);
  }
}

}  // namespace muster::cuda
