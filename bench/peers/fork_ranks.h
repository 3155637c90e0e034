// Ranks as child processes, for libraries that bring no launcher.
#pragma once

#include <functional>

namespace peers {

// Runs body(rank) in `ranks` children and returns 0 when each returned 0, else 1 after ending the others. An
// exception in a child is printed and counts as 1. Children die with the parent.
int fork_ranks(int ranks, const std::function<int(int)>& body);

}  // namespace peers
