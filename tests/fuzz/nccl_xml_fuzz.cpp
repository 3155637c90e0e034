// NCCL's topology files: what was read can be written, and means the same when it is read again.
#include "topology/nccl_xml.h"

#include "fuzz.h"
#include "topology/compare.h"

using namespace muster;
using namespace muster::fuzz;
using namespace muster::topology;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Cluster c;
  if (!succeeds_or_throws({Result::invalid_argument}, [&] { c = read_nccl_xml(Input(data, size).rest(), "input"); }))
    return 0;
  require(c.host_count() > 0, "a topology has hosts");
  for (const auto& m : c.shapes) {
    validate(*m);
    bool ambiguous = false;  // what has one number or address can't be told apart
    for (const Finding& f : m->findings) {
      require(!f.id.empty() && !f.text.empty() && f.where.starts_with("input:"), "a finding says what and where");
      ambiguous = ambiguous || f.id.starts_with("duplicate-") || f.id == "gpus-of-one-device";
    }
    std::string text;
    // What is too large for NCCL isn't written.
    if (!succeeds_or_throws({Result::invalid_argument}, [&] { text = write_nccl_xml(*m); })) continue;
    const Cluster again = read_nccl_xml(text, "again");
    require(again.host_count() == 1, "a machine is written as one host");
    std::string difference;
    if (!ambiguous && !same_meaning(*m, again.machine_of(0), &difference)) {
      std::fputs((difference + text).c_str(), stderr);
      require(false, "what was written means the same");
    }
  }
  return 0;
}
