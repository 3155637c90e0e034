#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <exception>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace muster {
namespace {

class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::thread start_thread(const char* name, std::function<void()> body) {
  const AllSignalsBlocked blocked;
  try {
    return std::thread([name = std::string(name), body = std::move(body)] {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    });
  } catch (const std::system_error& e) {
    fail_errno(e.code().value(), fmt::format("the thread {} can't be started", name),
               "Raise the limit of processes (ulimit -u, or pids.max of the control group)");
  }
}

void run_side_by_side(const char* name, size_t n, const std::function<void(size_t)>& body) {
  enum : int { kWait, kGo, kGiveUp };
  std::atomic<int> gate{kWait};
  std::vector<std::exception_ptr> errors(n);
  std::vector<std::thread> threads;
  threads.reserve(n);
  const auto open = [&](int how) {
    gate.store(how);
    gate.notify_all();
    for (std::thread& t : threads) t.join();
  };
  try {
    for (size_t i = 0; i < n; ++i)
      threads.push_back(start_thread(name, [&, i] {
        gate.wait(kWait);
        if (gate.load() != kGo) return;
        try {
          body(i);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      }));
  } catch (...) {
    open(kGiveUp);
    throw;
  }
  open(kGo);
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
}

}  // namespace muster
