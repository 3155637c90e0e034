// How ranks come to reach each other's parts of a window that is GPU memory, when it is registered.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/exchange.h"
#include "comm/gpu_windows.h"
#include "comm/window.h"

namespace muster {

// What this rank tells the others of its part; empty: it isn't GPU memory. Throws for memory of another GPU
// than the communicator's.
std::string describe_gpu_part(Communicator::Impl& comm, Window::Impl& window);
// `parts`: by rank, some not empty; `sizes`: theirs. Collective, a round of `exchange`. What can't be reached
// isn't an error.
std::shared_ptr<GpuWindow> meet_in_gpu_window(Communicator::Impl& comm, const Window::Impl& window, Exchange& exchange,
                                              std::span<const std::string> parts, std::span<const uint64_t> sizes);

}  // namespace muster
