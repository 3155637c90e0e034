// Where an optimizer's state lies and is computed with: host memory and the calling thread, or a GPU and a
// CUDA stream of the caller's.
//
// "The caller's work" is what the calling thread has done, or what its stream has been given, until now. On a
// GPU everything here only adds to that and returns, but for what says that it waits. Any thread, but for
// lanes, which are one thread's at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "muster/gpu.h"
#include "muster/muster.h"
#include "parallel/shard_math.h"

namespace muster {

// Zeroed bytes; who lets go of them has waited for what uses them.
struct StateMemory {
  std::shared_ptr<std::byte> bytes;
  size_t size = 0;
  std::byte* data() const { return bytes.get(); }
  float* floats() const { return reinterpret_cast<float*>(bytes.get()); }
};

// Communication beside the caller's work, call after call. Each comes behind the caller's work until then.
class CommunicationLane {
 public:
  virtual ~CommunicationLane() = default;  // waits for all that it was given
  // Averages, in place.
  virtual void all_reduce(Communicator& c, std::byte* data, size_t elements, DataType type) = 0;
  // As Communicator's of these names; averages.
  virtual void reduce_scatter(Communicator& c, const std::byte* all, std::byte* mine, size_t elements,
                              DataType type) = 0;
  virtual void all_gather(Communicator& c, const std::byte* mine, std::byte* all, size_t elements,
                          DataType type) = 0;
  // A number for all that it has been given until now.
  virtual uint64_t given() = 0;
  // The caller's work from now on comes behind what that number stands for. Throws the errors of the calls;
  // on a GPU those that are known by now.
  virtual void await(uint64_t given) = 0;
  void await() { await(given()); }
};

class TrainingDevice {
 public:
  virtual ~TrainingDevice() = default;

  virtual StateMemory allocate(size_t bytes) = 0;
  virtual std::unique_ptr<CommunicationLane> make_lane() = 0;
  // Makes ready what the communicator's first call there would wait for. Collective.
  virtual void connect(Communicator& c) = 0;
  // Throws invalid_argument unless what the caller gives is memory of this device; `what`: as in "gradients".
  virtual void require_own_memory(const void* p, const char* what, size_t tensor) const = 0;
  // Equal for two ranks if they are one process's and on one GPU; nullopt: they may be.
  virtual std::optional<uint64_t> identity() const = 0;
  // Waits until all of the caller's work is done.
  virtual void settle() noexcept = 0;
  // A tensor's initial values as they are in host memory, whether there or on this device; waits. `copy` is
  // where they are put if need be.
  virtual const float* on_host(const float* values, size_t n, size_t tensor, std::vector<float>& copy) = 0;

  // In the order of the caller's work; the arithmetic is that of parallel/shard_math.h and
  // parallel/block_quantise.h, bit for bit but for the payload of NaNs.
  virtual void clear(std::byte* to, size_t bytes) = 0;
  virtual void copy(std::byte* to, const void* from, size_t bytes) = 0;
  virtual void write(void* to, const float* on_host, size_t n, DataType type) = 0;  // rounds; waits
  virtual void add_elements(void* to, const void* from, size_t n, DataType type) = 0;
  virtual void round_elements(const float* from, void* to, size_t n, DataType type) = 0;
  virtual void adam_step(const AdamStep& s, void* parameters, const void* gradients, float* master,
                         float* first, float* second, size_t n, DataType type) = 0;
  struct Elements {
    const std::byte* at;
    size_t n;
  };
  virtual std::vector<double> sums_of_squares(std::span<const Elements> parts, DataType type) = 0;  // waits
  // In blocks of zero::kQuantisedBlock.
  virtual void quantise(const void* from, DataType type, size_t elements, void* to) = 0;
  virtual void dequantise(const void* from, DataType type, size_t elements, void* to) = 0;
};

std::unique_ptr<TrainingDevice> host_training_device();
// The calling thread's current GPU, to which the stream belongs. invalid_usage: there is none, or the library
// was built without.
std::unique_ptr<TrainingDevice> gpu_training_device(GpuStream stream);

}  // namespace muster
