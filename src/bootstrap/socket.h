// Sockets with deadlines. All are non-blocking and close-on-exec; no call here raises SIGPIPE or is upset by
// EINTR.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "bootstrap/address.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/process_fd.h"

namespace muster {

// A first failing system call, for callers that may try again.
struct SocketError {
  int error = 0;          // errno; 0: none
  const char* call = "";  // "connect", "bind" ...
};

ProcessFd make_socket(int family, SocketError& error);
// Bound to `at` (port 0: any) and listening.
ProcessFd listen_at(const Address& at, SocketError& error);
Address local_address(int fd);
Address remote_address(int fd);
// The address of this host from which the kernel's routes lead to `target`; kind none where that says nothing: no route,
// loopback, a UNIX socket. Sends nothing.
Address address_toward(const Address& target);
// Keep-alive and no delay; without effect on UNIX sockets.
void tune_stream(int fd);
// An error ends the connection about so long after the other host was last heard of, whether something is under way
// to it or not. A host whose process is stopped still answers, unless that process has been sent more than it has
// room for.
void limit_silence(int fd, std::chrono::milliseconds most);

// The beginning and the end of connect_to: a connection under way, or empty with `error` set; then, once it is
// writable, what has become of it, as an errno.
ProcessFd begin_connect(const Address& target, const Source& source, SocketError& error);
int end_connect(int fd, const Address& target);

// Connects within the deadline, from `source` where that makes sense for this target. Empty with `error` set
// on failure.
ProcessFd connect_to(const Address& target, const Source& source, Deadline deadline, SocketError& error);

enum class IoStatus { done, closed, expired, failed };
// Everything, or why not; errno is kept for `failed`.
IoStatus send_all(int fd, std::string_view bytes, Deadline deadline);
IoStatus recv_all(int fd, void* out, size_t bytes, Deadline deadline);

// A message with its 32-bit length in front.
std::string frame(std::string_view message);
constexpr size_t kSmallFrame = 64 << 10;
IoStatus recv_frame(int fd, std::string& out,
                    Deadline deadline);  // longer than kSmallFrame: failed with EBADMSG

bool wait_for(int fd, short events, Deadline deadline);  // false: expired

}  // namespace muster
