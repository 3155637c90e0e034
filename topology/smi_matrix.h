// Machines from tables of `nvidia-smi topo -m`, and such tables of any machine.
#pragma once

#include <string>
#include <string_view>

#include "topology/machine.h"
#include "topology/smi_table.h"

namespace muster::topology {

// A machine whose devices reach each other by the classes that the table gives. PCI switches, host bridges
// and NUMA nodes are made up for that (Node::made_up), and all rates are assumed: a table tells neither. Its
// findings say what was missing, what contradicts itself (the closer class is taken) and what was assumed.
// Throws invalid_argument for what is no such table.
Machine read_smi_matrix(std::string_view text, const std::string& name);

// GPUs and network ports that aren't hidden, in nvidia-smi's form: NVLinks counted where GPUs have some in
// common, PCI classes otherwise, as it knows no way through another GPU (NVB) or its CPU's C2C.
std::string write_smi_matrix(const Machine& m);

// Between the two.
Machine machine_of(const SmiTable& table);
SmiTable smi_table_of(const Machine& m);

}  // namespace muster::topology
