// Which architecture a GPU is of, by its PCI ids: where no driver can be asked.
#pragma once

#include "topology/machine.h"

namespace muster::topology {

// Compute capability times ten of NVIDIA's chips from Pascal (2016) on; 0: older, unknown or another
// vendor's. Source: the chips' names in pci.ids (GP100 15f0.., GV100 1db0.., ...) and NVIDIA's table of
// compute capabilities.
int compute_capability_of(const Pci& pci);
// The number of AMD's architecture, "gfx90a" as 910; 0: unknown or another vendor's. Source: pci.ids and the
// chips' names in LLVM's AMDGPU guide.
int gcn_of(const Pci& pci);

// Fills in Gpu::sm and Gpu::gcn of GPUs that have neither.
void recognise_chips(Machine& m);

}  // namespace muster::topology
