// Running one test body on several ranks of a communicator, as threads of this process or as processes.
#pragma once

#include <functional>

#include "muster/muster.h"
#include "support/processes.h"

namespace muster::test {

// fn(communicator, rank) on n threads, each with its rank of one new communicator. An exception that leaves
// fn is a test failure naming the rank, and aborts that rank's communicator so that the others don't wait for
// it.
void run_threads(int n, const std::function<void(Communicator&, int rank)>& fn);

// run_processes, with each rank's communicator made from the environment.
void run_process_ranks(int n, const std::function<void(Communicator&, int rank)>& fn,
                       const ProcessExpectations& expected = {});

}  // namespace muster::test
