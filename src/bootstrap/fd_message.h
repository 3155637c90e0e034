// Descriptors as messages of a connected UNIX socket.
#pragma once

#include <span>
#include <vector>

#include "base/fd.h"
#include "bootstrap/socket.h"

namespace muster {

constexpr size_t kFdsPerMessage = 64;  // the kernel's limit is 253

// As send_all and recv_all. `fds`: 1 to kFdsPerMessage.
IoStatus send_fds(int socket, std::span<const int> fds, Deadline deadline);
// Adds those of one message. failed with EMFILE: this process had no room for all of them; with EBADMSG: something else came.
IoStatus recv_fds(int socket, std::vector<Fd>& out, Deadline deadline);

}  // namespace muster
