#include "comm/gpu_rank.h"

namespace muster {

// Defined where the library is built for GPUs; null where no GPU is found.
[[gnu::weak]] const GpuLibrary* find_gpus();

const GpuLibrary* gpu_library() {
  static const GpuLibrary* const found = &find_gpus ? find_gpus() : nullptr;
  return found;
}

}  // namespace muster
