#include "exec/cuda/peer_proof.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "device/cuda/check.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "exec/cuda/kernels.h"

namespace muster::cuda {

void write_proofs(int device, const std::vector<ProofTarget>& targets) {
  if (targets.empty()) return;
  auto table = std::make_unique<DeviceMemory>(device, targets.size() * sizeof(ProofTarget));
  table->write(0, targets.data(), table->size());
  auto stream = std::make_unique<Stream>(device);
  const std::byte* at = table->data();
  void* arguments[] = {&at};
  {
    const DeviceGuard guard(device);
    const LeavesCapturesAlone relaxed;
    check(cudaLaunchKernel(proof_kernel(), dim3(static_cast<uint32_t>(targets.size())), dim3(kProofWords),
                           arguments, 0, stream->handle()),
          "writing to {} peers from {}", targets.size(), describe_device(device));
  }
  // Counted, not timed: a process that was stopped meanwhile hasn't waited.
  constexpr int kLooks = 5000;
  for (int look = 0; look < kLooks; ++look) {
    if (stream->idle()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  (void)stream.release();  // the kernel may still come to its end, and then needs both
  (void)table.release();
}

Arrived compare_proof(const uint64_t* memory, uint64_t seed) {
  uint32_t right = 0, zero = 0;
  for (uint32_t i = 0; i < kProofWords; ++i) {
    right += memory[i] == proof_word(seed, i);
    zero += memory[i] == 0;
  }
  return right == kProofWords ? Arrived::all : zero == kProofWords ? Arrived::nothing : Arrived::garbage;
}

}  // namespace muster::cuda
