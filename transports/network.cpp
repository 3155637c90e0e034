#include "transports/network.h"

#include "base/error.h"

namespace muster {

std::shared_ptr<void> Network::show_gpu_memory(std::span<std::byte> memory) {
  fail(Result::invalid_usage, "the network {} doesn't read GPU memory, of which {} bytes are to be sent from",
       name(), memory.size());
}

}  // namespace muster
