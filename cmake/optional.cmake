# What Muster can use but does not need.
include(${CMAKE_CURRENT_LIST_DIR}/optional_dependency.cmake)

if(NOT MUSTER_WITH_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  set(CUDAToolkit_FOUND_DETAIL "${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR}")
endif()
foreach(module ucx libibverbs hwloc)
  pkg_check_modules(MUSTER_${module} QUIET IMPORTED_TARGET ${module})
  set(MUSTER_${module}_FOUND_DETAIL "${MUSTER_${module}_VERSION}")
endforeach()

muster_optional(CUDA CUDAToolkit_FOUND "NVIDIA's CUDA toolkit" "tests on simulated devices only: the library runs on host memory")
muster_optional(UCX MUSTER_ucx_FOUND "libucx-dev" "ranks of several hosts: its library is loaded where it is installed")
muster_optional(VERBS MUSTER_libibverbs_FOUND "libibverbs-dev" "ranks of several hosts by RDMA, and a second opinion on RDMA devices; its library is loaded where it is installed")
muster_optional(HWLOC MUSTER_hwloc_FOUND "libhwloc-dev" "a second opinion on CPUs, NUMA nodes and PCI devices")
muster_print_optional()
