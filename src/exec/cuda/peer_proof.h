// Shows by content that what a GPU stores into a peer's memory arrives there: where PCI's access control
// services or an IOMMU are set so that it doesn't, the driver offers peer access all the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::cuda {

// What one rank writes to another.
inline constexpr uint32_t kProofWords = 16;
inline constexpr size_t kProofBytes = kProofWords * sizeof(uint64_t);

struct ProofTarget {
  uint64_t* at;
  uint64_t seed;
};

// The words of a seed; never 0. (The constants are those of SplitMix64.)
#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr uint64_t
    proof_word(uint64_t seed, uint32_t i) {
  uint64_t x = seed + (i + 1) * uint64_t{0x9e3779b97f4a7c15};
  x = (x ^ (x >> 30)) * uint64_t{0xbf58476d1ce4e5b9};
  x = (x ^ (x >> 27)) * uint64_t{0x94d049bb133111eb};
  return (x ^ (x >> 31)) | 1;
}
constexpr uint64_t proof_seed(uint64_t communicator, int from, int to) {
  return communicator ^ (static_cast<uint64_t>(from) << 32) ^ static_cast<uint64_t>(to);
}

// By a kernel of `device`; waits for its end, five seconds at most.
void write_proofs(int device, const std::vector<ProofTarget>& targets);

enum class Arrived { nothing, garbage, all };
// `memory`: kProofBytes, zeroed before the proof was written, as its owner reads it.
Arrived compare_proof(const uint64_t* memory, uint64_t seed);

}  // namespace muster::cuda
