// The command line of the *_perf programs: nccl-tests' flags, and a few of Muster's own.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "perf/names.h"

namespace muster::perf {

// Exit statuses, as nccl-tests has them.
enum class Exit : int {
  success = 0,
  internal = 1,
  library = 3,  // a call of the library failed
  timeout = 4,
  not_implemented = 5,
  invalid_usage = 6,
  wrong_data = 7,  // or a bandwidth below 0.9 * NCCL_TESTS_MIN_BW
  bad_size = 255,
};

// either: GPU memory where this process finds a GPU, else alloc.
enum class Memory { either, gpu, alloc, malloc };
enum class Registration { none, local, windows };
enum class Average { rank0, mean, min, max };

struct Args {
  int threads = 1;
  int ranks_per_thread = 1;
  size_t min_bytes = size_t{32} << 20, max_bytes = size_t{32} << 20;
  size_t step_bytes = size_t{1} << 20, step_factor = 1;
  int iterations = 20, warmup = 1, aggregated = 1;
  int cycles = 1;  // 0 = for ever
  bool parallel_init = false;
  int checks = 1;  // verified runs per row; 0 = none
  std::vector<NamedOp> ops;
  std::vector<NamedType> types;
  int root = 0;  // -1 = each rank in turn
  int blocking =
      0;  // after every iteration 1, 3: complete and meet, which 3 leaves out of the time; 2: complete
  bool null_stream = false;
  int graph_launches = 0;  // 0 = calls are made directly, not from a graph
  std::optional<int> cta_policy;
  bool cta_count = false;  // -V was given
  double timeout_seconds = 0;
  bool cpu_time = false;
  bool timestamps = false;
  std::string json_path;
  Average average = Average::mean;
  bool memory_report = false;
  size_t unaligned = 0;  // elements
  bool per_iteration = false;
  int per_iteration_skip = 0;
  Memory memory = Memory::either;
  Registration registration = Registration::none;
  std::optional<size_t>
      rotate;  // bytes of a buffer that calls step through at least; none = past the last cache
  bool plan = false;
  bool roof = true;  // measure how fast memory is, and compare

  std::vector<std::string> notes;  // about flags that mean nothing here, for rank 0 to print
};

struct Parsed {
  Args args;
  bool run = true;  // otherwise: exit with
  Exit exit = Exit::success;
};

// Says which memory it is, once that is known (not `either`): flags that mean nothing on it are noted, and
// set back.
void set_memory(Args& args, Memory memory);

// Prints usage and mistakes to stdout and stderr. `reduces`, `rooted`: whether -o and -r mean something here.
Parsed parse_args(int argc, char** argv, bool reduces, bool rooted);

}  // namespace muster::perf
