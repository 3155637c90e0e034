# What `cmake --install` puts where: headers, libmuster.so, libnccl.so.2, a CMake package and pkg-config files. (The programs are
# installed where they are built.) The result can be moved: nothing in it names the prefix.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Muster)
install(TARGETS muster nccl EXPORT MusterTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET nccl_static)
  install(TARGETS nccl_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT MusterTargets NAMESPACE Muster:: DESTINATION ${package_dir})

configure_package_config_file(cmake/MusterConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/MusterConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/MusterConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/MusterConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/MusterConfigVersion.cmake DESTINATION ${package_dir})

file(RELATIVE_PATH MUSTER_PC_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
foreach(name muster nccl)
  configure_file(cmake/${name}.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
