// Faults that environment variables ask for; docs/cuda_sim.md lists them. Each is read where it is needed, so
// that a test may set it for a part of its run, but for CUDASIM_P2P_FAULT, which kernels are compiled with.
#pragma once

#include <cstddef>
#include <string>

namespace cuda_sim {

// Whether this allocation (the n-th of the process, or larger than wanted) is to fail. Counts.
bool allocation_fails(size_t bytes);

// Whether a kernel is accepted and never starts.
bool launch_stalls(const std::string& kernel, int device);

enum class PeerFault { kNone, kDrop, kGarbage };
PeerFault peer_fault();
// What happens to an access by this device to an address: only memory of other devices has the fault.
PeerFault peer_fault_at(const void* address, int device);

constexpr unsigned char kGarbageBits = 0x5A;  // that a faulty link turns round in every byte

}  // namespace cuda_sim
