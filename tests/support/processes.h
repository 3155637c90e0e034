// Running one test body in several processes, the ranks of a job.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace muster::test {

struct ProcessExpectations {
  std::vector<int> killed = {};  // ranks that must end by a signal; every other must end normally
};

// fn(rank) in n new processes with the environment that `muster run` gives (so Communicator::from_environment
// works). A process is this program, started afresh on the current test: the test's body runs in it up to
// this call, where fn runs and the process ends. So what comes before the call must come out the same every
// time it is run; nothing that the body has done to this process (threads, sockets, signals) reaches the
// ranks. Exceptions and failed expectations of a rank are failures of this test, naming the rank. May be
// called several times in one test, also after threads were started. Not from a rank, and not from several
// threads at once.
void run_processes(int n, const std::function<void(int rank)>& fn, const ProcessExpectations& expected = {});

// The same for ranks that don't all start alike.
struct RankStart {
  std::vector<std::string> environment = {};  // "NAME=value", before this process's own
  // Run in the new process before it becomes the rank; false ends it. Async-signal-safe calls only.
  std::function<bool()> enter = {};
};
void run_processes(const std::vector<RankStart>& ranks, const std::function<void(int rank)>& fn,
                   const ProcessExpectations& expected = {});

// For main: whether this process was started by run_processes, and then: runs its rank; returns the exit
// status.
bool is_rank_process();
int rank_process_main();

// "threw muster::Error (timeout): ...", inside a catch block.
std::string text_of_current_exception();

}  // namespace muster::test
