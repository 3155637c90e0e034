// Lets objects notice that they live in a forked child of the process that made them.
#pragma once

namespace muster {

// Incremented in the child of every fork. One load.
int fork_generation();

}  // namespace muster
