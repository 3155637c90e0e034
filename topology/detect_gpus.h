// GPUs of a machine that is being detected: what the driver says of them.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "topology/detect_pci.h"
#include "topology/nvml.h"

namespace muster::topology {

// Numbers, names and links of NVIDIA's GPUs. Those that the driver doesn't know become hidden; those that
// only it knows are added at the first NUMA node.
void add_nvml(Machine& m, const NvmlAnswer& answer, std::span<const SystemFunction> functions);

// CUDA_VISIBLE_DEVICES: numbers, or beginnings of UUIDs, up to the first that means nothing. GPUs must have
// numbers.
void hide_gpus(Machine& m, const std::string& visible);

}  // namespace muster::topology
