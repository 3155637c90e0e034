// Files that claim to be hwloc's.
#include "topology/hwloc_xml.h"

#include "fuzz.h"
#include "topology/paths.h"

using namespace muster;
using namespace muster::fuzz;
using namespace muster::topology;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = Input(data, size).rest();
  succeeds_or_throws({Result::invalid_argument}, [&] {
    const Machine m = read_hwloc_xml(text, "input");
    validate(m);
    require(!m.all(Kind::numa).empty(), "there is a NUMA node");
    for (const int g : m.all(Kind::gpu))
      require(m.gpu(g).index >= 0 && m.numa_of(g) != kNone, "a GPU has a number and a place");
    for (const int p : m.all(Kind::port)) require(m[m.nic_of(p)].kind == Kind::nic, "a port is on a card");
    if (m.nodes.size() < 100)
      for (size_t i = 0; i < m.nodes.size(); ++i)
        require(paths_from(m, static_cast<int>(i)).size() == m.nodes.size(), "there is a path to each");
  });
  return 0;
}
