// libibverbs beside sysfs: a second opinion on RDMA devices.
#pragma once

#include <vector>

#include "topology/detect_network.h"
#include "topology/finding.h"
#include "topology/verbs.h"

namespace muster::topology {

// Fills in what sysfs doesn't say, adds devices and ports that it lacks, and says where the two differ (sysfs
// stays) and which devices programs can't use.
void add_verbs(NetworkDevices& network, const VerbsAnswer& verbs, std::vector<Finding>& findings);

}  // namespace muster::topology
