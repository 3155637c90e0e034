# libnccl.so.2: NCCL's names over libmuster.so, which it finds beside itself; and, if asked for, libnccl_static.a with all of
# the library in it.
option(MUSTER_NCCL_STATIC "Make libnccl_static.a" OFF)
file(STRINGS include/nccl.h nccl_version_lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
string(REGEX MATCHALL "[0-9]+" NCCL_VERSION "${nccl_version_lines}")
list(JOIN NCCL_VERSION "." NCCL_VERSION)

# Once, for both and for tests.
add_library(nccl_names OBJECT src/nccl/libnccl.cpp)
target_include_directories(nccl_names PUBLIC include PRIVATE src)
target_link_libraries(nccl_names PRIVATE muster_flags)

add_library(nccl SHARED $<TARGET_OBJECTS:nccl_names>)
add_library(Muster::nccl ALIAS nccl)
target_link_libraries(nccl PUBLIC muster)
target_link_options(nccl PRIVATE LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/nccl.map)
set_target_properties(nccl PROPERTIES VERSION ${NCCL_VERSION} SOVERSION 2 LINKER_LANGUAGE CXX BUILD_RPATH $ORIGIN INSTALL_RPATH $ORIGIN
                      LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cmake/nccl.map)

if(MUSTER_NCCL_STATIC)
  add_library(nccl_static STATIC $<TARGET_OBJECTS:nccl_names> $<TARGET_OBJECTS:muster_static>)
endif()
