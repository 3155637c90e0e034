# Tests of the C interface: in one program with the library's inside, as files that stand alone, and as programs.
foreach(name nccl_abi_test nccl_api_test nccl_life_test nccl_objects_test)
  if(TARGET ${name})
    target_link_libraries(${name} PRIVATE nccl_names)
  endif()
endforeach()
