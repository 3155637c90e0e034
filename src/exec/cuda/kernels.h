// The kernels: the step language's interpreter on a GPU. A block runs a channel. What is returned is for
// cudaLaunchKernel.
#pragma once

#include <cstddef>

#include "muster/types.h"

namespace muster::cuda {

// For sum, prod, max, min, avg and pre_mul_sum of a type, and for moving elements of any. Its argument is
// KernelLaunch.
const void* arithmetic_kernel(DataType type);
// For bitwise and logical operations on elements of 1, 2, 4 or 8 bytes, and for moving. Its argument is KernelLaunch.
const void* bits_kernel(size_t element);

// For groups of sends and receives. Its argument is MessageArgs.
const void* message_kernel();
// For src/exec/cuda/peer_proof.h. Its argument is a table of ProofTarget; a block each, of kProofWords threads.
const void* proof_kernel();

}  // namespace muster::cuda
