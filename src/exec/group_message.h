// One send or receive of a group on GPU memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

struct GroupMessage {
  std::byte* buffer = nullptr;
  uint64_t bytes = 0;
  uint64_t fingerprint = 0;  // both ends' must be equal
  int peer = -1;
  bool is_send = false;
};

}  // namespace muster
