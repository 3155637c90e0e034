#include "topology/detect_hwloc.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace muster::topology {

void add_hwloc_cpus(CpuSide& cpus, const CpuSide& hwloc, std::vector<Finding>& findings) {
  const auto differs = [&](std::string_view what, size_t a, size_t b) {
    findings.push_back(
        {Severity::warning, "hwloc-disagrees", "",
         fmt::format("/sys shows {} {}, and hwloc finds {}", a, what, b),
         "One of them is misled, often by a virtual machine or container: compare lscpu and lstopo"});
  };
  if (cpus.packages == 0) cpus.packages = hwloc.packages;
  if (cpus.made_up && !hwloc.numas.empty()) {
    for (const Numa& n : hwloc.numas) {
      Numa copy = cpus.numas[0];
      copy.os_index = n.os_index;
      copy.package = n.package;
      copy.cpus = n.cpus;
      copy.memory_bytes = n.memory_bytes;
      cpus.numas.push_back(std::move(copy));
    }
    cpus.numas.erase(cpus.numas.begin());
    cpus.made_up = false;
  }
  if (cpus.packages != hwloc.packages)
    differs("packages", static_cast<size_t>(cpus.packages), static_cast<size_t>(hwloc.packages));
  if (cpus.cpus != 0 && cpus.cpus != hwloc.cpus)
    differs("CPUs", static_cast<size_t>(cpus.cpus), static_cast<size_t>(hwloc.cpus));
  if (cpus.numas.size() != hwloc.numas.size() && cpus.merged.empty())
    differs("NUMA nodes", cpus.numas.size(), hwloc.numas.size());
}

namespace {

constexpr uint32_t kHwlocDomains =
    0x10000;  // most builds leave out what is in a larger one (of Hyper-V, Intel's VMD)

// What is found of several functions is told once, with the first of them.
class Tally {
 public:
  Tally(Severity severity, const char* id, const char* remedy) : finding_{severity, id, "", "", remedy} {}
  void add(const PciAddress& where, std::string text) {
    if (count_++ > 0) return;
    finding_.where = where.text();
    finding_.text = std::move(text);
  }
  void tell(std::vector<Finding>& findings) {
    if (count_ == 0) return;
    if (count_ > 1) finding_.text += fmt::format(" (and {} more like it)", count_ - 1);
    findings.push_back(std::move(finding_));
  }

 private:
  Finding finding_;
  int count_ = 0;
};

bool matters(const SystemFunction& s) {
  const PciRole role = s.function.role;
  return role == PciRole::gpu || role == PciRole::nic || role == PciRole::nvswitch;
}

double rate(const Pci& pci) {
  return pci.gigatransfers > 0 && pci.lanes > 0 ? pcie_rate(pci.gigatransfers, pci.lanes).gb_per_s : 0;
}

// Functions by address, and the bridge above each by address, so that lists can be joined.
class FunctionTree {
 public:
  using Above = std::optional<PciAddress>;
  struct Entry {
    SystemFunction s;
    Above above;
  };

  explicit FunctionTree(const std::vector<SystemFunction>& list) {
    for (const SystemFunction& s : list) {
      const int p = s.function.parent;
      by_address_.try_emplace(
          s.function.pci.address,
          Entry{s, p == kNone ? Above() : Above(list[static_cast<size_t>(p)].function.pci.address)});
    }
  }
  std::map<PciAddress, Entry>& entries() { return by_address_; }
  Entry* find(const Above& address) {
    const auto it = address ? by_address_.find(*address) : by_address_.end();
    return it == by_address_.end() ? nullptr : &it->second;
  }
  int numa_of(const Entry& e) {  // of the function at the root above
    const Entry* at = &e;
    while (const Entry* up = find(at->above)) at = up;
    return at->s.numa;
  }
  std::vector<SystemFunction> list() const {
    std::map<PciAddress, int> index;
    for (const auto& [address, e] : by_address_) index.emplace(address, static_cast<int>(index.size()));
    std::vector<SystemFunction> r;
    for (const auto& [address, e] : by_address_) {
      const auto above = e.above ? index.find(*e.above) : index.end();
      r.push_back(e.s);
      r.back().function.parent = above == index.end() ? kNone : above->second;
    }
    return r;
  }

