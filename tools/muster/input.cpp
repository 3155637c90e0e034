#include "input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace muster::tool {

int TerminalInput::descriptor_for_rank() {
  if (!isatty(STDIN_FILENO)) return STDIN_FILENO;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    fail_errno(errno, "can't make a pipe", "Raise the limit of open files (ulimit -n)");
  rank_end_ = Fd(ends[0]);
  our_end_ = Fd(ends[1]);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  return ends[0];
}

void TerminalInput::add_to(std::vector<pollfd>& fds) const {
  if (!our_end_) return;
  if (!pending_.empty()) {
    fds.push_back({our_end_.get(), POLLOUT, 0});
    return;
  }
  // Reading the terminal from the background would stop this process.
  if (tcgetpgrp(STDIN_FILENO) == getpgrp()) fds.push_back({STDIN_FILENO, POLLIN, 0});
}

void TerminalInput::handle(const std::vector<pollfd>& fds) {
  for (const pollfd& p : fds) {
    if (!our_end_ || !p.revents) continue;
    if (p.fd == STDIN_FILENO) {
      char buffer[4096];
      const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
      if (n > 0) pending_.assign(buffer, static_cast<size_t>(n));
      if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) our_end_.reset();
    } else if (p.fd == our_end_.get()) {
      const ssize_t n = write(our_end_.get(), pending_.data(), pending_.size());
      if (n > 0) pending_.erase(0, static_cast<size_t>(n));
      if (n < 0 && errno != EINTR && errno != EAGAIN) our_end_.reset();  // rank 0 reads no more
    }
  }
}

}  // namespace muster::tool
