#include "topology/examine.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "topology/nearest_ports.h"
#include "topology/paths.h"

namespace muster::topology {
namespace {

std::string shown(double v) { return fmt::format("{:.4g}", v); }

// "GPU0, GPU1 and 6 more"
std::string listed(const std::vector<std::string>& names, size_t most = 8) {
  if (names.size() <= most) return fmt::format("{}", fmt::join(names, ", "));
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(most - 1));
  return fmt::format("{} and {} more", fmt::join(first, ", "), names.size() - first.size());
}

class Examiner {
 public:
  explicit Examiner(const Machine& m) : m_(m), ports_(m.all(Kind::port)) {
    for (const int g : m.all(Kind::gpu))
      if (!m[g].hidden) gpus_.push_back(g);
  }

  std::vector<Finding> examine() {
    gpu_kinds();
    nvlinks();
    pci_links();
    port_links();
    port_states();
    if (!gpus_.empty()) ways_to_ports();
    gpus_by_cpu();
    devices_without_place();
    return std::move(found_);
  }

 private:
  void add(Severity s, std::string id, std::string where, std::string text, std::string remedy = {}) {
    found_.push_back({s, std::move(id), std::move(where), std::move(text), std::move(remedy)});
  }
  const std::string& name(int node) const { return m_[node].name; }

  // Names of GPUs by a property of theirs; of interest where there are several.
  template <class F>
  auto gpus_by(F property) const {
    std::map<decltype(property(0)), std::vector<std::string>> groups;
    for (const int g : gpus_) groups[property(g)].push_back(name(g));
    return groups;
  }

  void gpu_kinds() {
    const auto by_sm = gpus_by([&](int g) { return std::pair(m_.gpu(g).sm, m_.gpu(g).gcn); });
    const auto by_model = gpus_by([&](int g) { return m_.gpu(g).model; });
    std::vector<std::string> kinds;
    if (by_sm.size() > 1) {
      for (const auto& [architecture, names] : by_sm)
        kinds.push_back(fmt::format("{} ({})", listed(names),
                                    architecture.second ? fmt::format("gfx{}", architecture.second)
                                                        : fmt::format("sm_{}", architecture.first)));
    } else if (by_model.size() > 1) {
      for (const auto& [model, names] : by_model)
        kinds.push_back(fmt::format("{} ({})", listed(names), model.empty() ? "model unknown" : model));
    }
    if (kinds.empty()) return;
    add(Severity::note, "mixed-gpus", "host",
        fmt::format("GPUs of several kinds: {}", fmt::join(kinds, "; ")),
        "A collective runs at the pace of the slowest; use one kind per job (CUDA_VISIBLE_DEVICES)");
  }

  void nvlinks() {
    if (gpus_.size() < 2) return;
    const auto by_links = gpus_by([&](int g) { return nvlinks_of(m_, g).links; });
    if (by_links.size() < 2) return nvlinks_not_told();
    std::vector<std::string> counts;
    for (const auto& [links, names] : by_links)
      counts.push_back(fmt::format("{} {}: {}", links, links == 1 ? "link" : "links", listed(names)));
    const bool without = by_links.contains(0);
    // To NVSwitches all GPUs have as many; direct links often differ by design, or because only some GPUs are
    // seen.
    const Severity severity = m_.all(Kind::nvswitch).empty() ? Severity::note : Severity::warning;
    add(severity, without ? "some-without-nvlink" : "uneven-nvlinks", "host",
        fmt::format(
            "{}: {}",
            without ? "some GPUs have NVLinks and others none" : "GPUs have different numbers of NVLinks",
            fmt::join(counts, "; ")),
        "See nvidia-smi nvlink -s for links that are down, and the fabric manager's log; on a machine that "
        "was built this way leave it");
  }