 private:
  std::map<PciAddress, Entry> by_address_;
};

class HwlocComparison {
 public:
  HwlocComparison(const std::vector<SystemFunction>& ours, const std::vector<SystemFunction>& hwloc)
      : ours_(ours), hwloc_(hwloc), all_(ours) {}

  std::vector<SystemFunction> run(std::vector<Finding>& findings) {
    for (auto& [address, theirs] : hwloc_.entries()) {
      theirs.s.numa = hwloc_.numa_of(theirs);
      if (FunctionTree::Entry* known = all_.find(address)) {
        fill_in(*known, theirs);
      } else if (theirs.s.function.role != PciRole::other) {
        all_.entries().emplace(address, theirs);
        if (matters(theirs.s)) unseen_.add(address, "hwloc finds this device, and /sys doesn't show it");
      }
    }
    for (const auto& [address, e] : ours_.entries())
      if (matters(e.s) && address.domain < kHwlocDomains && !hwloc_.find(address))
        differs_.add(address, "/sys shows this device, and hwloc doesn't find it");
    unseen_.tell(findings);
    differs_.tell(findings);
    return all_.list();
  }

 private:
  void fill_in(FunctionTree::Entry& e, const FunctionTree::Entry& theirs) {
    Pci& pci = e.s.function.pci;
    const Pci& other = theirs.s.function.pci;
    if (pci.class_code == 0 && other.class_code != 0) {
      Pci copy = other;
      copy.gigatransfers = pci.gigatransfers;
      copy.lanes = pci.lanes;
      pci = copy;
      e.s.function.role = theirs.s.function.role;
    }
    const bool said = matters(e.s) || matters(theirs.s);
    if (said && other.class_code != 0 &&
        pci.class_code >> 8 != other.class_code >> 8)  // hwloc has no last byte
      differs_.add(pci.address, fmt::format("its class is {:04x} in /sys, and {:04x} by hwloc",
                                            pci.class_code >> 8, other.class_code >> 8));
    if (e.above != theirs.above) {
      if (leads_through_unseen(theirs) == e.above)
        e.above = theirs.above;
      else if (said)
        differs_.add(pci.address, fmt::format("it is {} in /sys, and {} by hwloc", place(e), place(theirs)));
    }
    // hwloc tells what links do now, which may be less than what they can.
    if (rate(pci) == 0 && rate(other) > 0) {
      pci.gigatransfers = other.gigatransfers;
      pci.lanes = other.lanes;
    } else if (said && rate(other) > 1.05 * rate(pci)) {
      differs_.add(pci.address, fmt::format("its link is {:g} GT/s x{} in /sys, and {:g} GT/s x{} by hwloc",
                                            pci.gigatransfers, pci.lanes, other.gigatransfers, other.lanes));
    }
    if (e.s.numa == kNone && e.s.near_cpus.empty()) e.s.numa = theirs.s.numa;
  }

  // The first bridge above by hwloc that /sys shows, too: if that is the one above in /sys, those between are
  // missing there.
  FunctionTree::Above leads_through_unseen(const FunctionTree::Entry& theirs) {
    FunctionTree::Above up = theirs.above;
    while (up && !ours_.find(up)) up = hwloc_.find(up)->above;
    return up;
  }

  static std::string place(const FunctionTree::Entry& e) {
    return e.above ? "behind " + e.above->text() : std::string("at the root");
  }

  FunctionTree ours_, hwloc_, all_;
  Tally unseen_{Severity::note, "pci-not-in-sysfs", "Give the container the host's /sys"};
  Tally differs_{
      Severity::warning, "hwloc-disagrees",
      "One of them is misled, often by a virtual machine or container: compare lspci -tv and lstopo"};
};

}  // namespace

void add_hwloc_functions(std::vector<SystemFunction>& functions, const std::vector<SystemFunction>& hwloc,
                         std::vector<Finding>& findings) {
  if (!hwloc.empty()) functions = HwlocComparison(functions, hwloc).run(findings);
}

}  // namespace muster::topology
