// Topologies of any format, recognised by content, and all that is then said of them. Files that a cluster's
// description names aren't opened: they are what follows the first line "=== ".
#include <fmt/format.h>

#include "fuzz.h"
#include "topology/dot.h"
#include "topology/examine.h"
#include "topology/json.h"
#include "topology/read.h"
#include "topology/tree.h"

using namespace muster;
using namespace muster::fuzz;
using namespace muster::topology;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string_view other;
  if (const size_t seam = text.find("\n=== \n"); seam != text.npos) {
    other = text.substr(seam + 6);
    text = text.substr(0, seam + 1);
  }
  require(!seems_to_be(text).empty(), "every text seems to be something");
  Cluster c;
  const auto load = [&](const std::string&) { return std::string(other); };
  if (!succeeds_or_throws({Result::invalid_argument}, [&] { c = read_topology(text, "input", load); }))
    return 0;

  size_t devices = 0;
  for (const auto& m : c.shapes) {
    validate(*m);
    devices += m->nodes.size();
  }
  require(c.host_count() > 0, "a topology has hosts");
  const std::string json = write_json(c);
  require(write_json(read_json(json, "json")) == json, "JSON that was read again is the same");
  // What is quadratic in devices is left out where they are many.
  if (devices > 300) return 0;
  write_dot(c);
  for (const Finding& f : all_findings(c))
    require(!f.id.empty() && !f.text.empty(), "a finding says something");
  for (const auto& m : c.shapes) nearest_table(*m);
  require(tree(c).find('\033') == std::string::npos, "nothing that terminals obey");
  return 0;
}
