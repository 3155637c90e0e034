// The matrices of bandwidth in an hwloc file: which objects have links of a kind to which others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/xml.h"

namespace muster::topology {

struct HwlocMatrix {
  std::string name;  // "NVLinkBandwidth", "XGMIBandwidth", "NUMALatency", ...
  pugi::xml_node element;
  std::vector<std::string> types;  // of each object: "OSDev", "PCIDev", "Package", ...
  std::vector<int64_t> objects;    // their gp_index, or os_index where `by_os_index`
  bool by_os_index = false;
  std::vector<uint64_t> values;  // a row for each object; MB/s where the name says bandwidth

  uint64_t at(size_t row, size_t column) const { return values[row * objects.size() + column]; }
};

// <distances2> and <distances2hetero>; version 1 has no bandwidths. Throws invalid_argument where numbers are
// missing or left over.
std::vector<HwlocMatrix> read_hwloc_matrices(const XmlDocument& document);

}  // namespace muster::topology
