#include "comm/gpu_windows.h"

namespace muster {

void GpuWindows::add(const std::shared_ptr<GpuWindow>& window) {
  const std::lock_guard lock(mutex_);
  window->number = made_++;
  std::erase_if(all_, [](const auto& w) { return w.expired(); });
  all_.push_back(window);
}

GpuWindowPlace GpuWindows::find(const void* p, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  GpuWindowPlace found;
  for (const auto& weak : all_) {
    const std::shared_ptr<const GpuWindow> w = weak.lock();
    if (!w) continue;
    const auto at = reinterpret_cast<uintptr_t>(p), base = reinterpret_cast<uintptr_t>(w->base);
    if (at < base || at - base > w->least || bytes > w->least - (at - base)) continue;
    if (!found.window || w->obstacle.empty()) found = {w, at - base};
    if (w->obstacle.empty()) break;
  }
  return found;
}

}  // namespace muster
