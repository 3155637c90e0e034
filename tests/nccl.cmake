# Tests of the C interface: in one program with the library's inside, as files that stand alone, and as programs.
foreach(name nccl_abi_test nccl_api_test nccl_life_test nccl_objects_test nccl_selection_test nccl_window_test)
  if(TARGET ${name})
    target_link_libraries(${name} PRIVATE nccl_names)
  endif()
endforeach()

add_subdirectory(${PROJECT_SOURCE_DIR}/examples ${PROJECT_BINARY_DIR}/examples)

# Programs in C11 that are no part of the tree, as it were.
set(folder ${CMAKE_CURRENT_SOURCE_DIR}/nccl_programs)
set(c_flags -std=c11 -Wall -Wextra $<$<BOOL:${MUSTER_WERROR}>:-Werror>)
foreach(name every_function load_unload)  # not linked with the library: it is preloaded, or loaded while they run
  add_executable(nccl_${name} ${folder}/${name}.c)
  target_compile_options(nccl_${name} PRIVATE ${c_flags})
  target_include_directories(nccl_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(nccl_${name} PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(nccl_${name} nccl)
endforeach()
add_library(nccl_interpose SHARED ${folder}/interpose.c)
target_compile_options(nccl_interpose PRIVATE ${c_flags})
target_link_libraries(nccl_interpose PRIVATE nccl)

find_package(Python3 COMPONENTS Interpreter)
add_test(NAME nccl.exports COMMAND ${folder}/exports.sh $<TARGET_FILE:nccl> ${PROJECT_SOURCE_DIR}/cmake/nccl.map ${PROJECT_SOURCE_DIR}/include/nccl.h
                                   $<TARGET_FILE:muster> ${PROJECT_SOURCE_DIR}/include/muster.h)
add_test(NAME nccl.vendor_abi COMMAND ${folder}/vendor_abi.sh ${PROJECT_SOURCE_DIR}/include $<TARGET_FILE:nccl> ${folder}/abi_dump.cpp)
add_test(NAME nccl.framework_names COMMAND ${folder}/framework_names.sh $<TARGET_FILE:nccl>)
set_tests_properties(nccl.exports nccl.vendor_abi nccl.framework_names PROPERTIES LABELS package TIMEOUT 120 ENVIRONMENT "CXX=${CMAKE_CXX_COMPILER}")
set_tests_properties(nccl.vendor_abi PROPERTIES SKIP_RETURN_CODE 77)
# A sanitizer's runtime must be loaded before all else, and looks at what a program leaves in its own way.
if(NOT MUSTER_SANITIZE)
  add_test(NAME nccl.interpose COMMAND ${folder}/interpose.sh $<TARGET_FILE:nccl_interpose> $<TARGET_FILE:example_one_process>)
  add_test(NAME nccl.load_unload COMMAND nccl_load_unload $<TARGET_FILE:nccl>)
  set_tests_properties(nccl.interpose nccl.load_unload PROPERTIES LABELS package TIMEOUT 120)
  if(Python3_FOUND)
    add_test(NAME nccl.table COMMAND Python3::Interpreter ${folder}/check_table.py ${PROJECT_SOURCE_DIR}/cmake/nccl.map
                                     ${PROJECT_SOURCE_DIR}/docs/nccl-compatibility.md $<TARGET_FILE:nccl_every_function> $<TARGET_FILE:nccl>)
    set_tests_properties(nccl.table PROPERTIES LABELS package TIMEOUT 120)
  endif()
endif()
