#include "topology/nearest_ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace muster::topology {
namespace {

// By NVLink to a GPU that has only PCI switches between itself and the port.
Path by_way_of(const Path& to_gpu, const Path& on) {
  Path p = to_gpu;
  p.path_class = PathClass::pxn;
  p.nodes.insert(p.nodes.end(), on.nodes.begin() + 1, on.nodes.end());
  p.links.insert(p.links.end(), on.links.begin(), on.links.end());
  p.latency_us += on.latency_us;
  if (on.rate.gb_per_s < p.rate.gb_per_s) {
    p.rate = on.rate;
    p.narrowest = on.narrowest;
  }
  return p;
}

void judge_gpudirect(const Machine& m, int gpu, PortChoice& c, const PortRules& rules) {
  // By way of another GPU it is that one's memory.
  const PathClass own = c.path.path_class;
  const Answer3 of_gpu = m.gpu(gpu).gpudirect, of_port = m.port(c.port).gpudirect;
  if (own > rules.gpudirect && own != PathClass::pxn) {
    c.gpudirect = Answer3::no;
    c.why = fmt::format("{} ({}) is farther than {}", name_of(own), explanation_of(own), name_of(rules.gpudirect));
  } else if (of_port == Answer3::no) {
    c.gpudirect = Answer3::no;
    c.why = "the network says it can't read GPU memory";
  } else if (of_gpu == Answer3::no) {
    c.gpudirect = Answer3::no;
    c.why = "the GPU can't be read by other devices";
  } else if (of_port == Answer3::unknown) {
    c.why = "not known whether the network can read GPU memory";
  } else {
    c.gpudirect = Answer3::yes;
    c.why = fmt::format("{}: {}", name_of(own), explanation_of(own));
  }
}

}  // namespace

std::vector<std::vector<PortChoice>> nearest_ports(const Machine& m, PortRules rules) {
  const std::vector<int> gpus = m.all(Kind::gpu), ports = m.all(Kind::port);
  std::vector<std::vector<Path>> from(gpus.size());
  for (size_t g = 0; g < gpus.size(); ++g) from[g] = paths_from(m, gpus[g]);

  std::vector<std::vector<PortChoice>> all(gpus.size());
  std::map<std::vector<int>, size_t> turns;  // of the equally good ports that several GPUs have
  for (size_t g = 0; g < gpus.size(); ++g) {
    for (const int port : ports) {
      PortChoice c{port, from[g][static_cast<size_t>(port)]};
      if (rules.pxn && c.path.path_class > PathClass::pxn)
        for (size_t other = 0; other < gpus.size(); ++other) {
          const Path& there = from[g][static_cast<size_t>(gpus[other])];
          const Path& on = from[other][static_cast<size_t>(port)];
          if (other == g || there.path_class != PathClass::nvl || on.path_class > PathClass::pxb) continue;
          if (Path p = by_way_of(there, on); closer(p, c.path)) c.path = std::move(p);
        }
      judge_gpudirect(m, gpus[g], c, rules);
      all[g].push_back(std::move(c));
    }
    std::stable_sort(all[g].begin(), all[g].end(), [](const PortChoice& a, const PortChoice& b) {
      if (a.path.path_class != b.path.path_class) return a.path.path_class < b.path.path_class;
      return a.path.rate.gb_per_s > b.path.rate.gb_per_s;
    });
    std::vector<int> equal;
    for (const PortChoice& c : all[g]) {
      const Path &best = all[g].front().path, &p = c.path;
      if (p.path_class == best.path_class && p.rate.gb_per_s == best.rate.gb_per_s) equal.push_back(c.port);
    }
    if (equal.size() > 1) {
      const auto n = static_cast<std::ptrdiff_t>(equal.size());
      const auto turn = static_cast<std::ptrdiff_t>(turns[equal]++) % n;
      std::rotate(all[g].begin(), all[g].begin() + turn, all[g].begin() + n);
    }
  }
  return all;
}

}  // namespace muster::topology
