#include "topology/detect_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "topology/nvlink_fabric.h"

namespace muster::topology {
namespace {


class NvmlMerger {
 public:
  NvmlMerger(Machine& m, const NvmlAnswer& answer, std::span<const SystemFunction> functions)
      : m_(m), answer_(answer), functions_(functions) {}

  void merge() {
    if (!answer_.found) return;
    if (!answer_.problem.empty())
      m_.findings.push_back({Severity::warning, "nvml-fails", "",
                             fmt::format("NVIDIA's management library can't be asked: {}", answer_.problem),
                             "nvidia-smi should say the same; if the driver was just updated, reload it or "
                             "restart the machine"});
    for (const NvmlGpu& g : answer_.gpus) node_.push_back(take(g));
    if (answer_.problem.empty() || !answer_.gpus.empty()) hide_unknown();
    for (size_t g = 0; g < node_.size(); ++g) add_links(g);
    for (const auto& [ends, count] : between_) add_nvlinks(m_, ends.first, ends.second, count);
    const size_t there =
        static_cast<size_t>(std::count_if(functions_.begin(), functions_.end(), [](const SystemFunction& f) {
          return f.function.role == PciRole::nvswitch;
        }));
    if (const size_t n = std::max(there, switches_.size()); n > 0 && (there > 0 || any_switch_))
      set_nvswitches(m_, static_cast<int>(n));
    for (size_t g = 0; g < node_.size(); ++g) tell_down(g, there > 0 || any_switch_);
  }

 private:
  int take(const NvmlGpu& g) {
    int node = g.address ? m_.find(*g.address) : kNone;
    if (node != kNone && m_[node].kind != Kind::gpu) node = kNone;
    if (node == kNone) {
      Node n{.kind = Kind::gpu,
             .name = fmt::format("GPU{}", g.index),
             .parent = m_.all(Kind::numa)[0],
             .detail = Gpu{}};
      if (g.address) n.pci = Pci{.address = *g.address, .class_code = 0x030200, .vendor = kNvidia};
      node = m_.add(std::move(n));
      m_.findings.push_back(
          {Severity::note, "gpu-not-in-sysfs", m_[node].name,
           fmt::format("the driver has it at {}, but /sys doesn't show it: near to {} and an x16 link of the "
                       "third generation are assumed",
                       g.address ? g.address->text() : "an unknown address", m_[m_.all(Kind::numa)[0]].name),
           "Give the container the host's /sys, or a topology file (NCCL_TOPO_FILE)"});
    }
    Gpu& gpu = std::get<Gpu>(m_[node].detail);
    gpu.index = g.index;
    gpu.model = g.name;
    gpu.uuid = g.uuid;
    gpu.sm = g.sm;
    return node;
  }

  void hide_unknown() {
    int hidden = 0;
    std::string first;
    for (const int g : m_.all(Kind::gpu)) {
      Node& n = m_[g];
      if (std::find(node_.begin(), node_.end(), g) != node_.end() || !n.pci || n.pci->vendor != kNvidia)
        continue;
      n.hidden = true;
      if (hidden++ == 0) first = n.pci->address.text();
    }
    if (hidden > 0)
      m_.findings.push_back(
          {Severity::note, "gpu-hidden", first,
           fmt::format("{} GPUs are on the PCI bus, but the driver doesn't show them to this process",
                       hidden),
           "If they should be usable, give them to the container (NVIDIA_VISIBLE_DEVICES, --gpus all), and "
           "look for Xid errors in the kernel's log"});
  }

  NvmlLink::To kind_of(const NvmlLink& l) const {
    if (l.to != NvmlLink::To::unknown) return l.to;
    if (!l.address)
      return NvmlLink::To::nvswitch;  // unreadable in virtual machines, whose GPUs are behind switches
    if (const int other = m_.find(*l.address); other != kNone && m_[other].kind == Kind::gpu)
      return NvmlLink::To::gpu;
    for (const SystemFunction& f : functions_)
      if (f.function.pci.address == *l.address)
        return f.function.pci.class_code == 0x068001 ? NvmlLink::To::cpu : NvmlLink::To::nvswitch;
    return NvmlLink::To::nvswitch;
  }

  void add_links(size_t g) {
    const int node = node_[g];
    std::map<int, int> to;
    int switched = 0;
    for (const NvmlLink& l : answer_.gpus[g].links) switch (kind_of(l)) {
        case NvmlLink::To::gpu:
          // Links to GPUs that this process doesn't see are of no use to it.
          if (const int other = l.address ? m_.find(*l.address) : kNone;
              other != kNone && m_[other].kind == Kind::gpu)
            ++to[other];
          break;
        case NvmlLink::To::cpu:
          ++to[m_.numa_of(node)];
          break;
        case NvmlLink::To::nvswitch:
        case NvmlLink::To::unknown:
          ++switched;
          if (l.address) switches_.insert(*l.address);
          break;
      }
    for (const auto& [other, count] : to) {
      int& n = between_[std::minmax(node, other)];  // told from both ends
      n = std::max(n, count);
    }
    if (switched > 0) {
      any_switch_ = true;
      add_nvswitch_links(m_, node, switched);
    }
    const NvmlGpu& gpu = answer_.gpus[g];
    if (gpu.c2c_links > 0) {
      const Rate rate = gpu.c2c_gb_per_s > 0 ? Rate{gpu.c2c_gb_per_s, Source::read} : c2c_rate();
      m_.link({node, m_.numa_of(node), LinkKind::c2c, gpu.c2c_links, rate, nvlink_latency()});
    }
  }

  void tell_down(size_t g, bool switched) {
    const NvmlGpu& gpu = answer_.gpus[g];
    const int up = static_cast<int>(gpu.links.size());
    if (gpu.links_down == 0 || (up == 0 && !switched)) return;  // cards without a bridge have none up
    m_.findings.push_back({Severity::warning, "nvlink-down", fmt::format("GPU{}", gpu.index),
                           fmt::format("{} of {} NVLinks are down", gpu.links_down, gpu.links_down + up),
                           switched
                               ? "Look at nvidia-smi nvlink --status and at the fabric manager (systemctl "
                                 "status nvidia-fabricmanager)"
                               : "Look at nvidia-smi nvlink --status; some boards leave links unconnected"});
  }

  Machine& m_;
  const NvmlAnswer& answer_;
  std::span<const SystemFunction> functions_;
  std::vector<int> node_;  // of answer_.gpus
  std::map<std::pair<int, int>, int> between_;
  std::set<PciAddress> switches_;
  bool any_switch_ = false;
};

}  // namespace

void add_nvml(Machine& m, const NvmlAnswer& answer, std::span<const SystemFunction> functions) {
  NvmlMerger(m, answer, functions).merge();
}

void hide_gpus(Machine& m, const std::string& visible) {
  std::set<int> shown;
  for (const std::string_view part : split(visible, ',')) {
    const std::string_view word = trim(part);
    int found = kNone;
    if (const auto number = parse_c_integer(word)) {
      if (*number >= 0 && *number <= INT32_MAX) found = m.gpu_with_index(static_cast<int>(*number));
    } else if (!word.empty()) {
      for (const int g : m.all(Kind::gpu))
        if (found == kNone && m.gpu(g).uuid.starts_with(word)) found = g;
    }
    if (found == kNone) break;
    shown.insert(found);
  }
  for (const int g : m.all(Kind::gpu))
    if (!shown.contains(g)) m[g].hidden = true;
}

}  // namespace muster::topology
