#include "base/fork.h"

#include <pthread.h>

namespace muster {

std::atomic<int> g_fork_generation{0};

namespace {
[[maybe_unused]] const int g_registered =
    pthread_atfork(nullptr, nullptr, [] { g_fork_generation.fetch_add(1, std::memory_order_relaxed); });
}  // namespace

}  // namespace muster
