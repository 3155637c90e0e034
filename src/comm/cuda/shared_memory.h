// The program's GPU memory, for other processes of this host.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/gpu_rank.h"

namespace muster::cuda {

// What another process needs to reach the range. Throws for what isn't memory of a GPU that can be shared.
GpuOffer share_memory(const void* p, size_t bytes);
// The same memory in addresses of this process, reached from `device`; stays so as long as it is kept. `whom`: whose it is,
// for messages.
std::shared_ptr<std::byte> reach_shared(const std::string& shared, int device, const std::string& whom);

}  // namespace muster::cuda
