// What the handle of ncclCommRegister and an ncclWindow_t stand for: a range of this rank's memory.
#pragma once

#include <cstddef>
#include <span>

#include "nccl/handle_table.h"

namespace muster::nccl {

struct Registration {
  std::span<std::byte> range;
  void clear() { range = {}; }
};
struct Window {
  std::span<std::byte> range;
  void clear() { range = {}; }
};

inline constexpr size_t kMostRegistrations = 1 << 16;
extern HandleTable<Registration, kMostRegistrations> g_registrations;
extern HandleTable<Window, kMostRegistrations> g_windows;

}  // namespace muster::nccl
