// The command line of the *_perf programs: one argument a line.
#include <cmath>
#include <vector>

#include "base/size_text.h"
#include "fuzz.h"
#include "perf/args.h"
#include "perf/format.h"

using namespace muster::fuzz;
using namespace muster::perf;

namespace {

void try_size(const std::string& text) {
  const std::optional<uint64_t> bytes = muster::parse_size(text);
  if (!bytes) return;
  require(*bytes < uint64_t{1} << 63, "a size is below 2^63");
  require(text.find_first_not_of("0123456789.eE+-kmgtKMGT") == text.npos, "a size is a number and a unit");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> arguments = {"all_reduce_perf"};
  for (Input in(data, size); !in.empty();) {
    arguments.emplace_back(std::string(in.line()).c_str());
    try_size(arguments.back());
  }
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  const Parsed p = parse_args(static_cast<int>(arguments.size()), argv.data(), true, true);
  if (!p.run) return 0;
  const Args& a = p.args;
  require(a.threads >= 1 && a.ranks_per_thread >= 1 && a.aggregated >= 1, "there is something to run");
  require(a.iterations >= 0 && a.warmup >= 0 && a.cycles >= 0 && a.checks >= 0, "counts aren't negative");
  require(a.root >= -1 && a.timeout_seconds >= 0, "root and timeout are possible");
  require(!a.types.empty() && !a.ops.empty(), "there are types and operations");
  require(a.min_bytes <= a.max_bytes, "sizes are in order");
  for (size_t bytes = a.min_bytes, steps = 0; bytes < a.max_bytes && steps < 100; ++steps) {
    const size_t next = next_size(bytes, a.step_bytes, a.step_factor);
    require(next > bytes, "a sweep gets on");
    bytes = next;
  }
  return 0;
}
