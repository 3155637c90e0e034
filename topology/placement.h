// Which CPUs the ranks of a host should have.
#pragma once

#include <span>
#include <vector>

#include "topology/machine.h"

namespace muster::topology {

// For each of `ranks` ranks its own CPUs, all of `allowed` (ascending OS indices), neighbours near to one
// NUMA node where there are as many ranks as nodes or more: ranks are spread evenly over the nodes that have
// allowed CPUs, and share those of their node. Where there are more ranks than CPUs and each CPU can have as
// many as any other, they are dealt out one after another: left alone by the kernel, ranks that wait by
// yielding are always runnable, and may stay 7 and 1 on two CPUs. Empty for all where they don't come out even: a
// rank that moves from CPU to CPU then serves better than one CPU that has more.
// Memory need not be placed: the kernel takes it from the node of the CPU that touches it first, or from the
// nearest that has some.
std::vector<std::vector<int>> place_ranks(std::span<const Numa> numas, const std::vector<int>& allowed,
                                          int ranks);

}  // namespace muster::topology
