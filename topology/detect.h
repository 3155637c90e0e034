// The machine that this process runs on.
#pragma once

#include <optional>
#include <string>

#include "topology/machine.h"

namespace muster::topology {

struct DetectOptions {
  // "/sys" and "/proc" are read below it, so that captured ones can be. With a root hwloc, NVML and libibverbs
  // are asked only if the next three name something to ask.
  std::string root;
  // NVIDIA's management library, as for dlopen; empty: libnvidia-ml.so.1.
  std::string nvml;
  // libibverbs, as for dlopen; empty: libibverbs.so.1.
  std::string verbs;
  // A file of hwloc's XML for what hwloc finds; empty: it looks itself.
  std::string hwloc_xml;
  // What CUDA_VISIBLE_DEVICES says, if it is set: other GPUs are marked as hidden.
  std::optional<std::string> visible_gpus;
};

// PCI functions, NUMA nodes, CPUs and network devices by sysfs, GPUs and their links by NVML where there is
// one; hwloc and libibverbs are asked for a second opinion. What can't be read is assumed and said so: by Source::assumed, Node::made_up and Machine::findings.
// Doesn't throw for anything the system says or doesn't; reads a few hundred small files; loads and unloads
// NVML and libibverbs. Any thread.
Machine detect(const DetectOptions& options = {});

}  // namespace muster::topology
