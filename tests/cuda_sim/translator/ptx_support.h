// What the C++ that ptx_to_cpp.py makes of PTX is written with.
#pragma once

#include <cstdio>

#include "ptx_arithmetic.h"
#include "ptx_memory.h"
#include "ptx_tally.h"

using Function = void (*)(char* result, char** arguments, Thread* T);  // of a .func

inline void unsupported(const char* what) {
  fprintf(stderr, "cuda_sim: PTX instruction %s is not translated\n", what);
  csim_trap();
}
