#include "exec/cuda/kernels.h"
#include "exec/cuda/peer_proof.h"

namespace muster::cuda {
namespace {

__global__ void store_proofs(const ProofTarget* targets) {
  const ProofTarget t = targets[blockIdx.x];
  t.at[threadIdx.x] = proof_word(t.seed, threadIdx.x);
}

}  // namespace

const void* proof_kernel() { return reinterpret_cast<const void*>(&store_proofs); }

}  // namespace muster::cuda