  // None has one, where all could.
  void nvlinks_not_told() {
    if (nvlinks_of(m_, gpus_[0]).links > 0) return;
    int most = 0;
    for (const int g : gpus_) most = std::max(most, nvlink_ports(m_.gpu(g).sm));
    if (most == 0) return;
    add(Severity::note, "nvlink-unknown", "host",
        fmt::format(
            "{} GPUs may have up to {} NVLinks each, and none is known of: they are taken to have PCIe alone",
            gpus_.size(), most),
        "If there are some, add them to the file (<nvlink>), read the machine where NVML can be asked, or "
        "its nvidia-smi topo -m");
  }

  const Link* up(int node) const {
    const int l = m_.up_link(node);
    return l == kNone ? nullptr : &m_.links[static_cast<size_t>(l)];
  }

  // Whether a GPU hangs under it, or is it. (Cards for administration do have slow links; port_links knows
  // the others.)
  bool leads_to_gpu(int node) const {
    for (const int g : gpus_)
      for (int up = g; up != kNone; up = m_[up].parent)
        if (up == node) return true;
    return false;
  }

  void pci_links() {
    double widest = 0;  // of GPUs
    std::vector<std::string> unknown;
    for (int i = 0; i < static_cast<int>(m_.nodes.size()); ++i) {
      const Node& n = m_[i];
      if ((n.kind != Kind::gpu && n.kind != Kind::pci_switch) || !n.pci || n.hidden) continue;
      const bool known = n.pci->gigatransfers > 0 && n.pci->lanes > 0;
      const double rate = pcie_rate(n.pci->gigatransfers, n.pci->lanes).gb_per_s;
      if (is_implausible(n.pci->gigatransfers, n.pci->lanes)) {
        if (leads_to_gpu(i))
          add(Severity::warning, "implausible-pci-link", n.name,
              fmt::format("{} {} says that its PCI link is {} GT/s x{}, {} GB/s: what virtual bridges say",
                          name_of(n.kind), n.name, n.pci->gigatransfers, n.pci->lanes, shown(rate)),
              "In a virtual machine give the true topology by NCCL_TOPO_FILE; on bare metal reseat the card, "
              "or look for power saving (it may rise under load)");
      } else if (n.kind == Kind::gpu && known) {
        widest = std::max(widest, rate);
      }
      if (n.kind == Kind::gpu && !known) unknown.push_back(n.name);
    }
    for (const int g : gpus_) {
      const auto& p = m_[g].pci;
      if (!p || !(p->gigatransfers > 0) || p->lanes <= 0 || is_implausible(p->gigatransfers, p->lanes))
        continue;
      const double rate = pcie_rate(p->gigatransfers, p->lanes).gb_per_s;
      if (rate < widest)
        add(Severity::warning, "slow-pci-link", name(g),
            fmt::format("{} has a PCI link of {} GT/s x{}, {} GB/s, where others have {} GB/s", name(g),
                        p->gigatransfers, p->lanes, shown(rate), shown(widest)),
            "Check slot, riser and BIOS; under load nvidia-smi -q -d PCIE shows what the link could be");
    }
    if (!unknown.empty())
      add(Severity::note, "unknown-pci-link", listed(unknown),
          fmt::format("the PCI links of {} GPUs are unknown; {} GB/s each is assumed", unknown.size(),
                      shown(pcie_rate(0, 0).gb_per_s)));
  }

  // A port against the PCI link of its card.
  void port_links() {
    for (const int nic : m_.all(Kind::nic)) {
      const Link* l = up(nic);
      if (!l || l->kind != LinkKind::pcie || l->rate.source == Source::assumed) continue;
      double ports = 0;
      std::vector<std::string> names;
      for (const int p : ports_)
        if (m_.nic_of(p) == nic && m_.port(p).gbit_per_s > 0) {
          ports += m_.port(p).gbit_per_s / 8;
          names.push_back(name(p));
        }
      // A 400 Gbit/s port on its usual fifth-generation link is 50 against 48.
      if (ports > l->rate.gb_per_s * 1.1)
        add(names.size() > 1 ? Severity::note : Severity::warning, "port-faster-than-pci", listed(names),
            fmt::format("{} could carry {} GB/s, but the PCI link of {} carries {} GB/s", listed(names),
                        shown(ports), name(nic), shown(l->rate.gb_per_s)),
            "Put the card into a slot with more lanes or of a newer generation; two-port cards share one "
            "link");
    }
  }

