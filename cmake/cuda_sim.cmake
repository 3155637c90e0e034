# Tests on the simulated CUDA runtime of tests/cuda_sim.

# Why it isn't there; empty: it is.
set(CUDA_SIM_MISSING "")
if(NOT MUSTER_HAVE_CUDA OR NOT CUDAToolkit_NVCC_EXECUTABLE)
  set(CUDA_SIM_MISSING "nvcc, of the CUDA toolkit, was not found or is not wanted (MUSTER_WITH_CUDA)")
elseif(NOT CUDA_cudart_LIBRARY OR NOT CUDA_cuda_driver_LIBRARY)
  set(CUDA_SIM_MISSING "the CUDA toolkit lacks libcudart.so or the stub of libcuda.so, whose names the simulator answers to")
elseif(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(CUDA_SIM_MISSING "the simulated CUDA runtime runs on x86-64 only")
elseif(MUSTER_SANITIZE)
  set(CUDA_SIM_MISSING "the simulated CUDA runtime isn't built with sanitizers; its own checkers run in the other builds")
elseif(NOT Python3_FOUND)
  set(CUDA_SIM_MISSING "python3 was not found")
endif()

# cuda_sim_test(NAME source... [LIBRARIES library...] [INCLUDES folder...] [DEFINITIONS NAME=value...]
#               [ENVIRONMENT NAME=value...] [VARIANTS variant...] [FILTER pattern])
#
# A GoogleTest executable of .cu and .cpp files, in which CUDA's calls reach the simulated runtime. ctest runs its tests one by
# one (plain), and the whole of it once more with the memory checker (NAME_checked) and with the race checker (NAME_raced), whose
# reports fail it. VARIANTS chooses among plain, checked, raced, and shuffled: threads in random order, 16-byte accesses torn.
# FILTER: the tests that variants other than plain run, as GoogleTest's --gtest_filter has it; all of them if it isn't given.
# Where there is no simulator, NAME is a skipped test.
function(cuda_sim_test name)
  cmake_parse_arguments(arg "" "FILTER" "LIBRARIES;INCLUDES;DEFINITIONS;ENVIRONMENT;VARIANTS" ${ARGN})
  foreach(variant ${arg_VARIANTS})
    if(NOT variant MATCHES "^(plain|checked|raced|shuffled)$")
      message(FATAL_ERROR "cuda_sim_test(${name}): VARIANTS '${variant}': plain, checked, raced or shuffled is wanted")
    endif()
  endforeach()
  if(NOT CUDA_SIM_MISSING STREQUAL "")
    add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${CUDA_SIM_MISSING}")
    set_tests_properties(${name} PROPERTIES LABELS cuda_sim SKIP_REGULAR_EXPRESSION "skipped: ")
    return()
  endif()
  if(NOT arg_VARIANTS)
    set(arg_VARIANTS plain checked raced)
  endif()
  set(whole ${name} --gtest_brief=1)
  if(arg_FILTER)
    list(APPEND whole "--gtest_filter=${arg_FILTER}")
  endif()
  set(sources "")
  set(options ${arg_DEFINITIONS})
  list(TRANSFORM options PREPEND -D)
  foreach(source ${arg_UNPARSED_ARGUMENTS})
    if(source MATCHES "\\.cu$")
      cuda_object(object ${source} INCLUDES ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}
                  ${PROJECT_SOURCE_DIR}/include ${arg_INCLUDES} OPTIONS ${options})
      list(APPEND sources ${object})
    else()
      list(APPEND sources ${source})
    endif()
  endforeach()
  add_executable(${name} ${sources})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX ENABLE_EXPORTS ON)
  target_include_directories(${name} PRIVATE ${arg_INCLUDES})
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  target_include_directories(${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(${name} PRIVATE muster_test_support ${arg_LIBRARIES} cuda_sim_plain_cudart)
  target_link_options(${name} PRIVATE LINKER:--enable-new-dtags)  # LD_LIBRARY_PATH may name another variant
  add_dependencies(${name} cuda_sim_plain_cuda cuda_sim_raced_cuda)

  set(limits TIMEOUT 300 LABELS cuda_sim)
  if("plain" IN_LIST arg_VARIANTS)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX "${name}." TEST_LIST ${name}_PLAIN
                         PROPERTIES ${limits})
    # Of a list given as PROPERTIES only the first variable would be set.
    set(environment_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_environment.cmake)
    file(WRITE ${environment_file}
         "if(${name}_PLAIN)\n"
         "  set_tests_properties(\${${name}_PLAIN} PROPERTIES ENVIRONMENT\n"
         "    [==[${arg_ENVIRONMENT};LD_LIBRARY_PATH=${CUDA_SIM_FOLDER}/plain]==])\n"
         "endif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${environment_file})
  endif()
  if("checked" IN_LIST arg_VARIANTS)
    add_test(NAME ${name}_checked COMMAND ${whole})
    set_tests_properties(${name}_checked PROPERTIES ${limits}
                         ENVIRONMENT "${arg_ENVIRONMENT};CUDASIM_CHECK=1;LD_LIBRARY_PATH=${CUDA_SIM_FOLDER}/plain")
  endif()
  if("raced" IN_LIST arg_VARIANTS)
    add_test(NAME ${name}_raced COMMAND ${whole})
    set_tests_properties(${name}_raced PROPERTIES ${limits}
                         ENVIRONMENT "${arg_ENVIRONMENT};LD_LIBRARY_PATH=${CUDA_SIM_FOLDER}/raced;LD_PRELOAD=libtsan.so.2")
  endif()
  if("shuffled" IN_LIST arg_VARIANTS)
    add_test(NAME ${name}_shuffled COMMAND ${whole})
    set_tests_properties(${name}_shuffled PROPERTIES ${limits}
                         ENVIRONMENT "${arg_ENVIRONMENT};CUDASIM_SEED=1;CUDASIM_SPLIT=1;LD_LIBRARY_PATH=${CUDA_SIM_FOLDER}/plain")
  endif()
endfunction()
