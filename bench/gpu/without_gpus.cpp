// Programs of a build that has no GPU memory.
#include "perf/gpus.h"

namespace muster::perf {

std::unique_ptr<Gpus> find_gpus(std::string& why) {
  why = "this build has host memory only (configure it with -DMUSTER_GPU=static)";
  return nullptr;
}

}  // namespace muster::perf
