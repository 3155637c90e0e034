#include "topology/smi_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace muster::topology {
namespace {

std::string print_list(const std::vector<int>& sorted) {
  std::string r;
  for (size_t i = 0; i < sorted.size();) {
    size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    r += fmt::format("{}{}", r.empty() ? "" : ",", sorted[i]);
    if (end - i > 1) r += fmt::format("-{}", sorted[end - 1]);
    i = end;
  }
  return r.empty() ? "N/A" : r;
}

}  // namespace

std::optional<int> numbered(std::string_view text, std::string_view prefix) {
  int n = 0;
  if (!text.starts_with(prefix) || text.size() > prefix.size() + 5) return std::nullopt;
  const std::string_view digits = text.substr(prefix.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (error != std::errc() || end != digits.data() + digits.size() || n < 0 || digits[0] == '-')
    return std::nullopt;
  return n;
}

std::string SmiCell::text() const {
  switch (path_class) {
    case PathClass::loc:
      return "X";
    case PathClass::nvl:
      return fmt::format("NV{}", nvlinks);
    case PathClass::dis:
      return "";
    default:
      return std::string(name_of(path_class));
  }
}

SmiCell SmiCell::parse(std::string_view text) {
  SmiCell c;
  if (text == "X") c.path_class = PathClass::loc;
  if (const auto n = numbered(text, "NV"); n && *n > 0 && *n < 1000)
    c.path_class = PathClass::nvl, c.nvlinks = *n;
  if (const auto p = parse_path_class(text);
      p && *p >= PathClass::pix && *p <= PathClass::sys && *p != PathClass::p2c && *p != PathClass::pxn)
    c.path_class = *p;
  return c;
}

void SmiTable::found(Finding f) {
  constexpr std::ptrdiff_t kMostAlike = 20;
  const auto alike =
      std::count_if(findings.begin(), findings.end(), [&](const Finding& o) { return o.id == f.id; });
  if (alike == kMostAlike) f.where = "the table", f.text = "there is more of this kind", f.remedy.clear();
  if (alike <= kMostAlike) findings.push_back(std::move(f));
}

std::string print_smi_table(const SmiTable& t) {
  std::string r;
  for (const SmiDevice& d : t.devices) r += fmt::format("\t{}", d.label);
  r += "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";
  for (size_t i = 0; i < t.size(); ++i) {
    const SmiDevice& d = t.devices[i];
    r += d.label;
    for (size_t j = 0; j < t.size(); ++j) r += i == j ? "\t X " : "\t" + t.cell(i, j).text();
    if (d.gpu)
      r += fmt::format("\t{}\t{}\t\t{}", print_list(d.cpus), print_list(d.numas),
                       d.memory_numa == kNone ? "N/A" : fmt::to_string(d.memory_numa));
    r += "\n";
  }
  r += "\nLegend:\n\n  X    = Self\n";
  for (const PathClass c : {PathClass::sys, PathClass::node, PathClass::phb, PathClass::pxb, PathClass::pix})
    r += fmt::format("  {:<4} = {}\n", name_of(c), explanation_of(c));
  r += "  NV#  = # NVLinks (AMD: xGMI)\n";
  if (std::any_of(t.devices.begin(), t.devices.end(), [](const SmiDevice& d) { return !d.gpu; })) {
    r += "\nNIC Legend:\n\n";
    for (const SmiDevice& d : t.devices)
      if (!d.gpu) r += fmt::format("  {}: {}\n", d.label, d.name);
  }
  return r;
}

}  // namespace muster::topology
