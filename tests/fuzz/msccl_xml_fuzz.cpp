// MSCCL's algorithms: what can be read is programs that JSON can hold, and the checker says yes or no.
#include "fuzz.h"
#include "program/checker.h"
#include "program/msccl_xml.h"
#include "program/program_json.h"

using namespace muster;
using namespace muster::fuzz;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (size > 100'000) return 0;  // what is large takes long to prove
  ProgramSet set;
  if (!succeeds_or_throws({Result::invalid_argument}, [&] { set = read_msccl_xml(text, "input"); })) return 0;
  size_t cells = 0;
  for (const Program& p : set.programs)
    for (const uint32_t n : p.buffer_chunks) cells += n;
  if (cells > 4096) return 0;
  require(read_program_json(write_program_json(set), "json").programs == set.programs, "JSON holds all of it");
  const CheckResult result = check(set.programs);
  require(result.ok == result.message.empty(), "who says no says why");
  return 0;
}
