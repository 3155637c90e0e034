# What Muster can use but does not need.
include(${CMAKE_CURRENT_LIST_DIR}/optional_dependency.cmake)

set(later "not used by this version, which runs on host memory of one machine")
if(NOT MUSTER_WITH_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  set(CUDAToolkit_FOUND_DETAIL "${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR}")
endif()
foreach(module ucx libibverbs hwloc)
  pkg_check_modules(MUSTER_${module} QUIET IMPORTED_TARGET ${module})
  set(MUSTER_${module}_FOUND_DETAIL "${MUSTER_${module}_VERSION}")
endforeach()

muster_optional(CUDA CUDAToolkit_FOUND "NVIDIA's CUDA toolkit" "${later}")
muster_optional(UCX MUSTER_ucx_FOUND "libucx-dev" "${later}")
muster_optional(VERBS MUSTER_libibverbs_FOUND "libibverbs-dev" "a second opinion on RDMA devices, loaded where it is installed")
muster_optional(HWLOC MUSTER_hwloc_FOUND "libhwloc-dev" "a second opinion on CPUs, NUMA nodes and PCI devices")
muster_print_optional()