  void port_states() {
    std::vector<std::string> down, unknown;
    for (const int p : ports_) {
      if (m_.port(p).up == Answer3::no) down.push_back(name(p));
      if (!(m_.port(p).gbit_per_s > 0)) unknown.push_back(name(p));
    }
    if (!down.empty())
      add(down.size() == ports_.size() ? Severity::warning : Severity::note, "port-down", listed(down),
          fmt::format("{} of {} network ports are down: {}", down.size(), ports_.size(), listed(down)),
          "Check cable and switch, or leave it out: NCCL_IB_HCA, NCCL_SOCKET_IFNAME");
    if (!unknown.empty())
      add(Severity::note, "port-speed-unknown", listed(unknown),
          fmt::format("the speed of {} is unknown; {} GB/s is assumed", listed(unknown),
                      shown(default_network_rate().gb_per_s)));
    if (ports_.empty())
      add(Severity::note, "no-port", "host", "no network port: this host can't reach others",
          "For jobs on several hosts install a card or list it in the file");
  }

  void ways_to_ports() {
    std::map<int, std::vector<std::string>> users;
    std::vector<std::string> without;
    const auto choices = nearest_ports(m_);
    bool one_up = false;
    for (const int p : ports_) one_up = one_up || m_.port(p).up != Answer3::no;
    const std::vector<int> all = m_.all(Kind::gpu);
    for (size_t g = 0; g < all.size(); ++g) {
      if (m_[all[g]].hidden) continue;
      const PortChoice* best = nullptr;
      for (const PortChoice& c : choices[g])
        if (!best && m_.port(c.port).up != Answer3::no && c.path.path_class != PathClass::dis) best = &c;
      if (!best) {
        if (one_up) without.push_back(name(all[g]));
        continue;
      }
      users[best->port].push_back(name(all[g]));
      if (best->path.path_class == PathClass::sys)
        add(Severity::note, "nic-across-cpus", name(all[g]),
            fmt::format("{} reaches NIC {} only through the CPU interconnect (SYS): expect at most {} GB/s",
                        name(all[g]), name(best->port), shown(best->path.rate.gb_per_s)),
            "Put a card on the GPU's NUMA node; until then GPUs beside a card do better in jobs on several "
            "hosts");
    }
    if (!without.empty())
      add(Severity::warning, "gpu-without-port", listed(without),
          fmt::format("{} reach no network port", listed(without)),
          "The topology has parts that nothing joins");
    for (const auto& [port, names] : users)
      if (names.size() > 1) {
        const double rate =
            m_.port(port).gbit_per_s > 0 ? m_.port(port).gbit_per_s / 8 : default_network_rate().gb_per_s;
        add(Severity::note, "shared-port", name(port),
            fmt::format("{} GPUs share {}: {} GB/s each when all send ({})", names.size(), name(port),
                        shown(rate / static_cast<double>(names.size())), listed(names)));
      }
  }

  void gpus_by_cpu() {
    double slowest = 0;
    std::pair<int, int> pair{kNone, kNone};
    size_t count = 0;
    for (const int a : gpus_) {
      const std::vector<Path> paths = paths_from(m_, a);
      for (const int b : gpus_) {
        if (b <= a) continue;
        const Path& p = paths[static_cast<size_t>(b)];
        if (p.path_class != PathClass::sys) continue;
        ++count;
        if (pair.first == kNone || p.rate.gb_per_s < slowest) slowest = p.rate.gb_per_s, pair = {a, b};
      }
    }
    if (!count) return;
    add(Severity::note, "gpus-across-cpus", "host",
        fmt::format("{} pairs of GPUs reach each other only through the CPU interconnect (SYS), at {} GB/s "
                    "at the slowest ({} and {})",
                    count, shown(slowest), name(pair.first), name(pair.second)));
  }

