// What NCCL_DEBUG and its siblings say: any text sets up the log, and lines come out whole. A line of the input each.
#include <cstdlib>
#include <string>

#include "base/log_options.h"
#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_TIMESTAMP_LEVELS", "NCCL_DEBUG_TIMESTAMP_FORMAT"})
    setenv(name, std::string(in.line()).c_str(), 1);
  std::vector<OptionNote> notes;
  LogSettings settings = log_settings(Options::from_environment("/nonexistent"), notes);
  for (const OptionNote& n : notes) require(n.warning && n.text.size() < 600, "a note is a short warning");
  settings.file = "/dev/null";
  configure_log(settings);
  log_warn("{}", std::string(in.rest()));
  log_info(Topic::net, "{}", 1);
  return 0;
}
