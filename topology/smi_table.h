// The table that `nvidia-smi topo -m` prints, as text and as what it says; smi_matrix.h makes machines of it.
//
//           GPU0   GPU1   NIC0   CPU Affinity   NUMA Affinity   GPU NUMA ID
//   GPU0     X     NV4    PIX    0-15           0               N/A
//   GPU1    NV4     X     SYS    16-31          1               N/A
//   NIC0    PIX    SYS     X
//   ...
//   NIC Legend:
//     NIC0: mlx5_0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/finding.h"
#include "topology/machine.h"
#include "topology/paths.h"

namespace muster::topology {

// More is refused with the number and the limit. The largest real table known has 16 GPUs and 10 NICs; one of
// a cluster's job, pasted with its log, some hundred kilobytes.
constexpr size_t kMostSmiBytes = 4 << 20;
constexpr int kMostSmiDevices = 256;

// "GPU12" -> 12 with the prefix "GPU".
std::optional<int> numbered(std::string_view text, std::string_view prefix);

// How two devices reach each other: loc (itself), nvl, pix, pxb, phb, node or sys; dis where the table
// doesn't say.
struct SmiCell {
  PathClass path_class = PathClass::dis;
  int nvlinks = 0;           // of nvl
  int line = 0, column = 0;  // where it stands; 0: nowhere

  bool known() const { return path_class != PathClass::dis; }
  bool same(const SmiCell& o) const { return path_class == o.path_class && nvlinks == o.nvlinks; }
  std::string text() const;                     // "X", "NV4", "PIX"; empty where it isn't known
  static SmiCell parse(std::string_view text);  // not known for anything else
};

struct SmiDevice {
  std::string label;  // "GPU0", "NIC0"; in older tables a NIC's own name
  bool gpu = false;
  int index = kNone;  // of a GPU, as in its label
  std::string name;   // of a NIC's device: "mlx5_0"; its label where the table doesn't say
  int line = 0;       // of its row; 0: there is none
  int node = kNone;   // in the machine that the table was made of
  // Of GPUs; empty or kNone where the table doesn't say.
  std::vector<int> cpus;    // near to it
  std::vector<int> numas;   // near to it, by the system's numbers
  int memory_numa = kNone;  // Gpu::memory_numa
};

struct SmiTable {
  std::string name;                // of the file, for messages
  std::vector<SmiDevice> devices;  // GPUs, then NICs
  std::vector<SmiCell> cells;      // by rows
  std::vector<Finding> findings;   // of what was missing or couldn't be read

  void found(Finding f);  // the first of each kind; a table that is all wrong needs no thousand

  size_t size() const { return devices.size(); }
  SmiCell& cell(size_t row, size_t column) { return cells[row * size() + column]; }
  const SmiCell& cell(size_t row, size_t column) const { return cells[row * size() + column]; }
};

// Takes tables as people paste them: between other output, with terminal colours, with tabs or blanks, with
// lines wrapped by a terminal, without rows, columns or legend. Of several the first is read. Throws
// invalid_argument where there is none, naming what is there instead (`nvidia-smi topo -p2p`, rocm-smi).
SmiTable parse_smi_table(std::string_view text, const std::string& name);

// As nvidia-smi prints it, with tabs.
std::string print_smi_table(const SmiTable& table);

}  // namespace muster::topology
