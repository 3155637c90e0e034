// Tables of nvidia-smi topo -m.
#include "topology/smi_matrix.h"

#include <algorithm>

#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;
using namespace muster::topology;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = Input(data, size).rest();
  succeeds_or_throws({Result::invalid_argument}, [&] {
    const SmiTable table = parse_smi_table(text, "input");
    require(table.size() > 0 && table.cells.size() == table.size() * table.size(), "a table is square");
    if (table.size() > 24) return;  // more show nothing new, and their paths take long
    const Machine m = machine_of(table);
    validate(m);
    require(m.all(Kind::gpu).size() + m.all(Kind::port).size() == table.size(),
            "each device is in the machine");
    for (const Finding& f : m.findings)
      require(!f.id.empty() && !f.where.empty() && !f.text.empty(), "a finding says what and where");

    const SmiTable again = smi_table_of(m), written = parse_smi_table(print_smi_table(again), "written");
    require(written.size() == again.size(), "what is written has the same devices");
    for (size_t i = 0; i < again.cells.size(); ++i)
      require(written.cells[i].same(again.cells[i]), "and the same classes");
    for (size_t i = 0; i < again.size(); ++i)
      require(written.devices[i].cpus == again.devices[i].cpus &&
                  written.devices[i].numas == again.devices[i].numas,
              "and affinities");
    const bool contradicts = std::any_of(m.findings.begin(), m.findings.end(),
                                         [](const Finding& f) { return f.id == "smi-contradiction"; });
    if (contradicts) return;
    const auto place = [&](size_t i) {  // GPUs come by number
      size_t before = 0;
      for (size_t j = 0; j < table.size(); ++j) {
        const SmiDevice &a = table.devices[j], &b = table.devices[i];
        const bool earlier = a.gpu != b.gpu ? a.gpu : a.gpu && a.index != b.index ? a.index < b.index : j < i;
        before += earlier;
      }
      return before;
    };
    for (size_t i = 0; i < table.size(); ++i)
      for (size_t j = 0; j < table.size(); ++j)
        if (table.cell(i, j).known())
          require(table.cell(i, j).same(again.cell(place(i), place(j))),
                  "a table without contradictions is met");
  });
  return 0;
}
