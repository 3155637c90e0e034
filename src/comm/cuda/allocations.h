// GPU memory for programs: ncclMemAlloc.
#pragma once

#include <cstddef>
#include <string>

namespace muster::cuda {

// Why memory of the device that ranks are to share isn't made by cuMemCreate; empty: it is. Reads NCCL_CUMEM_ENABLE.
std::string refusal_of_virtual_memory(int device);

// Memory of the calling thread's current device: of cuMemCreate unless there is a refusal, which other processes reach by file
// descriptors (comm/cuda/memory_offer.h) and whose size is rounded up to the driver's pages; else of cudaMalloc. Throws
// unhandled_device_error.
void* allocate_gpu_memory(size_t bytes);
// Waits for the device first, as cudaFree does.
void release_gpu_memory(void* p);

}  // namespace muster::cuda
