#include "run.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/deadline.h"
#include "base/error.h"
#include "input.h"
#include "launch.h"
#include "output.h"
#include "topology/allowed_cpus.h"
#include "topology/detect_cpus.h"
#include "topology/placement.h"

namespace muster::tool {
namespace {

using namespace std::chrono_literals;

// Passed on to the ranks as they are. The first four ask a program to end: ranks that are still there a grace
// time later are killed.
constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int kOther[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGCONT, SIGTSTP, SIGURG};

void say(const std::string& text) { std::fputs(("muster run: " + text + "\n").c_str(), stderr); }

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? fmt::format("signal {} (SIG{})", signal, name) : fmt::format("signal {}", signal);
}

struct Rank {
  pid_t pid = -1;          // also the process group's number
  bool running = false;    // not reaped yet
  bool leftovers = false;  // ended, but not everything that it started
  Deadline leftovers_until;
  int status = 0;  // of waitpid
};

class Job {
 public:
  explicit Job(const RunOptions& options) : options_(options) {}
  ~Job() {
    for (const Rank& r : ranks_)  // none, unless not all could be started
      if (r.running) {
        kill(-r.pid, SIGKILL);
        waitpid(r.pid, nullptr, 0);
      }
    sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }

  int run() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // what ranks leave behind becomes our child, so that its end is seen
    take_signals();
    if (!start_ranks()) return start_status_;
    while (!done()) {
      wait_for_events();
      enforce_deadlines();
    }
    return status_;
  }

 private:
  void take_signals() {
    sigset_t mask;
    sigemptyset(&mask);
    for (const int s : kEnding) sigaddset(&mask, s);
    for (const int s : kOther) sigaddset(&mask, s);
    sigaddset(&mask, SIGCHLD);
    signals_ = Fd(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) fail_errno(errno, "can't make a signalfd", "Raise the limit of open files (ulimit -n)");
    sigaddset(&mask, SIGPIPE);  // a closed output is seen as an error of write
    sigaddset(&mask, SIGTTOU);  // this process may write even where background jobs may not
    sigprocmask(SIG_BLOCK, &mask, &old_mask_);
  }

  bool start_ranks() {
    const std::string n = std::to_string(options_.ranks);
    const std::string port = std::to_string(find_free_port());
    const std::string key = random_key();
    ranks_.resize(static_cast<size_t>(options_.ranks));
    std::vector<std::vector<int>> cpus(ranks_.size());
    if (options_.bind)
      cpus = topology::place_ranks(topology::read_cpus(topology::SystemFiles("")).numas, allowed_cpus(),
                                   options_.ranks);
    for (int i = 0; i < options_.ranks; ++i) {
      LaunchRequest request;
      request.command = options_.command;
      request.environment = {
          "RANK=" + std::to_string(i), "WORLD_SIZE=" + n,       "LOCAL_RANK=" + std::to_string(i),
          "LOCAL_WORLD_SIZE=" + n,     "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
          "MUSTER_JOB_KEY=" + key};
      request.signal_mask = old_mask_;
      request.cpus = cpus[static_cast<size_t>(i)];
      Fd output, error;
      if (options_.prefix) {
        request.output = (output = output_.open(i, STDOUT_FILENO)).get();
        request.error = (error = output_.open(i, STDERR_FILENO)).get();
      }
      if (i == 0) request.input = input_.descriptor_for_rank();
      const Launched launched = launch(request);
      if (i == 0) input_.rank_has_it();
      if (launched.error) {
        say(fmt::format("can't start '{}': {}. {}", options_.command.front(), describe_errno(launched.error),
                        launched.error == ENOENT
                            ? "Is the path right? Programs without a '/' are looked for in PATH"
                            : "Is it an executable file?"));
        start_status_ = launched.error == ENOENT ? 127 : 126;
        return false;
      }
      ranks_[static_cast<size_t>(i)].pid = launched.pid;
      ranks_[static_cast<size_t>(i)].running = true;
    }
    return true;
  }

