#include "topology/detect_cpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/text.h"
#include "topology/allowed_cpus.h"
#include "topology/cpu_set.h"

namespace muster::topology {
namespace {


// N of "cpuN", "nodeN" below the limit.
std::vector<int> numbered_in(const SystemFiles& system, std::string_view folder, std::string_view prefix,
                          int limit) {
  std::vector<int> r;
  for (const std::string& name : system.list(folder)) {
    if (!name.starts_with(prefix)) continue;
    int n = 0;
    const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), n);
    if (error == std::errc() && end == name.data() + name.size() && n >= 0 && n < limit) r.push_back(n);
  }
  std::sort(r.begin(), r.end());
  return r;
}

// "key : value" lines of /proc/cpuinfo, the first of each key.
std::map<std::string, std::string, std::less<>> read_cpuinfo(const std::string& text,
                                                             std::vector<int>* processors) {
  std::map<std::string, std::string, std::less<>> r;
  for (const std::string_view line : split(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const std::string key(trim(line.substr(0, colon))), value(trim(line.substr(colon + 1)));
    if (key == "processor")
      if (const auto n = parse_c_integer(value); n && *n >= 0 && *n < kMostCpus)
        processors->push_back(static_cast<int>(*n));
    r.try_emplace(key, value);
  }
  std::sort(processors->begin(), processors->end());
  processors->erase(std::unique(processors->begin(), processors->end()), processors->end());
  return r;
}

struct Processor {
  CpuArch arch = CpuArch::unknown;
  std::string vendor;
  int family = kNone, model = kNone;
};

Processor processor_of(const std::map<std::string, std::string, std::less<>>& cpuinfo) {
  Processor p;
  const auto value = [&](std::string_view key) {
    const auto it = cpuinfo.find(key);
    return it == cpuinfo.end() ? std::string() : it->second;
  };
  const auto number = [&](std::string_view key) {
    const auto n = parse_c_integer(value(key));
    return n && *n >= 0 && *n < 65536 ? static_cast<int>(*n) : kNone;
  };
  p.vendor = printable(value("vendor_id"), 60);
  if (!p.vendor.empty() && number("cpu family") != kNone) {
    p.arch = CpuArch::x86_64;
    p.family = number("cpu family");
    p.model = number("model");
  } else if (!value("CPU implementer").empty()) {
    p.arch = CpuArch::arm64;
  } else if (value("cpu").starts_with("POWER")) {
    p.arch = CpuArch::ppc64;
  }
  return p;
}

std::vector<int> online_cpus(const SystemFiles& system, const std::vector<int>& processors) {
  if (const auto text = system.text("/sys/devices/system/cpu/online"))
    if (auto list = parse_cpu_list(*text); list && !list->empty()) return *list;
  std::vector<int> r;
  for (const int c : numbered_in(system, "/sys/devices/system/cpu", "cpu", kMostCpus))
    if (system.integer(fmt::format("/sys/devices/system/cpu/cpu{}/online", c)).value_or(1) != 0)
      r.push_back(c);
  return r.empty() ? processors : r;
}

std::optional<uint64_t> memory_of(const SystemFiles& system, const std::string& folder) {
  const auto text = system.text(folder + "/meminfo");
  if (!text) return std::nullopt;
  for (const std::string_view line : split(*text, '\n')) {
    const size_t key = line.find("MemTotal:");
    if (key == line.npos) continue;
    std::string_view v = trim(line.substr(key + 9));
    v = v.substr(0, v.find(' '));
    uint64_t kib = 0;
    const auto [end, error] = std::from_chars(v.data(), v.data() + v.size(), kib);
    if (error == std::errc() && end == v.data() + v.size() && kib < uint64_t{1} << 44) return kib * 1024;
  }
  return std::nullopt;
}

std::vector<int> allowed_in(const SystemFiles& system) {
  if (system.is_this_machine()) return allowed_cpus();
  const std::string status = system.text("/proc/self/status").value_or("");
  for (const std::string_view line : split(status, '\n'))
    if (constexpr std::string_view key = "Cpus_allowed_list:"; line.starts_with(key))
      return parse_cpu_list(line.substr(key.size())).value_or(std::vector<int>());
  return {};
}

class CpuReader {
 public:
  explicit CpuReader(const SystemFiles& system) : system_(system) {}

  CpuSide read() {
    std::vector<int> processors;
    const std::string cpuinfo = system_.text("/proc/cpuinfo").value_or("");
    const Processor processor = processor_of(read_cpuinfo(cpuinfo, &processors));
    online_ = online_cpus(system_, processors);
    r_.cpus = static_cast<int>(online_.size());
    read_packages();
    read_nodes();
    flatten_crossing();
    add_cpus_without_node();
    for (Numa& n : r_.numas) set_package(n);
    tell_what_is_missing();
    const std::vector<int> allowed = allowed_in(system_);
    for (Numa& n : r_.numas) {
      n.arch = processor.arch;
      n.vendor = processor.vendor;
      n.family = processor.family;
      n.model = processor.model;
      if (!allowed.empty() && !n.cpus.empty()) n.allowed = intersect(n.cpus, allowed);
    }
    std::vector<int> usable;
    std::set_intersection(online_.begin(), online_.end(), allowed.begin(), allowed.end(),
                          std::back_inserter(usable));
    if (!usable.empty() && usable.size() < online_.size())
      r_.findings.push_back(
          {Severity::note, "cpuset", "",
           fmt::format("this process may use {} of {} CPUs: {}", usable.size(), online_.size(),
                       printable(fmt::format("{}", fmt::join(usable, ",")), 60)),
           "If that isn't meant, look at the job's CPU binding (cpuset, taskset, srun --cpu-bind)"});
    return std::move(r_);
  }

 private:
  void read_packages() {
    for (const int c : online_) {
      const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", c);
      auto id = system_.integer(folder + "physical_package_id");
      if (id && *id >= 0 && *id <= INT32_MAX) packages_[static_cast<int>(*id)].push_back(c);
    }
    r_.packages = static_cast<int>(packages_.size());
  }

  void read_nodes() {
    const std::string_view nodes = "/sys/devices/system/node";
    int empty = 0;
    for (const int n : numbered_in(system_, nodes, "node", static_cast<int>(kMostNumas))) {
      const std::string folder = fmt::format("{}/node{}", nodes, n);
      Numa numa;
      numa.os_index = n;
      auto cpus = parse_cpu_list(system_.text(folder + "/cpulist").value_or("?"));
      if (!cpus) cpus = parse_cpu_mask(system_.text(folder + "/cpumap").value_or("?"));
      if (!cpus) {
        // The links nodeN/cpuM say the same.
        cpus = numbered_in(system_, folder, "cpu", kMostCpus);
        if (cpus->empty())
          r_.findings.push_back({Severity::note, "numa-cpus-unknown", fmt::format("NUMA node {}", n),
                                 "the system doesn't tell which CPUs are near to it", ""});
        else if (system_.exists(folder + "/cpulist"))
          r_.findings.push_back({Severity::note, "numa-cpus-unknown", fmt::format("NUMA node {}", n),
                                 "its list of CPUs can't be read: taken from the links beside it", ""});
      }
      std::set_intersection(cpus->begin(), cpus->end(), online_.begin(), online_.end(),
                            std::back_inserter(numa.cpus));
      const auto memory = memory_of(system_, folder);
      numa.memory_bytes = memory.value_or(0);
      if (memory && *memory == 0) {
        if (numa.cpus.empty()) {
          ++empty;
          continue;
        }
        without_memory_.insert(n);
      }
      r_.numas.push_back(std::move(numa));
    }
    if (empty > 0)
      r_.findings.push_back({Severity::note, "numa-empty", "",
                             fmt::format("{} NUMA nodes have neither CPUs nor memory: left out", empty), ""});
    if (!r_.numas.empty()) return;
    r_.made_up = true;
    r_.numas.push_back({.os_index = 0, .cpus = online_});
    r_.findings.push_back({Severity::note, "numa-unknown", "",
                           "the system tells of no NUMA nodes: all CPUs are taken for one", ""});
  }

  // A CPU is in one package and near to one node. Virtual machines have been seen to say otherwise.
  void flatten_crossing() {
    std::set<size_t> crossing;
    for (size_t i = 0; i < r_.numas.size(); ++i)
      for (const auto& [id, cpus] : packages_) {
        const std::vector<int>& own = r_.numas[i].cpus;
        if (intersect(own, cpus) && !contains_all(cpus, own) && !contains_all(own, cpus)) crossing.insert(i);
      }
    for (size_t i = 0; i < r_.numas.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (intersect(r_.numas[i].cpus, r_.numas[j].cpus)) crossing.insert({i, j});
    if (crossing.size() < 2) return;
    Numa all = r_.numas[*crossing.begin()];
    std::string names;
    for (const size_t i : crossing) {
      const Numa& n = r_.numas[i];
      if (i != *crossing.begin()) {
        all.cpus.insert(all.cpus.end(), n.cpus.begin(), n.cpus.end());
        all.memory_bytes += n.memory_bytes;
        r_.merged[n.os_index] = all.os_index;
      }
      names += fmt::format("{}{}", names.empty() ? "" : ", ", n.os_index);
    }
    std::sort(all.cpus.begin(), all.cpus.end());
    all.cpus.erase(std::unique(all.cpus.begin(), all.cpus.end()), all.cpus.end());
    r_.findings.push_back(
        {Severity::warning, "numa-across-packages", "",
         fmt::format("NUMA nodes {} cut across packages or each other, which can't be true of a machine: taken for one",
                     names),
         "Virtual machines: give the guest a NUMA and socket layout that fit each other (QEMU: -smp "
         "sockets=, -numa)"});
    for (auto it = crossing.rbegin(); it != crossing.rend(); ++it)
      r_.numas.erase(r_.numas.begin() + static_cast<std::ptrdiff_t>(*it));
    r_.numas.insert(r_.numas.begin() + static_cast<std::ptrdiff_t>(*crossing.begin()), std::move(all));
  }

  void set_package(Numa& n) const {
    for (const auto& [id, cpus] : packages_)
      if (!n.cpus.empty() && contains_all(cpus, n.cpus)) n.package = id;
  }

  void tell_what_is_missing() {
    std::string bare, no_cpus;
    const auto list = [](std::string* to, int n) { *to += fmt::format("{}{}", to->empty() ? "" : ", ", n); };
    for (const Numa& n : r_.numas) {
      if (n.memory_bytes == 0 && without_memory_.contains(n.os_index)) list(&bare, n.os_index);
      if (n.cpus.empty() && n.memory_bytes > 0) list(&no_cpus, n.os_index);
    }
    if (!bare.empty())
      r_.findings.push_back(
          {Severity::note, "numa-without-memory", "",
           fmt::format(
               "NUMA nodes with CPUs but no memory: {}. What is allocated there comes from another node",
               printable(bare, 60)),
           "Put memory into each socket, or bind ranks to nodes that have some"});
    if (!no_cpus.empty())
      r_.findings.push_back(
          {Severity::note, "numa-without-cpus", "",
           fmt::format(
               "NUMA nodes with memory but no CPUs (a device's, or an expander's): {}. No rank is put there",
               printable(no_cpus, 60)),
           ""});
  }

  // A node may be offline while its CPUs are not.
  void add_cpus_without_node() {
    std::set<int> in_nodes;
    for (const Numa& n : r_.numas) in_nodes.insert(n.cpus.begin(), n.cpus.end());
    Numa rest;
    for (const int c : online_)
      if (!in_nodes.contains(c)) rest.cpus.push_back(c);
    if (rest.cpus.empty() || in_nodes.empty()) return;
    r_.findings.push_back(
        {Severity::note, "cpus-without-numa", "",
         fmt::format("{} CPUs are near to no NUMA node that is online: taken for one of their own",
                     rest.cpus.size()),
         ""});
    r_.numas.push_back(std::move(rest));
  }

  const SystemFiles& system_;
  CpuSide r_;
  std::vector<int> online_;
  std::map<int, std::vector<int>> packages_;
  std::set<int> without_memory_;
};

}  // namespace

CpuSide read_cpus(const SystemFiles& system) { return CpuReader(system).read(); }

}  // namespace muster::topology
