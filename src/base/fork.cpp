#include "base/fork.h"

#include <pthread.h>

#include <atomic>

namespace muster {
namespace {
std::atomic<int> g_generation{0};
const int g_registered = pthread_atfork(nullptr, nullptr, [] { g_generation.fetch_add(1, std::memory_order_relaxed); });
}  // namespace

int fork_generation() {
  (void)g_registered;
  return g_generation.load(std::memory_order_relaxed);
}

}  // namespace muster
