#include "parallel/training_device.h"

#include <cstring>

#include "base/error.h"
#include "comm/gpu_rank.h"
#include "comm/stream.h"
#include "parallel/block_quantise.h"

namespace muster {

// Defined where the library is built for GPUs (src/parallel/cuda).
[[gnu::weak]] std::unique_ptr<TrainingDevice> make_gpu_training_device(GpuStream stream);

namespace {

class HostLane final : public CommunicationLane {
 public:
  void all_reduce(Communicator& c, std::byte* data, size_t elements, DataType type) override {
    c.all_reduce(data, data, elements, type, RedOp::avg, &stream_);
  }
  void reduce_scatter(Communicator& c, const std::byte* all, std::byte* mine, size_t elements,
                      DataType type) override {
    c.reduce_scatter(all, mine, elements, type, RedOp::avg, &stream_);
  }
  void all_gather(Communicator& c, const std::byte* mine, std::byte* all, size_t elements,
                  DataType type) override {
    c.all_gather(mine, all, elements, type, &stream_);
  }
  uint64_t given() override { return stream_.impl().queued(); }
  void await(uint64_t given) override { stream_.impl().wait_for(given); }

 private:
  HostStream stream_;
};

class HostTrainingDevice final : public TrainingDevice {
 public:
  StateMemory allocate(size_t bytes) override {
    auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    return {{memory, memory->data()}, bytes};
  }
  std::unique_ptr<CommunicationLane> make_lane() override { return std::make_unique<HostLane>(); }
  void connect(Communicator&) override {}
  void require_own_memory(const void* p, const char* what, size_t tensor) const override {
    if (const GpuLibrary* gpus = gpu_library(); gpus && p && gpus->holds(p))
      fail(Result::invalid_argument,
           "the {} of tensor {} are GPU memory, and this zero::Optimizer's state is in host memory. Give its "
           "constructor a GpuStream, or copy them to the host",
           what, tensor);
  }
  std::optional<uint64_t> identity() const override { return std::nullopt; }
  void settle() noexcept override {}
  const float* on_host(const float* values, size_t, size_t tensor, std::vector<float>&) override {
    require_own_memory(values, "initial values", tensor);
    return values;
  }

  void clear(std::byte* to, size_t bytes) override {
    if (bytes) std::memset(to, 0, bytes);
  }
  void copy(std::byte* to, const void* from, size_t bytes) override {
    if (bytes) std::memcpy(to, from, bytes);
  }
  void write(void* to, const float* on_host, size_t n, DataType type) override {
    muster::round_elements(on_host, to, n, type);
  }
  void add_elements(void* to, const void* from, size_t n, DataType type) override {
    muster::add_elements(to, from, n, type);
  }
  void round_elements(const float* from, void* to, size_t n, DataType type) override {
    muster::round_elements(from, to, n, type);
  }
  void adam_step(const AdamStep& s, void* parameters, const void* gradients, float* master, float* first,
                 float* second, size_t n, DataType type) override {
    muster::adam_step(s, parameters, gradients, master, first, second, n, type);
  }
  std::vector<double> sums_of_squares(std::span<const Elements> parts, DataType type) override {
    std::vector<double> sums;
    for (const Elements& e : parts) sums.push_back(sum_of_squares(e.at, e.n, type));
    return sums;
  }
  void quantise(const void* from, DataType type, size_t elements, void* to) override {
    muster::quantise(from, type, elements, zero::kQuantisedBlock, to);
  }
  void dequantise(const void* from, DataType type, size_t elements, void* to) override {
    muster::dequantise(from, type, elements, zero::kQuantisedBlock, to);
  }
};

}  // namespace

std::unique_ptr<TrainingDevice> host_training_device() { return std::make_unique<HostTrainingDevice>(); }

std::unique_ptr<TrainingDevice> gpu_training_device(GpuStream stream) {
  if (!&make_gpu_training_device || !gpu_library())
    fail(Result::invalid_usage,
         "zero::Optimizer on a CUDA stream: this library has no part for GPUs (-DMUSTER_GPU=static), or this "
         "process sees none (nvidia-smi, CUDA_VISIBLE_DEVICES)");
  return make_gpu_training_device(stream);
}

}  // namespace muster
