// The library's threads. Signals belong to the program's own threads: these block them all.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>

namespace muster {

// `name`: as debuggers show it, 15 characters at most. Throws system_error, and changes nothing, where the system refuses
// another thread.
std::thread start_thread(const char* name, std::function<void()> body);

// body(0) ... body(n - 1) side by side, each on a thread of its own; returns when all have ended. Throws the first
// error, by index. Where not all threads can be started, no body runs.
void run_side_by_side(const char* name, size_t n, const std::function<void(size_t)>& body);

}  // namespace muster
