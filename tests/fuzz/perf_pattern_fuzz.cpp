// The matrix of alltoallv_perf. The input is lines for spread, scale and number of ranks, and the matrix's
// file.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "fuzz.h"
#include "perf/pattern.h"

using namespace muster;
using namespace muster::fuzz;
using namespace muster::perf;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  setenv("NCCL_TESTS_ALLTOALLV_SPREAD", std::string(in.line()).c_str(), 1);
  setenv("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE", std::string(in.line()).c_str(), 1);
  const int nranks = 1 + in.byte() % 8;
  in.line();
  const std::string matrix(in.rest());
  const int file = memfd_create("matrix", MFD_CLOEXEC);
  require(file >= 0 && write(file, matrix.data(), matrix.size()) == static_cast<ssize_t>(matrix.size()),
          "written");
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  setenv("NCCL_TESTS_ALLTOALLV_MATRIX_FILE", matrix.empty() ? "" : path.c_str(), 1);
  succeeds_or_throws({Result::invalid_usage}, [&] {
    const Pattern pattern = Pattern::from_environment();
    Args args;
    args.min_bytes = args.max_bytes = size_t{1} << 20;
    pattern.check(args, nranks);
    for (int rank = 0; rank < nranks; ++rank) {
      const Layout l = pattern.layout(args.max_bytes, 4, rank, nranks);
      __int128 sent = 0, received = 0;  // no sum overflows
      for (const size_t n : l.sends) sent += n;
      for (const size_t n : l.recvs) received += n;
      require(sent <= l.send && received <= l.recv, "messages fit their buffers");
      require(l.send * 4 <= args.max_bytes && l.recv * 4 <= args.max_bytes, "buffers are no larger than -e");
    }
  });
  close(file);
  return 0;
}
