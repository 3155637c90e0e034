#include "options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

extern "C" char** environ;

namespace cuda_sim {
namespace {

constexpr std::string_view kNames[] = {"BUDGET",    "CACHE",      "CC",
                                       "CHECK",     "CXXFLAGS",   "DEVICES",
                                       "FABRIC",    "FAIL_ALLOC", "FAIL_ALLOC_ABOVE",
                                       "HANG_SEC",  "MEM_MB",     "P2P",
                                       "P2P_FAULT", "SEED",       "SLICE",
                                       "SMS",       "SPLIT",      "STACK_KB",
                                       "STALL",     "STRICT",     "TALLY",
                                       "TRACE",     "VERBOSE",    "VMM",
                                       "WORKERS"};
constexpr std::string_view kPrefix = "CUDASIM_";

// When the library is loaded.
[[gnu::constructor]] void refuse_unknown_options() {
  for (char** variable = environ; variable && *variable; variable++) {
    std::string_view name(*variable, strcspn(*variable, "="));
    if (!name.starts_with(kPrefix)) continue;
    if (std::find(std::begin(kNames), std::end(kNames), name.substr(kPrefix.size())) != std::end(kNames))
      continue;
    fprintf(stderr, "cuda_sim: %.*s is none of the options, which docs/cuda_sim.md lists\n",
            static_cast<int>(name.size()), name.data());
    abort();
  }
}

}  // namespace

std::string text_option(const char* name, const std::string& otherwise) {
  const char* text = getenv(name);
  return text && *text ? text : otherwise;
}

long option(const char* name, long otherwise) {
  std::string text = text_option(name);
  if (text.empty()) return otherwise;
  char* end;
  long value = strtol(text.c_str(), &end, 0);
  if (*end == '\0') return value;
  fprintf(stderr, "cuda_sim: %s='%s': a number is wanted\n", name, text.c_str());
  abort();
}

}  // namespace cuda_sim
