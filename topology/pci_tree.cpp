#include "topology/pci_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace muster::topology {

PciRole role_of(const Pci& pci) {
  if (pci.is_gpu()) return PciRole::gpu;
  if (pci.is_nic()) return PciRole::nic;
  if (pci.is_nvswitch()) return PciRole::nvswitch;
  if (pci.is_bridge()) return PciRole::bridge;
  return PciRole::other;
}

std::vector<int> add_pci_tree(Machine& m, std::span<const PciFunction> functions) {
  const size_t n = functions.size();
  const auto at = [&](int i) -> const PciFunction& { return functions[static_cast<size_t>(i)]; };

  // Which bridges lead to something. Parents may come after their children, so the walk goes up from each
  // device.
  std::vector<bool> matters(n, false);
  std::vector<int> depth(n, 0);  // bridges above
  for (size_t i = 0; i < n; ++i) {
    const bool device = functions[i].role == PciRole::gpu || functions[i].role == PciRole::nic;
    if (!device) continue;
    for (int up = static_cast<int>(i); up != kNone && !matters[static_cast<size_t>(up)]; up = at(up).parent)
      matters[static_cast<size_t>(up)] = true;
  }
  std::vector<int> by_address;
  for (size_t i = 0; i < n; ++i)
    if (matters[i]) by_address.push_back(static_cast<int>(i));
  for (const int i : by_address)
    for (int up = at(i).parent; up != kNone; up = at(up).parent) ++depth[static_cast<size_t>(i)];
  std::stable_sort(by_address.begin(), by_address.end(),
                   [&](int a, int b) { return at(a).pci.address < at(b).pci.address; });
  std::vector<int> order;  // by address, but for bridges, which come before what is behind them
  std::vector<bool> listed(n, false);
  for (const int i : by_address) {
    const size_t first = order.size();
    for (int up = i; up != kNone && !listed[static_cast<size_t>(up)]; up = at(up).parent) {
      listed[static_cast<size_t>(up)] = true;
      order.push_back(up);
    }
    std::reverse(order.begin() + static_cast<std::ptrdiff_t>(first), order.end());
  }

  // A link has two ends, and a port above that is no node is the other end of it.
  const auto slower_end = [&](const PciFunction& f) {
    Pci pci = f.pci;
    if (f.parent == kNone || depth[static_cast<size_t>(f.parent)] % 2 != 0) return pci;
    const Pci& above_it = at(f.parent).pci;
    const auto slower = [](auto a, auto b) { return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b); };
    pci.gigatransfers = slower(pci.gigatransfers, above_it.gigatransfers);
    pci.lanes = slower(pci.lanes, above_it.lanes);
    return pci;
  };

  std::vector<int> node(n, kNone);
  std::vector<int> above(n, kNone);  // the node that things behind a bridge hang under
  std::map<std::string, int> roots;
  for (const int i : order) {
    const PciFunction& f = at(i);
    int parent = kNone;
    if (f.parent != kNone) {
      parent = above[static_cast<size_t>(f.parent)];
    } else if (f.root.empty()) {
      parent = f.numa;
    } else {
      const auto [it, fresh] = roots.try_emplace(f.root, kNone);
      if (fresh) it->second = m.add({.kind = Kind::host_bridge, .name = f.root, .parent = f.numa});
      parent = it->second;
    }
    if (f.role == PciRole::bridge) {
      above[static_cast<size_t>(i)] = parent;
      if (depth[static_cast<size_t>(i)] % 2 == 0) continue;
      node[static_cast<size_t>(i)] = above[static_cast<size_t>(i)] = m.add(
          {.kind = Kind::pci_switch, .name = f.pci.address.text(), .parent = parent, .pci = slower_end(f)});
      continue;
    }
    // What is behind a device, as a file could have it, is beside it.
    above[static_cast<size_t>(i)] = parent;
    Node device{.kind = Kind::nic,
                .name = f.pci.address.text(),
                .parent = parent,
                .pci = slower_end(f),
                .detail = Nic{}};
    if (f.role == PciRole::gpu) {
      device.kind = Kind::gpu;
      device.detail = Gpu{};
    }
    node[static_cast<size_t>(i)] = m.add(device);
    for (int part = 1; device.kind == Kind::gpu && part < f.parts; ++part) m.add(device);
  }
  return node;
}

void number_gpus(Machine& m) {
  const std::vector<int> gpus = m.all(Kind::gpu);
  std::set<int> taken;
  bool again = false;
  for (const int g : gpus)
    if (const int i = m.gpu(g).index; i != kNone) again = !taken.insert(i).second || again;
  if (again) taken.clear();
  for (const int g : gpus) m[g].name.clear();
  int next = 0;
  for (const int g : gpus) {
    Gpu& gpu = std::get<Gpu>(m[g].detail);
    if (gpu.index == kNone || again) {
      while (taken.contains(next)) ++next;
      gpu.index = next++;
      taken.insert(gpu.index);
    }
    const std::string name = fmt::format("GPU{}", gpu.index);
    m[g].name =
        m.find(name) == kNone ? name : fmt::format("{}#{}", name, g);  // a network device may be called so
  }
}

}  // namespace muster::topology
