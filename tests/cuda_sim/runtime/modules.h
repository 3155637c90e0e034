// Modules: what nvcc-built objects register at their start.
#pragma once

#include "runtime.h"

namespace cuda_sim {

struct Module {
  const unsigned char* fat_binary = nullptr;
  std::map<const void*, std::string> variables;  // of the host -> names on the device
  struct Managed {
    void** host;
    std::string name;
  };
  std::vector<Managed> managed;
  // Guarded by the modules' mutex; made on first use:
  bool unusable = false;                         // it holds no PTX that can be used
  std::string ptx;                               // empty: not looked at yet
  std::string cache_path;                        // the same is there with the suffix .ptx
  const TranslatedModule* translated = nullptr;  // of any of its kernels
  std::map<int, char*> globals;                  // by device
};

// The PTX of a fat binary for the simulated devices: the newest that isn't newer than they. False: none, and
// says why.
bool extract_ptx(const unsigned char* fat_binary, std::string* ptx);

// A module's, kept. Null: as above.
const std::string* ptx_of(Module* m);

// What a kernel's PTX says of it.
struct PtxKernel {
  int max_threads = 1024;
  int registers = 32;  // what lets a multiprocessor be full, or as many as .maxntid and the like let a thread have
  uint32_t static_shared = 0;
};
// False: there is no kernel of that name.
bool describe(const std::string& ptx, const std::string& kernel, PtxKernel* found);

// Translates one kernel ("": only the variables), or finds it in the cache. Null: it can't be, and says why.
const TranslatedModule* translate(Module* m, const std::string& kernel);

}  // namespace cuda_sim
