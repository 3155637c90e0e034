# What `cpack -G TGZ` packs is complete: it runs on any x86-64 Linux with the C and C++ libraries of this one or newer ones (docs/bundle.md).
# OpenSSL's library is linked in (CMakeLists.txt), since a program's own copy may be a newer one; what else the library needs lies
# beside it. UCX and libibverbs are loaded where a machine has them.
install(TARGETS muster nccl muster_tool RUNTIME_DEPENDENCY_SET bundled LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(RUNTIME_DEPENDENCY_SET bundled DESTINATION ${CMAKE_INSTALL_LIBDIR}
        PRE_EXCLUDE_REGEXES "^lib(muster|nccl|c|m|stdc\\+\\+|gcc_s|dl|rt|pthread)\\.so" "^ld-linux")

# Each library whose code is in it says so. (Debian's packages name their licences in one place.)
foreach(package libfmt-dev libssl-dev libhwy-dev libpugixml-dev nlohmann-json3-dev libcli11-dev)
  set(licence /usr/share/doc/${package}/copyright)
  if(NOT EXISTS ${licence})
    message(FATAL_ERROR "MUSTER_BUNDLE: ${licence}, which goes into the bundle, was not found; it is in Debian's package ${package}")
  endif()
  install(FILES ${licence} DESTINATION share/licences RENAME ${package})
endforeach()
install(FILES /usr/share/common-licenses/Apache-2.0 DESTINATION share/licences)  # those name it
if(MUSTER_GPU STREQUAL "static")
  file(GLOB licence ${CUDAToolkit_LIBRARY_ROOT}/EULA.txt ${CUDAToolkit_BIN_DIR}/../dist-info/nvidia_cuda_runtime-*/licenses/License.txt)
  if(NOT licence)
    message(FATAL_ERROR "MUSTER_BUNDLE: the licence of the CUDA runtime (EULA.txt) was not found in ${CUDAToolkit_LIBRARY_ROOT}")
  endif()
  list(GET licence 0 licence)
  install(FILES ${licence} DESTINATION share/licences RENAME cuda-runtime)
endif()

if(TARGET gpu_check)
  install(TARGETS gpu_check RUNTIME DESTINATION gpu)
  install(PROGRAMS tests/gpu/run.sh DESTINATION gpu)
  install(FILES tests/gpu/pytorch_check.py DESTINATION gpu)
endif()
install(DIRECTORY examples docs DESTINATION share/muster PATTERN CMakeLists.txt EXCLUDE)
install(FILES README.md DESTINATION share/muster)

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_FILE_NAME muster-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
include(CPack)
