// Programs as JSON: what can be read is written and read again as the same, and the checker says yes or no.
#include "fuzz.h"
#include "program/checker.h"
#include "program/program_json.h"

using namespace muster;
using namespace muster::fuzz;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ProgramSet set;
  if (!succeeds_or_throws({Result::invalid_argument}, [&] { set = read_program_json(text, "input"); })) return 0;
  const std::string json = write_program_json(set);
  const ProgramSet again = read_program_json(json, "json");
  require(again.programs == set.programs && again.name == set.name && again.idea == set.idea, "JSON that was read again is the same");
  require(write_program_json(again) == json, "and so is what is written of it");
  size_t cells = 0;
  for (const Program& p : set.programs)
    for (const uint32_t n : p.buffer_chunks) cells += n;
  if (cells > 4096 || size > 100'000) return 0;  // what is large takes long to prove
  const CheckResult result = check(set.programs, {.in_place = set.in_place});
  require(result.ok == result.message.empty(), "who says no says why");
  return 0;
}
