#include "topology/nvlink_fabric.h"

#include <fmt/format.h>

#include <algorithm>

namespace muster::topology {
namespace {

void add(Machine& m, int a, int b, LinkKind kind, int count, Rate of_one) {
  if (a == b || count <= 0) return;
  for (Link& l : m.links)
    if (l.kind == kind && ((l.a == a && l.b == b) || (l.a == b && l.b == a))) {
      l.count += count;
      l.rate.gb_per_s += count * of_one.gb_per_s;
      return;
    }
  m.link({a, b, kind, count, {count * of_one.gb_per_s, of_one.source}, nvlink_latency()});
}

int nvswitch_of(Machine& m) {
  const std::vector<int> all = m.all(Kind::nvswitch);
  return all.empty() ? m.add({.kind = Kind::nvswitch, .name = "NVSwitch", .detail = NvSwitch{}}) : all[0];
}

}  // namespace

void add_nvlinks(Machine& m, int gpu, int other, int count) {
  int sm = m.gpu(gpu).sm;
  if (m[other].kind == Kind::gpu && m.gpu(other).sm != 0)
    sm = sm == 0 ? m.gpu(other).sm : std::min(sm, m.gpu(other).sm);
  add(m, gpu, other, LinkKind::nvlink, count, nvlink_rate(sm));
}

void add_nvswitch_links(Machine& m, int gpu, int count) {
  if (count > 0) add(m, gpu, nvswitch_of(m), LinkKind::nvlink, count, nvswitch_link_rate(m.gpu(gpu).sm));
}

void set_nvswitches(Machine& m, int count) {
  NvSwitch& s = std::get<NvSwitch>(m[nvswitch_of(m)].detail);
  s.count = std::max(s.count, count);
}

void add_xgmi_links(Machine& m, int gpu, int other, int count, bool counted, int sharers) {
  Rate of_one = xgmi_rate(m.gpu(gpu).gcn);
  of_one.gb_per_s /= sharers;
  if (!counted) of_one.source = Source::assumed;
  add(m, gpu, other, LinkKind::xgmi, count, of_one);
}

void assume_nvlinks(Machine& m, std::string_view told_by) {
  if (std::any_of(m.links.begin(), m.links.end(), [](const Link& l) { return l.kind == LinkKind::nvlink; }))
    return;
  const std::vector<int> gpus = m.all(Kind::gpu);
  std::string which;
  int could = 0, ports = 0;
  for (const int g : gpus) {
    const int n = nvlink_ports(m.gpu(g).sm);
    if (n == 0) continue;
    ++could;
    ports = n;
    if (which.empty())
      which = m.gpu(g).model.empty()
                  ? fmt::format("compute capability {}.{}", m.gpu(g).sm / 10, m.gpu(g).sm % 10)
                  : m.gpu(g).model;
  }
  if (could == 0) return;
  const bool switched = !m.all(Kind::nvswitch).empty();
  if (switched)
    for (const int g : gpus) {
      add_nvswitch_links(m, g, nvlink_ports(m.gpu(g).sm));
      if (!m.links.empty() && m.links.back().kind == LinkKind::nvlink)
        m.links.back().rate.source = Source::assumed;
    }
  if (switched)
    m.findings.push_back(
        {Severity::note, "nvlink-assumed", "",
         fmt::format(
             "there are NVSwitches, but {} tells no links: all {} of each GPU ({}) are assumed to be up",
             told_by, ports, which),
         "Ask the driver where it can be asked: nvidia-smi nvlink --status"});
  else if (could > 1)
    m.findings.push_back(
        {Severity::note, "nvlink-unknown", "",
         fmt::format("{} tells no NVLinks, of which {} GPUs ({}) may have up to {} each", told_by, could,
                     which, ports),
         "If there are some, read the machine where NVML can be asked, or its nvidia-smi topo -m"});
}

}  // namespace muster::topology
