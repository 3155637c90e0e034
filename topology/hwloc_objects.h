// The objects of an hwloc file that a machine is made of, as they are written. read_hwloc_xml makes the
// machine of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/xml.h"
#include "topology/pci_tree.h"

namespace muster::topology {

struct HwlocObjects {
  // Where an object hangs: the objects that aren't I/O, each with what lies below it, as ranges of the lists
  // here.
  struct Place {
    int above = kNone;
    size_t first_numa = 0, last_numa = 0, first_package = 0, last_package = 0;
  };
  struct Package {
    int os_index = kNone;
    int64_t gp_index = kNone;
    int place = kNone;
    CpuArch arch = CpuArch::unknown;
    std::string vendor;
    int family = kNone, model = kNone;
  };
  struct NumaNode {
    Numa numa;  // without package and CPU
    int place = kNone;
  };
  struct Function {
    PciFunction pci;  // numa: a place here
    int64_t gp_index = kNone;
    pugi::xml_node element;
  };
  enum class Device { other, gpu, network, openfabrics };
  struct OsDevice {
    Device device = Device::other;
    std::string name;
    int64_t gp_index = kNone;
    int function = kNone;  // kNone: it isn't on the PCI
    int place = kNone;
    std::map<std::string, std::string, std::less<>> info;
  };

  std::string host_name;
  CpuArch arch = CpuArch::unknown;
  std::vector<int> allowed;  // CPUs; empty: all
  std::vector<Place> places;
  std::vector<Package> packages;
  std::vector<NumaNode> numas;
  std::vector<Function> functions;
  std::vector<OsDevice> devices;
};

// Throws invalid_argument as read_hwloc_xml does.
HwlocObjects read_hwloc_objects(const XmlDocument& document);

}  // namespace muster::topology
