// What the C interface costs: nccl_overhead c|cpp CALLS makes so many all-reduces of 8 bytes, by ncclAllReduce or by
// Communicator::all_reduce, on one rank, so without any wire. bench/nccl_overhead.sh counts their instructions.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "muster/muster.h"
#include "nccl.h"

namespace {

void check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "%s\n", ncclGetLastError(nullptr));
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "Usage: nccl_overhead c|cpp CALLS\n");
    return 2;
  }
  const long calls = std::atol(argv[2]);
  double in = 1, out = 0;
  // Both are made in both runs, so that the runs differ in the calls only.
  ncclComm_t c = nullptr;
  check(ncclCommInitAll(&c, 1, nullptr));
  muster::Communicator cpp = std::move(muster::Communicator::init_all(1)[0]);
  const bool by_c = std::string_view(argv[1]) == "c";
  for (long i = 0; i < calls; ++i) {
    if (by_c)
      check(ncclAllReduce(&in, &out, 1, ncclDouble, ncclSum, c, nullptr));
    else
      cpp.all_reduce(&in, &out, 1, muster::DataType::float64, muster::RedOp::sum);
  }
  check(ncclCommDestroy(c));
  cpp.destroy();
  return out == 1 || calls == 0 ? 0 : 1;
}
