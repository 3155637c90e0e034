#include "topology/merge.h"

#include <fmt/format.h>

#include <map>

namespace muster::topology {
namespace {

template <class T>
void fill(T* known, const T& seen, const T& unknown) {
  if (*known == unknown) *known = seen;
}

void fill(Pci* known, const Pci& seen) {
  fill(&known->class_code, seen.class_code, 0u);
  fill<uint16_t>(&known->vendor, seen.vendor, 0);
  fill<uint16_t>(&known->device, seen.device, 0);
  fill<uint16_t>(&known->subsystem_vendor, seen.subsystem_vendor, 0);
  fill<uint16_t>(&known->subsystem_device, seen.subsystem_device, 0);
  fill(&known->gigatransfers, seen.gigatransfers, 0.0);
  fill(&known->lanes, seen.lanes, 0);
}

void fill(Gpu* known, const Gpu& seen) {
  fill(&known->sm, seen.sm, 0);
  fill(&known->gcn, seen.gcn, 0);
  fill(&known->model, seen.model, {});
  fill(&known->uuid, seen.uuid, {});
  fill(&known->gpudirect, seen.gpudirect, Answer3::unknown);
  known->index = seen.index;  // the driver's number is that of today
}

void fill(Port* known, const Port& seen) {
  fill(&known->network, seen.network, Network::unknown);
  fill(&known->gbit_per_s, seen.gbit_per_s, 0.0);
  fill(&known->latency_us, seen.latency_us, 0.0);
  fill(&known->guid, seen.guid, {});
  fill(&known->interface, seen.interface, {});
  fill(&known->gpudirect, seen.gpudirect, Answer3::unknown);
  fill(&known->max_connections, seen.max_connections, 0);
  known->up = seen.up;
}

void fill(Numa* known, const Numa& seen) {
  fill(&known->package, seen.package, kNone);
  fill(&known->memory_bytes, seen.memory_bytes, uint64_t{0});
  fill(&known->arch, seen.arch, CpuArch::unknown);
  fill(&known->vendor, seen.vendor, {});
  fill(&known->family, seen.family, kNone);
  fill(&known->model, seen.model, kNone);
  fill(&known->cpus, seen.cpus, {});
  known->allowed = seen.allowed;
}

class Merger {
 public:
  Merger(Machine file, const Machine& seen, const std::string& name) : m_(std::move(file)), seen_(seen), name_(name) {}

  Machine run() {
    if (m_.name.empty()) m_.name = seen_.name;
    m_.findings.insert(m_.findings.end(), seen_.findings.begin(), seen_.findings.end());
    std::vector<bool> present(m_.nodes.size());
    const int in_file = static_cast<int>(m_.nodes.size());
    for (int i = 0; i < static_cast<int>(seen_.nodes.size()); ++i) {
      const int same = counterpart(seen_[i]);
      if (same != kNone && same < in_file) present[static_cast<size_t>(same)] = true;
      place_[i] = same == kNone ? take_over(i) : fill_in(same, seen_[i]);
    }
    for (int i = 0; i < in_file; ++i)
      if (!present[static_cast<size_t>(i)] && m_[i].kind == Kind::gpu)
        note(Severity::warning, "device-not-present", m_[i].name, fmt::format("{} describes it, and this host doesn't have it", name_),
             "Check the file's PCI addresses against lspci -D");
    join();
    complete(m_);
    return std::move(m_);
  }

 private:
  int counterpart(const Node& n) const {
    if (n.kind == Kind::numa) {
      for (const int i : m_.all(Kind::numa))
        if (m_.numa(i).os_index == std::get<Numa>(n.detail).os_index) return i;
      return kNone;
    }
    if (n.kind == Kind::nvswitch) {
      const std::vector<int> all = m_.all(Kind::nvswitch);
      return all.empty() ? kNone : all[0];
    }
    if (n.kind == Kind::port) {
      const auto& wanted = std::get<Port>(n.detail);
      for (const int i : m_.all(Kind::port))
        if (m_.port(i).device == wanted.device && m_.port(i).number == wanted.number) return i;
      return kNone;
    }
    return n.pci ? m_.find(n.pci->address) : kNone;
  }

  int fill_in(int known, const Node& seen) {
    Node& n = m_[known];
    if (n.kind != seen.kind) return known;  // the file's word on what it is
    if (n.pci && seen.pci) fill(&*n.pci, *seen.pci);
    if (auto* d = std::get_if<Gpu>(&n.detail)) fill(d, std::get<Gpu>(seen.detail));
    if (auto* d = std::get_if<Port>(&n.detail)) fill(d, std::get<Port>(seen.detail));
    if (auto* d = std::get_if<Numa>(&n.detail)) fill(d, std::get<Numa>(seen.detail));
    if (auto* d = std::get_if<Nic>(&n.detail)) fill(&d->guid, std::get<Nic>(seen.detail).guid, {});
    n.hidden = seen.hidden;
    return known;
  }

  // A device that the file doesn't have. The seen PCI tree is what the file is there to replace, so it hangs at its NUMA
  // node, and a port at its card.
  int take_over(int i) {
    const Node& n = seen_[i];
    if (n.kind == Kind::host_bridge || n.kind == Kind::pci_switch) return kNone;
    Node copy = n;
    copy.parent = kNone;
    if (n.kind == Kind::port || n.kind == Kind::nic || n.kind == Kind::gpu) {
      const int above = n.kind == Kind::port ? n.parent : seen_.numa_of(i);
      if (above != kNone) {
        const auto it = place_.find(above);
        copy.parent = it != place_.end() ? it->second : counterpart(seen_[above]);
      }
      if (n.kind != Kind::port)
        note(Severity::note, "device-not-in-file", n.name, fmt::format("{} doesn't mention it: its place is what the system says", name_), "");
    }
    return m_.add(std::move(copy));
  }

  // Links between devices that the file says nothing of: NVLinks, C2C.
  void join() {
    const auto has = [&](int a, int b) {
      for (const Link& l : m_.links)
        if ((l.a == a && l.b == b) || (l.a == b && l.b == a)) return true;
      return false;
    };
    // A GPU whose NVLinks the file tells keeps those alone.
    std::vector<bool> told(m_.nodes.size());
    for (const Link& l : m_.links)
      if (is_nvlink_class(l.kind)) told[static_cast<size_t>(l.a)] = told[static_cast<size_t>(l.b)] = true;
    for (Link l : seen_.links) {
      if (l.kind == LinkKind::pcie || l.kind == LinkKind::network) continue;
      const auto a = place_.find(l.a), b = place_.find(l.b);
      if (a == place_.end() || b == place_.end() || a->second == kNone || b->second == kNone || a->second == b->second) continue;
      l.a = a->second;
      l.b = b->second;
      if (is_nvlink_class(l.kind) && (told[static_cast<size_t>(l.a)] || told[static_cast<size_t>(l.b)])) continue;
      if (!has(l.a, l.b)) m_.link(l);
    }
  }

  void note(Severity severity, const char* id, const std::string& where, std::string text, std::string remedy) {
    m_.findings.push_back({severity, id, where, std::move(text), std::move(remedy)});
  }

  Machine m_;
  const Machine& seen_;
  const std::string& name_;
  std::map<int, int> place_;  // of seen nodes in m_; kNone: left out
};

}  // namespace

Machine merge(Machine file, const Machine& seen, const std::string& name) { return Merger(std::move(file), seen, name).run(); }

}  // namespace muster::topology
