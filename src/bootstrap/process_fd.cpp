#include "bootstrap/process_fd.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/fork.h"

namespace muster {
namespace {

struct Table {
  std::mutex mutex;
  std::set<int> fds;
};
std::atomic<int> g_generation{-1};  // of the process that made the table

Table& table() {
  static Table* t = [] {
    static Table* made = new Table;  // outlives every static object that may hold a descriptor
    g_generation.store(fork_generation(), std::memory_order_relaxed);
    pthread_atfork([] { made->mutex.lock(); }, [] { made->mutex.unlock(); },
                   [] {
                     for (const int fd : made->fds) ::close(fd);
                     made->fds.clear();
                     made->mutex.unlock();
                   });
    return made;
  }();
  return *t;
}

}  // namespace

ProcessFd::ProcessFd(int fd) : fd_(fd) {
  if (fd < 0) return;
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  t.fds.insert(fd);
}

void ProcessFd::reset() {
  if (fd_ < 0) return;
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  // In a forked child the number is closed already, and may be somebody else's by now.
  if (t.fds.erase(fd_)) ::close(fd_);
  fd_ = -1;
}

bool is_forked_child() {
  const int generation = g_generation.load(std::memory_order_relaxed);
  return generation >= 0 && generation != fork_generation();
}

void refuse_in_forked_child() {
  if (is_forked_child())
    fail(Result::invalid_usage,
         "Muster can't be used in process {}: it was forked from a process that had used Muster, whose "
         "connections and threads stay "
         "with the parent. Fork before the first use, or start the child with exec",
         getpid());
}

}  // namespace muster
