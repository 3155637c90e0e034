// CUDASIM_TALLY: what the first thread of each grid executes, an instruction per line, in a file per device and process.
#pragma once

#ifdef CSIM_TALLY
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "../runtime/execution.h"

inline FILE* tally_file(int device) {
  static FILE* files[64];
  FILE*& file = files[device % 64];
  if (!file) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%d.%d", getenv("CUDASIM_TALLY"), getpid(), device);
    file = fopen(path, "a");
    if (!file) abort();
    setvbuf(file, nullptr, _IOLBF, 0);  // each kernel has a file of its own: lines come in order all the same
  }
  return file;
}

inline void tally(const cuda_sim::Thread* T, const char* instruction) {
  if ((T->tid.x | T->tid.y | T->tid.z | T->bid.x | T->bid.y | T->bid.z) == 0)
    fprintf(tally_file(T->device), "%s\n", instruction);
}
#define TALLY(instruction) tally(T, instruction)
#else
#define TALLY(instruction)
#endif
