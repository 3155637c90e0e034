// What the handle of ncclCommRegister and an ncclWindow_t stand for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/lasting_memory.h"
#include "muster/window.h"
#include "nccl/handle_table.h"

namespace muster::nccl {

struct Registration {
  uint64_t life = 0;  // in LastingMemory; 0: it isn't there (NCCL_LOCAL_REGISTER=0)
  void clear() { LastingMemory::of_process().end(std::exchange(life, 0)); }
};
struct WindowHandle {
  Window window;
  void clear() { window = {}; }
};

inline constexpr size_t kMostRegistrations = 1 << 16;
extern HandleTable<Registration, kMostRegistrations> g_registrations;
extern HandleTable<WindowHandle, kMostRegistrations> g_windows;

// Throws invalid_argument unless `handle` is one of `open`, which a communicator has. `what`: "window".
template <class T>
T& require_open(const std::vector<T*>& open, HandleTable<T, kMostRegistrations>& table, const void* handle,
                const char* what, const std::string& comm) {
  T* found = table.find(handle);
  if (!found || std::find(open.begin(), open.end(), found) == open.end())
    fail(Result::invalid_argument, "{} is no {} of communicator {}{}", handle, what, comm,
         table.is_stale(handle) ? ", or not any more" : "");
  return *found;
}
template <class T>
void close(std::vector<T*>& open, HandleTable<T, kMostRegistrations>& table, const void* handle,
           const char* what, const std::string& comm) {
  T& found = require_open(open, table, handle, what, comm);
  std::erase(open, &found);
  table.retire(found);
  table.recycle(found);
}

}  // namespace muster::nccl
