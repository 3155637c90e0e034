#include "bootstrap/fd_message.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace muster {
namespace {

constexpr char kFds = 'f';

// One byte, and room for the descriptors that go with it.
struct FdMessage {
  char tag = 0;
  iovec io{&tag, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFdsPerMessage)] = {};
  msghdr header{};

  FdMessage() {
    header.msg_iov = &io;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  FdMessage(const FdMessage&) = delete;
  FdMessage& operator=(const FdMessage&) = delete;
};

size_t take_fds(msghdr& m, std::vector<Fd>& out) {
  size_t got = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < got; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof received);
      out.emplace_back(received);
    }
  }
  return got;
}

IoStatus failed_with(int error) {
  errno = error;
  return IoStatus::failed;
}

}  // namespace

IoStatus send_fds(int socket, std::span<const int> fds, Deadline deadline) {
  FdMessage m;
  m.tag = kFds;
  m.header.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* c = CMSG_FIRSTHDR(&m.header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  while (sendmsg(socket, &m.header, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return IoStatus::closed;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return IoStatus::failed;
    if (!wait_for(socket, POLLOUT, deadline)) return IoStatus::expired;
  }
  return IoStatus::done;
}

IoStatus recv_fds(int socket, std::vector<Fd>& out, Deadline deadline) {
  FdMessage m;
  ssize_t n = 0;
  while ((n = recvmsg(socket, &m.header, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNRESET) return IoStatus::closed;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return IoStatus::failed;
    if (!wait_for(socket, POLLIN, deadline)) return IoStatus::expired;
  }
  if (n == 0) return IoStatus::closed;
  const size_t got = take_fds(m.header, out);
  if (m.header.msg_flags & MSG_CTRUNC) return failed_with(EMFILE);  // the kernel could not make all of them in this process
  if (m.tag != kFds || got == 0) return failed_with(EBADMSG);
  return IoStatus::done;
}

}  // namespace muster
