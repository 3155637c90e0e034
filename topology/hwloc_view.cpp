#include "topology/hwloc_view.h"

#ifdef MUSTER_HAVE_HWLOC
#include <dlfcn.h>
#include <hwloc.h>

#include <functional>
#include <memory>

#include "muster/types.h"
#include "topology/hwloc_objects.h"
#endif

namespace muster::topology {

#ifdef MUSTER_HAVE_HWLOC
namespace {

std::vector<int> cpus_of(hwloc_const_cpuset_t set) {
  std::vector<int> cpus;
  if (!set || hwloc_bitmap_weight(set) < 0) return cpus;  // infinite
  for (int c = hwloc_bitmap_first(set); c != -1; c = hwloc_bitmap_next(set, c)) cpus.push_back(c);
  return cpus;
}

CpuSide cpus_of(hwloc_topology_t t) {
  CpuSide r;
  r.packages = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE);
  r.cpus = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU);
  for (hwloc_obj_t n = nullptr; (n = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, n));) {
    Numa numa;
    numa.os_index = static_cast<int>(n->os_index);
    numa.cpus = cpus_of(n->cpuset);
    numa.memory_bytes = n->attr->numanode.local_memory;
    for (hwloc_obj_t up = n->parent; up; up = up->parent)
      if (up->type == HWLOC_OBJ_PACKAGE) numa.package = static_cast<int>(up->os_index);
    r.numas.push_back(std::move(numa));
  }
  return r;
}

// The NUMA node of a place that has only one; kNone: the place is the whole machine, or has several.
int numa_at(const HwlocObjects& o, int place) {
  for (int at = place; at != kNone; at = o.places[static_cast<size_t>(at)].above) {
    const HwlocObjects::Place& p = o.places[static_cast<size_t>(at)];
    if (p.last_numa > p.first_numa)
      return p.last_numa - p.first_numa == 1 ? o.numas[p.first_numa].numa.os_index : kNone;
  }
  return kNone;
}

// hwloc tells of its objects in its XML, for which there is a reader.
std::vector<SystemFunction> functions_of(hwloc_topology_t t) {
  char* text = nullptr;
  int length = 0;
  if (hwloc_topology_export_xmlbuffer(t, &text, &length, 0) != 0) return {};
  const std::unique_ptr<char, std::function<void(char*)>> owner(text,
                                                                [&](char* b) { hwloc_free_xmlbuffer(t, b); });
  std::vector<SystemFunction> r;
  try {
    const XmlDocument document(std::string_view(text, length > 0 ? static_cast<size_t>(length) - 1 : 0),
                               "hwloc");  // a zero ends it
    HwlocObjects o = read_hwloc_objects(document);
    for (HwlocObjects::Function& f : o.functions) {
      SystemFunction s;
      s.function = std::move(f.pci);
      if (s.function.parent == kNone) s.numa = numa_at(o, s.function.numa);
      s.function.numa = kNone;
      s.folder = "/sys/bus/pci/devices/" + s.function.pci.address.text();
      r.push_back(std::move(s));
    }
  } catch (const Error&) {
    return {};  // what it can't tell of isn't an opinion
  }
  return r;
}

}  // namespace

std::optional<HwlocView> look_by_hwloc(const std::string& xml_file) {
  hwloc_topology_t t = nullptr;
  if (hwloc_topology_init(&t) != 0) return std::nullopt;
  const std::unique_ptr<hwloc_topology, void (*)(hwloc_topology*)> owner(t, hwloc_topology_destroy);
  if (!xml_file.empty() && hwloc_topology_set_xml(t, xml_file.c_str()) != 0) return std::nullopt;
  // Of this host its Linux part finds PCI devices, too. The PCI plugin, where there is one, would read the names of all devices
  // there are in the world: 10 ms, and seconds under the thread sanitizer.
  if (xml_file.empty()) hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "pci");
  hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_ALL);
  // Its objects of devices would come from drivers (CUDA, OpenCL, X), which would wake GPUs up.
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(t) != 0) return std::nullopt;
  // Where hwloc reads PCI by its plugin, the plugin's library keeps a table for good. Unloaded together with hwloc's
  // topology it would lose it, and make another at each look; so it stays.
  dlopen("libpciaccess.so.0", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE);
  return HwlocView{cpus_of(t), functions_of(t)};
}
#else
std::optional<HwlocView> look_by_hwloc(const std::string&) { return std::nullopt; }
#endif

}  // namespace muster::topology
