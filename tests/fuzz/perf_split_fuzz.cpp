// NCCL_TESTS_SPLIT and its mask. The input is a line for each.
#include "fuzz.h"
#include "perf/split.h"

using namespace muster;
using namespace muster::fuzz;
using namespace muster::perf;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  const std::string split(in.line()), mask(in.line());
  int first = 0;
  const bool good =
      succeeds_or_throws({Result::invalid_usage}, [&] { first = split_color(0, split.c_str(), mask.c_str()); });
  for (const int process : {1, 5, 1 << 20}) {
    int color = -1;
    const bool same = succeeds_or_throws({Result::invalid_usage},
                                         [&] { color = split_color(process, split.c_str(), mask.c_str()); });
    require(same == good, "whether it can be read is the same for all processes");
    require(!good || (first >= 0 && color >= 0), "a colour isn't negative");
    require(!good || !split.empty() || !mask.empty() || color == first, "without either all are in one job");
  }
  return 0;
}
