# CUDA sources are compiled by nvcc through plain commands: CMake's own CUDA language would have configuration fail, or test a
# compiler, where there is none.

set(MUSTER_CUDA_ARCHITECTURES all CACHE STRING "GPUs that libmuster.so has machine code for, e.g. 90;100; all: what nvcc knows from 75 on")

# muster_gpu_architectures(VARIABLE): MUSTER_CUDA_ARCHITECTURES as numbers. `all` leaves out chips that are soldered beside Arm
# cores where the library isn't built for Arm; what is missing runs the code of an older minor number of its generation.
function(muster_gpu_architectures variable)
  set(wanted ${MUSTER_CUDA_ARCHITECTURES})
  if(wanted STREQUAL "all")
    execute_process(COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} --list-gpu-code OUTPUT_VARIABLE known COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "[0-9]+" known "${known}")
    list(SORT known COMPARE NATURAL)
    set(wanted "")
    foreach(architecture ${known})
      if(architecture GREATER_EQUAL 75 AND (NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" OR NOT architecture MATCHES "^(87|88|101|110|121)$"))
        list(APPEND wanted ${architecture})
      endif()
    endforeach()
  endif()
  set(${variable} ${wanted} PARENT_SCOPE)
endfunction()

# cuda_object(VARIABLE source [MACHINE_CODE 75 90 ...] [OPTIONS option...] [INCLUDES folder...])
#
# An object of the source, whose path VARIABLE gets: machine code of the GPUs named and PTX of the last of them, which newer ones
# compile when they load it; without MACHINE_CODE PTX of the oldest that is supported, which is made in seconds and what the simulated
# runtime runs. What the source includes is tracked. Only where MUSTER_HAVE_CUDA.
function(cuda_object variable source)
  cmake_parse_arguments(arg "" "" "MACHINE_CODE;OPTIONS;INCLUDES" ${ARGN})
  cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE from)
  cmake_path(GET source FILENAME file)
  string(SHA1 path "${from}${ARGN}")
  string(SUBSTRING ${path} 0 8 path)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/cuda_objects/${file}.${path}.o)
  set(flags -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O2 -lineinfo -cudart shared -Xcompiler=-fPIC,-Wall,-Wextra)
  if(MUSTER_WERROR)
    list(APPEND flags -Werror all-warnings)
  endif()
  set(newest 75)
  foreach(architecture ${arg_MACHINE_CODE})
    list(APPEND flags -gencode arch=compute_${architecture},code=sm_${architecture})
    set(newest ${architecture})
  endforeach()
  list(APPEND flags -gencode arch=compute_${newest},code=compute_${newest})
  if(arg_MACHINE_CODE AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13)
    list(APPEND flags -compress-mode=size)  # half as large
  endif()
  list(TRANSFORM arg_INCLUDES PREPEND -I)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/cuda_objects
    COMMAND ${CCACHE} ${CUDAToolkit_NVCC_EXECUTABLE} ${flags} ${arg_INCLUDES} ${arg_OPTIONS} -MD -MF ${object}.d -c ${from} -o ${object}
    DEPENDS ${from} DEPFILE ${object}.d COMMENT "Building CUDA object ${file}" VERBATIM)
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${variable} ${object} PARENT_SCOPE)
endfunction()
