// Something a person should know about a machine, with the remedy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muster::topology {

enum class Severity : uint8_t { note, warning, error };
std::string_view name_of(Severity s);

struct Finding {
  Severity severity = Severity::note;
  std::string id;      // of its kind, as docs/topology.md lists it: "slow-pci-link"
  std::string where;   // "GPU3", "0000:17:00.0", "line 7, column 12"
  std::string text;    // what is so, with numbers
  std::string remedy;  // what to do; empty where nothing is to be done
};

}  // namespace muster::topology
