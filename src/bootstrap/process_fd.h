// A descriptor that belongs to this process alone: a forked child closes its copies at once, so that a
// connection ends when the process that made it ends, whatever children it left behind.
#pragma once

#include <utility>

namespace muster {

class ProcessFd {
 public:
  ProcessFd() = default;
  explicit ProcessFd(int fd);  // takes over; fd < 0: none
  ProcessFd(ProcessFd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  ProcessFd& operator=(ProcessFd&& o) noexcept {
    if (this != &o) {
      reset();
      fd_ = std::exchange(o.fd_, -1);
    }
    return *this;
  }
  ~ProcessFd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

// True in a child of a process that had ever made a ProcessFd: threads and connections stayed with the
// parent.
bool is_forked_child();
void refuse_in_forked_child();  // throws invalid_usage when is_forked_child()

}  // namespace muster
