// hwloc sees what sysfs doesn't say, such as packages by CPUID.
#include "topology/detect_cpus.h"

#ifdef MUSTER_HAVE_HWLOC
#include <hwloc.h>

#include <memory>
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

}  // namespace

std::optional<CpuSide> read_cpus_by_hwloc() {
  hwloc_topology_t t = nullptr;
  if (hwloc_topology_init(&t) != 0) return std::nullopt;
  const std::unique_ptr<hwloc_topology, void (*)(hwloc_topology*)> owner(t, hwloc_topology_destroy);
  hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(t) != 0) return std::nullopt;
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
#else
std::optional<CpuSide> read_cpus_by_hwloc() { return std::nullopt; }
#endif

}  // namespace muster::topology
