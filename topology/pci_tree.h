// From PCI functions, as a system or a file lists them, to the part of them that a machine shows: GPUs,
// network cards and the switches between them and the CPU.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "topology/machine.h"

namespace muster::topology {

// What a function is to us.
enum class PciRole : uint8_t { other, bridge, gpu, nic, nvswitch };
PciRole role_of(const Pci& pci);

struct PciFunction {
  Pci pci;  // gigatransfers and lanes: of the link towards the CPU; of root and downstream ports, of that
            // below
  PciRole role = PciRole::other;
  int parent = kNone;  // the bridge it is behind, an index in the same list; kNone: at a root bus
  std::string
      root;  // of functions at a root bus: the host bridge's name ("pci0000:17"), or empty if there is none
  int numa = kNone;  // node of the machine; of those at a root bus
  int parts = 1;     // GPUs that this one is partitioned into; their nodes are one after the other
};

// Adds host bridges, switches, GPUs and network cards and tells each function's node, or kNone.
//
// Of the bridges that a path goes through, the first is a root port, the second a switch's upstream port, the
// third its downstream port, and so on: each switch is one node, named after its upstream port. Bridges and
// host bridges under which nothing is that matters are left out. A link is as fast as the slower of what its
// two ends say. Nodes are named by their addresses; number_gpus renames GPUs.
std::vector<int> add_pci_tree(Machine& m, std::span<const PciFunction> functions);

// Gives GPUs without a driver's number the next free ones, in the order of nodes, and all the name
// "GPU<number>". Numbers that several have (cards of several vendors) are counted anew.
void number_gpus(Machine& m);

}  // namespace muster::topology
