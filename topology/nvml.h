// What NVIDIA's management library says of GPUs. It is looked for at run time; nothing is built or linked
// with it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/pci.h"

namespace muster::topology {

struct NvmlLink {
  enum class To { gpu, nvswitch, cpu, unknown };
  To to = To::unknown;
  std::optional<PciAddress> address;  // of the other end; virtual machines don't tell it
};

struct NvmlGpu {
  int index = 0;
  std::optional<PciAddress> address;
  std::string name, uuid;
  int sm = 0;                   // compute capability times ten; 0: not said
  std::vector<NvmlLink> links;  // NVLinks that are up
  int links_down = 0;
  int c2c_links = 0;        // to the CPU
  double c2c_gb_per_s = 0;  // of all of them; 0: not said
};

struct NvmlAnswer {
  bool found = false;   // there is such a library
  std::string problem;  // why it couldn't be asked; empty: it could
  std::string driver;   // version
  std::vector<NvmlGpu> gpus;
};

// `library`: as for dlopen. Never throws for what the library does. Thread-safe.
NvmlAnswer ask_nvml(const std::string& library);

}  // namespace muster::topology
