// Lets objects notice that they live in a forked child of the process that made them.
#pragma once

#include <atomic>

namespace muster {

// Incremented in the child of every fork. One load.
extern std::atomic<int> g_fork_generation;
inline int fork_generation() { return g_fork_generation.load(std::memory_order_relaxed); }

}  // namespace muster
