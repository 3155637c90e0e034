// Whether two descriptions say the same of a machine.
#pragma once

#include <string>

#include "topology/machine.h"

namespace muster::topology {

// Compares what planning uses: devices, where they hang, their links and what these carry, what kind of GPUs
// and networks they are. Not compared: names, findings, host hashes, where numbers came from, and what only
// one of the two knows. Devices are told apart by what is the driver's own (a GPU's number, a port's name, a
// NUMA node's number), others by PCI address or by what hangs under them. `difference`, if given, gets a line
// for each that begins with the device: "GPU3: sm 90 / 80", first / second. Rates count as equal within one
// part in a thousand.
bool same_meaning(const Machine& first, const Machine& second, std::string* difference = nullptr);

}  // namespace muster::topology
