#include "faults.h"

#include <cstdio>
#include <cstdlib>

#include "runtime.h"

namespace cuda_sim {

bool allocation_fails(size_t bytes) {
  static std::atomic<long> made{0};
  long number = ++made;
  long nth = option("CUDASIM_FAIL_ALLOC", 0), above = option("CUDASIM_FAIL_ALLOC_ABOVE", -1);
  return number == nth || (above >= 0 && bytes > static_cast<size_t>(above));
}

bool launch_stalls(const std::string& kernel, int device) {
  std::string wanted = text_option("CUDASIM_STALL");
  if (wanted.empty()) return false;
  if (size_t at = wanted.rfind('@'); at != std::string::npos) {
    if (std::to_string(device) != wanted.substr(at + 1)) return false;
    wanted.resize(at);
  }
  return kernel.find(wanted) != std::string::npos;
}

PeerFault peer_fault() {
  static const PeerFault fault = [] {
    std::string text = text_option("CUDASIM_P2P_FAULT");
    if (text.empty()) return PeerFault::kNone;
    if (text == "drop") return PeerFault::kDrop;
    if (text == "garbage") return PeerFault::kGarbage;
    fprintf(stderr, "cuda_sim: CUDASIM_P2P_FAULT='%s': drop or garbage is wanted\n", text.c_str());
    abort();
  }();
  return fault;
}

PeerFault peer_fault_at(const void* address, int device) {
  if (peer_fault() == PeerFault::kNone) return PeerFault::kNone;
  Allocation a;
  bool peer =
      find_allocation(address, &a) && !a.on_host() && a.kind != MemoryKind::kManaged && a.device != device;
  return peer ? peer_fault() : PeerFault::kNone;
}

// For kernels, which see addresses where their bytes are.
extern "C" CSIM_API int csim_peer_fault(uint64_t address) {
  if (!csim_thread) return 0;  // a module's variables, as they are made
  if (address - csim_window_delta - csim_window < csim_window_size) address -= csim_window_delta;
  return static_cast<int>(peer_fault_at(reinterpret_cast<const void*>(address), csim_thread->device));
}

}  // namespace cuda_sim
