// An optimizer's state on a GPU.
#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/math.h"
#include "device/cuda/check.h"
#include "device/cuda/memory.h"
#include "parallel/block_quantise.h"
#include "parallel/cuda/gpu_lane.h"
#include "parallel/cuda/optimizer_kernels.h"
#include "parallel/training_device.h"

namespace muster {

std::unique_ptr<TrainingDevice> make_gpu_training_device(GpuStream stream);

namespace cuda {
namespace {

// Enough for the largest GPUs, eight blocks to a multiprocessor; a thread has several elements beyond that.
constexpr uint64_t kMostBlocksOfElements = 2048;
uint64_t blocks_for(size_t elements) {
  return std::min<uint64_t>(ceil_div(elements, kOptimizerThreads), kMostBlocksOfElements);
}

class GpuTrainingDevice final : public TrainingDevice {
 public:
  explicit GpuTrainingDevice(StreamHandle caller) : device_(current_device()), caller_(caller) {}

  StateMemory allocate(size_t bytes) override {
    auto memory = std::make_shared<DeviceMemory>(device_, bytes);
    return {{memory, memory->data()}, bytes};
  }
  std::unique_ptr<CommunicationLane> make_lane() override {
    return std::make_unique<GpuLane>(device_, caller_);
  }
  // By memory that stays: freeing it would wait for kernels of other ranks that have this GPU, and they
  // perhaps for this one.
  void connect(Communicator& c) override {
    if (connecting_.size() == 0) connecting_ = DeviceMemory(device_, sizeof(float));
    GpuLane lane(device_, caller_);
    lane.all_reduce(c, connecting_.data(), 1, DataType::float32);
    lane.settle();
  }
  void require_own_memory(const void* p, const char* what, size_t tensor) const override {
    const PointerInfo at = inspect(p);
    if (!p || at.kind == MemoryKind::pinned || at.kind == MemoryKind::managed || at.device == device_) return;
    fail(Result::invalid_argument,
         "the {} of tensor {} are {}, and this zero::Optimizer's state is on {}. Copy them there", what,
         tensor,
         at.kind == MemoryKind::host ? "plain host memory" : "memory of " + describe_device(at.device),
         describe_device(device_));
  }
  std::optional<uint64_t> identity() const override {
    static const uint64_t process = [] {
      std::random_device random;
      return uint64_t{random()} << 32 | random();
    }();
    return hash_combine(process, static_cast<uint64_t>(device_));
  }
  void settle() noexcept override {
    if (cudaStreamSynchronize(caller_) != cudaSuccess) cudaGetLastError();  // a broken context: nothing runs
  }
  const float* on_host(const float* values, size_t n, size_t tensor, std::vector<float>& copied) override {
    if (inspect(values).kind == MemoryKind::host) return values;
    require_own_memory(values, "initial values", tensor);
    copied.resize(n);
    move(copied.data(), values, n * sizeof(float));
    await_caller();
    return copied.data();
  }

  void clear(std::byte* to, size_t bytes) override {
    if (bytes == 0) return;
    const DeviceGuard guard(device_);
    check(cudaMemsetAsync(to, 0, bytes, caller_), "clearing {} bytes on {}", bytes, describe_device(device_));
  }
  void copy(std::byte* to, const void* from, size_t bytes) override { move(to, from, bytes); }
  void write(void* to, const float* on_host, size_t n, DataType type) override {
    std::vector<std::byte> rounded(n * size_of(type));
    muster::round_elements(on_host, rounded.data(), n, type);
    move(to, rounded.data(), rounded.size());
    await_caller();
  }
  void add_elements(void* to, const void* from, size_t n, DataType type) override {
    launch_over(add_kernel(type), blocks_for(n), to, from, uint64_t{n});
  }
  void round_elements(const float* from, void* to, size_t n, DataType type) override {
    launch_over(round_kernel(type), blocks_for(n), from, to, uint64_t{n});
  }
  void adam_step(const AdamStep& s, void* parameters, const void* gradients, float* master, float* first,
                 float* second, size_t n, DataType type) override {
    launch_over(adam_kernel(type), blocks_for(n),
                AdamArgs{parameters, gradients, master, first, second, n, adam_factors(s)});
  }
  std::vector<double> sums_of_squares(std::span<const Elements> parts, DataType type) override;
  void quantise(const void* from, DataType type, size_t elements, void* to) override {
    launch_over(quantise_kernel(type), ceil_div(elements, zero::kQuantisedBlock),
                QuantiseArgs{from, to, scales_of(to, elements), elements});
  }
  void dequantise(const void* from, DataType type, size_t elements, void* to) override {
    launch_over(dequantise_kernel(type), ceil_div(elements, zero::kQuantisedBlock),
                QuantiseArgs{from, to, scales_of(const_cast<void*>(from), elements), elements});
  }

 private:
  static float* scales_of(void* quantised, size_t elements) {
    return reinterpret_cast<float*>(static_cast<std::byte*>(quantised) + begin_of_scales(elements));
  }
  void move(void* to, const void* from, size_t bytes) const {
    if (bytes == 0) return;
    const DeviceGuard guard(device_);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, caller_), "copying {} bytes on {}", bytes,
          describe_device(device_));
  }
  void await_caller() const {
    check(cudaStreamSynchronize(caller_), "waiting for a stream of {}", describe_device(device_));
  }
  template <class... Args>
  void launch_over(const void* kernel, uint64_t blocks, Args... args) const {
    if (blocks == 0) return;
    const DeviceGuard guard(device_);
    std::array<void*, sizeof...(Args)> values{&args...};
    check(cudaLaunchKernel(kernel, dim3(static_cast<uint32_t>(blocks)), dim3(kOptimizerThreads),
                           values.data(), 0, caller_),
          "launching {} blocks of an optimizer's kernel on {}. The stream must be one of this GPU", blocks,
          describe_device(device_));
  }

  const int device_;
  const StreamHandle caller_;
  DeviceMemory connecting_, block_sums_;  // block_sums_: of squares
};

std::vector<double> GpuTrainingDevice::sums_of_squares(std::span<const Elements> parts, DataType type) {
  size_t blocks = 0;
  for (const Elements& e : parts) blocks += ceil_div(e.n, kSquaresBlock);
  if (block_sums_.size() < blocks * sizeof(double))
    block_sums_ = DeviceMemory(device_, blocks * sizeof(double));
  auto* at = reinterpret_cast<double*>(block_sums_.data());
  for (const Elements& e : parts) {
    const size_t some = ceil_div(e.n, kSquaresBlock);
    launch_over(squares_kernel(type), some, static_cast<const void*>(e.at), uint64_t{e.n}, at);
    at += some;
  }
  std::vector<double> of_blocks(blocks);
  move(of_blocks.data(), block_sums_.data(), blocks * sizeof(double));
  await_caller();
  std::vector<double> sums;
  size_t next = 0;
  for (const Elements& e : parts) {
    double sum = 0;
    for (const size_t end = next + ceil_div(e.n, kSquaresBlock); next < end; ++next) sum += of_blocks[next];
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace
}  // namespace cuda

std::unique_ptr<TrainingDevice> make_gpu_training_device(GpuStream stream) {
  return std::make_unique<cuda::GpuTrainingDevice>(static_cast<cuda::StreamHandle>(stream.handle));
}

}  // namespace muster