  bool done() const {
    const bool alive =
        std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.running || r.leftovers; });
    return !alive && !output_.reading() && !output_.writing();
  }

  void wait_for_events() {
    std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
    input_.add_to(fds);
    output_.add_to(fds);
    if (poll(fds.data(), fds.size(), poll_ms()) < 0) return;
    if (fds[0].revents) handle_signals();
    input_.handle(fds);
    output_.handle(fds);
  }

  int poll_ms() const {
    const bool leftovers =
        std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.leftovers; });
    if (leftovers) return 20;  // nothing tells when a process that isn't our child ends
    const int kill_ms = kill_at_.poll_ms(), output_ms = output_until_.poll_ms();
    return kill_ms < 0 || output_ms < 0 ? std::max(kill_ms, output_ms) : std::min(kill_ms, output_ms);
  }

  void handle_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) {
        reap();
      } else if (std::find(std::begin(kEnding), std::end(kEnding), signal) != std::end(kEnding)) {
        end_on(signal);
      } else {
        signal_all(signal);
        if (signal == SIGTSTP) raise(SIGSTOP);  // and later SIGCONT comes to us, and goes to the ranks
      }
    }
  }

  void end_on(int signal) {
    const bool impatient = signal == SIGINT && ended_by_ == SIGINT;
    ended_by_ = signal;
    signal_all(impatient ? SIGKILL : signal);
    schedule_kill();
  }

  void reap() {
    std::vector<size_t> failed;
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto it = std::find_if(ranks_.begin(), ranks_.end(),
                                   [&](const Rank& r) { return r.running && r.pid == pid; });
      if (it == ranks_.end()) continue;
      Rank& r = *it;
      r.status = status;
      r.running = false;
      // A group that is empty now may be another's later; one that isn't keeps its number while it lives.
      r.leftovers = kill(-r.pid, SIGTERM) == 0;
      if (r.leftovers) r.leftovers_until = grace_from_now();
      if (r.status != 0) failed.push_back(static_cast<size_t>(it - ranks_.begin()));
    }
    // Ranks often fail because another died: of several that ended together a killed one comes first.
    std::sort(failed.begin(), failed.end());
    std::stable_partition(failed.begin(), failed.end(),
                          [&](size_t i) { return WIFSIGNALED(ranks_[i].status); });
    for (const size_t i : failed) note_failure(i);
    if (std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.running; }))
      output_until_ = Deadline::after(1s);
  }

  void note_failure(size_t i) {
    const Rank& r = ranks_[i];
    const bool killed = WIFSIGNALED(r.status);
    if (status_ == 0) status_ = killed ? 128 + WTERMSIG(r.status) : WEXITSTATUS(r.status);
    if (ending_ || ended_by_) return;  // it did as it was told
    say(killed ? fmt::format("rank {} (pid {}) was killed by {}{}", i, r.pid, signal_name(WTERMSIG(r.status)),
                             WCOREDUMP(r.status) ? ", core dumped" : "")
               : fmt::format("rank {} (pid {}) exited with status {}", i, r.pid, WEXITSTATUS(r.status)));
    failure_seen_ = true;
  }

  void enforce_deadlines() {
    if (failure_seen_ && !ending_) {
      ending_ = true;
      const auto left = std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.running; });
      if (left) say(fmt::format("ending the other {} rank{}", left, left == 1 ? "" : "s"));
      signal_all(SIGTERM);
      signal_all(SIGCONT);  // a stopped rank can't end otherwise
      schedule_kill();
    }
    if (kill_at_.expired()) {
      for (size_t i = 0; i < ranks_.size(); ++i)
        if (ranks_[i].running)
          say(fmt::format("rank {} (pid {}) is killed: it did not end within {:g} s", i, ranks_[i].pid,
                          options_.grace_seconds));
      signal_all(SIGKILL);
      kill_at_ = Deadline::never();
    }
    for (Rank& r : ranks_)
      if (r.leftovers) r.leftovers = kill(-r.pid, r.leftovers_until.expired() ? SIGKILL : 0) == 0;
    // A process that left its rank's group may hold the output open for ever.
    if (output_until_.expired()) {
      output_.finish();
      output_until_ = Deadline::never();
    }
  }

  void signal_all(int signal) {
    for (const Rank& r : ranks_)
      if (r.running || r.leftovers) kill(-r.pid, signal);
  }

  void schedule_kill() {
    if (kill_at_.poll_ms() < 0) kill_at_ = grace_from_now();
  }

  Deadline grace_from_now() const {
    const std::chrono::duration<double> grace(options_.grace_seconds);
    return Deadline::after(std::chrono::duration_cast<std::chrono::nanoseconds>(grace));
  }

  const RunOptions& options_;
  sigset_t old_mask_{};
  Fd signals_;
  TerminalInput input_;
  PrefixedOutput output_;
  std::vector<Rank> ranks_;
  Deadline kill_at_;       // never, until something asks the ranks to end
  Deadline output_until_;  // never, while a rank runs
  int ended_by_ = 0;       // the signal that asked us to end
  bool failure_seen_ = false;
  bool ending_ = false;  // the others were asked to end because a rank failed
  int status_ = 0;
  int start_status_ = 0;
};

}  // namespace

int run_job(const RunOptions& options) {
  Job job(options);
  return job.run();
}

}  // namespace muster::tool