  void devices_without_place() {
    std::vector<std::string> lost;
    for (int i = 0; i < static_cast<int>(m_.nodes.size()); ++i) {
      const Kind k = m_[i].kind;
      if (k != Kind::gpu && k != Kind::nic) continue;
      const int numa = m_.numa_of(i);
      if (numa != kNone && m_[numa].made_up && m_.all(Kind::numa).size() > 1) lost.push_back(name(i));
    }
    if (!lost.empty())
      add(Severity::note, "place-unknown", listed(lost),
          fmt::format("it isn't known to which NUMA node {} belong", listed(lost)),
          "In a virtual machine let the host pass on the NUMA placement, or give the topology by "
          "NCCL_TOPO_FILE");
  }

  const Machine& m_;
  std::vector<int> gpus_;  // that this process may use
  const std::vector<int> ports_;
  std::vector<Finding> found_;
};

std::vector<Finding> ordered(std::vector<Finding> all) {
  std::set<std::tuple<std::string, std::string, std::string>> seen;
  std::erase_if(all, [&](const Finding& f) { return !seen.insert({f.id, f.where, f.text}).second; });
  std::stable_sort(all.begin(), all.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return all;
}

}  // namespace

std::vector<Finding> examine(const Machine& m) { return Examiner(m).examine(); }

std::vector<Finding> examine(const Cluster& c) {
  std::vector<Finding> found;
  if (c.host_count() < 2) return found;
  std::set<size_t> gpus, ports;
  std::set<double> rates;
  for (const HostGroup& g : c.hosts) {
    const Machine& m = *c.shapes[static_cast<size_t>(g.shape)];
    gpus.insert(m.all(Kind::gpu).size());
    ports.insert(m.all(Kind::port).size());
    for (const int p : m.all(Kind::port))
      if (m.port(p).up != Answer3::no) rates.insert(m.port(p).gbit_per_s);
  }
  if (gpus.size() > 1)
    found.push_back({Severity::note, "uneven-hosts", "cluster",
                     fmt::format("hosts have {} GPUs", fmt::join(gpus, " or ")),
                     "Collectives between hosts work best when all have as many; use as many of each"});
  if (c.fabric.rails && ports.size() > 1)
    found.push_back({Severity::warning, "uneven-rails", "cluster",
                     fmt::format("hosts have {} ports, so some rails miss hosts", fmt::join(ports, " or ")),
                     "Describe the ports of each host in the order of the rails"});
  if (rates.size() > 1)
    found.push_back({Severity::note, "mixed-port-speeds", "cluster",
                     fmt::format("ports have {} Gbit/s", fmt::join(rates, ", ")), ""});
  if (c.fabric.hosts_per_nvlink_domain > 1 && c.host_count() % c.fabric.hosts_per_nvlink_domain)
    found.push_back({Severity::warning, "partial-nvlink-domain", "cluster",
                     fmt::format("{} hosts are no whole number of NVLink domains of {}", c.host_count(),
                                 c.fabric.hosts_per_nvlink_domain),
                     "Collectives that use the domains treat the last one as a smaller one"});
  return found;
}

std::vector<Finding> all_findings(const Machine& m) {
  std::vector<Finding> all = m.findings;
  for (Finding& f : examine(m)) {
    // A reader has told of its kind with the place in the file.
    const bool told =
        std::any_of(m.findings.begin(), m.findings.end(), [&](const Finding& o) { return o.id == f.id; });
    if (!told) all.push_back(std::move(f));
  }
  return ordered(std::move(all));
}

std::vector<Finding> all_findings(const Cluster& c) {
  std::vector<Finding> all = c.findings;
  for (Finding& f : examine(c)) all.push_back(std::move(f));
  for (size_t s = 0; s < c.shapes.size(); ++s)
    for (Finding& f : all_findings(*c.shapes[s])) {
      if (c.shapes.size() > 1)
        f.where = fmt::format(
            "{}: {}", c.shapes[s]->name.empty() ? fmt::format("shape {}", s) : c.shapes[s]->name, f.where);
      all.push_back(std::move(f));
    }
  return ordered(std::move(all));
}

}  // namespace muster::topology
