#include "speed_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "topology/examine.h"

namespace muster::tool {

using topology::Finding;

namespace {

// As docs/topology.md lists them.
constexpr std::array<std::string_view, 27> kInsideHosts = {"acs-enabled",
                                                           "degraded-pci-link",
                                                           "gpu-details-missing",
                                                           "gpu-hidden",
                                                           "gpus-across-cpus",
                                                           "implausible-pci-link",
                                                           "iommu-on",
                                                           "iommu-translates",
                                                           "missing-attribute",
                                                           "mixed-gpus",
                                                           "nvlink-assumed",
                                                           "nvlink-class-missing",
                                                           "nvlink-counts-disagree",
                                                           "nvlink-down",
                                                           "nvlink-one-sided",
                                                           "nvlink-target-missing",
                                                           "nvlink-to-itself",
                                                           "nvlink-unknown",
                                                           "slow-pci-link",
                                                           "smi-assumed",
                                                           "some-without-nvlink",
                                                           "uneven-nvlinks",
                                                           "unknown-gpu",
                                                           "unknown-pci-link",
                                                           "unreadable-link-speed",
                                                           "xgmi-links-shared",
                                                           "xgmi-links-unknown"};
constexpr std::array<std::string_view, 14> kAmongHosts = {
    "gpu-without-port",  "gpudirect-missing",    "gpudirect-unknown",   "implausible-port-speed",
    "mixed-port-speeds", "nic-across-cpus",      "nic-details-missing", "partial-nvlink-domain",
    "port-down",         "port-faster-than-pci", "port-speed-unknown",  "shared-port",
    "uneven-hosts",      "uneven-rails"};

template <class Words>
bool is_in(const Words& words, std::string_view id) {
  return std::find(words.begin(), words.end(), id) != words.end();
}

}  // namespace

std::vector<Finding> speed_findings(const topology::Cluster& cluster, int hosts) {
  std::vector<Finding> found = topology::all_findings(cluster);
  std::erase_if(found, [&](const Finding& f) {
    return !is_in(kInsideHosts, f.id) && !(hosts > 1 && is_in(kAmongHosts, f.id));
  });
  return found;
}

std::string findings_text(const std::vector<Finding>& findings, const std::string& file) {
  constexpr size_t kMost = 6;
  std::vector<const Finding*> kinds;
  std::map<std::string_view, size_t> count;
  for (const Finding& f : findings)
    if (count[f.id]++ == 0) kinds.push_back(&f);
  std::string text;
  for (size_t i = 0; i < std::min(kinds.size(), kMost); ++i) {
    const Finding& f = *kinds[i];
    const size_t more = count[f.id] - 1;
    text += fmt::format("{:<10} {}{}\n", topology::name_of(f.severity), f.text,
                        more ? fmt::format(" (and {} more of this kind)", more) : "");
  }
  if (kinds.size() > kMost) text += fmt::format("{:<10} ... and {} kinds more\n", "", kinds.size() - kMost);
  if (!kinds.empty())
    text +=
        fmt::format("{:<10} muster topo{}{} says more, with remedies\n", "", file.empty() ? "" : " ", file);
  return text;
}

}  // namespace muster::tool
