// What stands in the way of fast communication on a running machine and isn't a device: settings of the
// firmware, the kernel and the shell.
#pragma once

#include <span>

#include "topology/detect_pci.h"

namespace muster::topology {

// Adds findings: ACS on bridges above GPUs (needs root to see), an IOMMU that translates, GPUDirect RDMA
// without a way to GPU memory, a low limit of locked memory beside RDMA cards. Sets Port::gpudirect of RDMA
// ports where NVIDIA's GPUs are.
void examine_environment(Machine& m, const SystemFiles& system, std::span<const SystemFunction> functions);

}  // namespace muster::topology
