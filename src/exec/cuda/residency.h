// Kernels that wait for each other must run at the same time: all of them loaded before the first one waits,
// and all of their blocks on the GPU at once.
#pragma once

namespace muster::cuda {

// Loads all kernels for a device, once per process: a kernel that is loaded at its first launch (the driver's
// lazy loading) may wait for one that runs, which may wait for it. Returns how many of their blocks, of
// kMostKernelThreads threads, the device holds at once, of whichever kernels.
int load_kernels(int device);

// Compute capability, times ten: 90.
int compute_capability(int device);

}  // namespace muster::cuda
