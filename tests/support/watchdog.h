// A hard time limit on each test: when it passes, the stack of every thread of this process and of its
// descendants is printed, then all of them are killed and this process exits with status 124. Limit:
// MUSTER_TEST_LIMIT seconds (default 60; 0 = none), nine times that for tests with Long in their name.
#pragma once

#include <sys/types.h>

#include <vector>

namespace muster::test {

// Makes this process answer the watchdog's request for a stack; call it early in main, also in rank
// processes.
void install_stack_printer();

// Adds the limit to every test of this program. Call after InitGoogleTest.
void install_watchdog();

// Children, their children and so on, parents before children.
std::vector<pid_t> descendants_of(pid_t pid);

// Prints the stacks of all threads of `pid` (itself or a descendant) to stderr.
void print_stacks(pid_t pid);

}  // namespace muster::test
