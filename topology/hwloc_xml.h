// What hwloc writes: `lstopo machine.xml`, of versions 1 to 3.
#pragma once

#include <string>
#include <string_view>

#include "topology/machine.h"

namespace muster::topology {

// `name`: the file's, for messages. Throws invalid_argument with file, line and column for what isn't
// well-formed, isn't hwloc's, or is beyond the limits (xml.h; 4096 PCI functions).
//
// hwloc tells no rate of network ports, and of PCI links the product of speed and lanes (GB/s): taken as 16
// lanes where that fits, else fewer. Its NVLink matrices count links at the data sheet's rate. Its xGMI
// matrices of rocm-smi say 100 GB/s for any number of links, so there one is assumed.
Machine read_hwloc_xml(std::string_view text, const std::string& name);

}  // namespace muster::topology
