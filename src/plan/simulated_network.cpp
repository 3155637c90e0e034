#include "plan/simulated_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "plan/links.h"

namespace muster {

using topology::Kind;
using topology::Link;
using topology::Machine;
using topology::Path;
using topology::PathClass;

namespace {

// A direction of a link: out of its end `a`, or into it.
uint32_t direction(const Machine& m, int link, int from) {
  return static_cast<uint32_t>(2 * link + (m.links[static_cast<size_t>(link)].a == from ? 0 : 1));
}

}  // namespace

SimulatedNetwork::SimulatedNetwork(topology::Cluster cluster, std::vector<RankPlace> places) : cluster_(std::move(cluster)) {
  paths_.emplace(cluster_);
  for (const auto& g : cluster_.hosts)
    shape_of_.insert(shape_of_.end(), static_cast<size_t>(g.count), g.shape);
  std::vector<int> gpus;  // by shape
  for (const auto& m : cluster_.shapes) gpus.push_back(static_cast<int>(m->all(Kind::gpu).size()));
  const int hosts = static_cast<int>(shape_of_.size());
  const auto gpus_of = [&](int host) {
    return gpus[static_cast<size_t>(shape_of_[static_cast<size_t>(host)])];
  };
  if (places.empty()) places = all_gpus(cluster_);
  for (const RankPlace& p : places) {
    if (p.host < 0 || p.host >= hosts)
      fail(Result::invalid_argument, "rank {} is on host {}, but the cluster has hosts 0..{}",
           host_of_.size(), p.host, hosts - 1);
    if (p.gpu < 0 || p.gpu >= gpus_of(p.host))
      fail(Result::invalid_argument, "rank {} is on GPU {} of {}, which has {}", host_of_.size(), p.gpu,
           cluster_.host_name(p.host), gpus_of(p.host));
    host_of_.push_back(p.host);
    gpu_of_.push_back(p.gpu);
  }
  for (int h = 0; h < hosts; ++h) {
    first_of_host_.push_back(resources_);
    resources_ += static_cast<uint32_t>(2 * machine(h).links.size());
  }
  first_of_host_.push_back(resources_);

  const topology::Fabric& f = cluster_.fabric;
  if (hosts == 0 || f.oversubscription <= 1) return;  // what goes into a leaf can go up
  if (f.rails)
    for (int h = 0; h < hosts; ++h) rails_ = std::max(rails_, static_cast<int>(paths_->ports(h).size()));
  uplink_rates_.resize(static_cast<size_t>(rails_) * static_cast<size_t>(paths_->leaf_of(hosts - 1) + 1));
  for (int h = 0; h < hosts; ++h) {
    const std::vector<int>& ports = paths_->ports(h);
    for (size_t i = 0; i < ports.size(); ++i)
      uplink_rates_[static_cast<size_t>(paths_->leaf_of(h) * rails_) + (f.rails ? i : 0)] +=
          paths_->port_rate(h, ports[i]).gb_per_s / f.oversubscription;
  }
  resources_ += static_cast<uint32_t>(2 * uplink_rates_.size());
}

SimulatedNetwork::SimulatedNetwork(HostMemory memory) : memory_(std::move(memory)) {
  if (!(memory_.core_gb_per_s > 0) || memory_.memory_gb_per_s < 0 || memory_.latency_us < 0)
    fail(Result::invalid_argument,
         "a core that copies {} GB/s, memory of {} GB/s, {} us to another core: rates must be positive",
         memory_.core_gb_per_s, memory_.memory_gb_per_s, memory_.latency_us);
  for (const int c : memory_.core_of) {
    if (c < 0) fail(Result::invalid_argument, "rank {} is on core {}", host_of_.size(), c);
    host_of_.push_back(0);
    cores_ = std::max(cores_, c + 1);
  }
  resources_ = static_cast<uint32_t>(cores_) + (memory_.memory_gb_per_s > 0 ? 1 : 0);
}

const Machine& SimulatedNetwork::machine(int host) const {
  return *cluster_.shapes[static_cast<size_t>(shape_of_[static_cast<size_t>(host)])];
}

SimulatedNetwork::Place SimulatedNetwork::place_of(uint32_t number) const {
  if (number >= resources_) fail(Result::internal_error, "resource {} of {}", number, resources_);
  if (number >= first_of_host_.back()) return {-1, static_cast<int>(number - first_of_host_.back())};
  const auto after = std::upper_bound(first_of_host_.begin(), first_of_host_.end(), number);
  const auto host = static_cast<int>(after - first_of_host_.begin()) - 1;
  return {host, static_cast<int>(number - first_of_host_[static_cast<size_t>(host)])};
}

double SimulatedNetwork::gb_per_s(uint32_t number) const {
  if (!paths_)
    return number < static_cast<uint32_t>(cores_) ? memory_.core_gb_per_s : memory_.memory_gb_per_s;
  const Place at = place_of(number);
  if (at.host < 0) return uplink_rates_[static_cast<size_t>(at.local / 2)];
  const Machine& m = machine(at.host);
  const Link& l = m.links[static_cast<size_t>(at.local / 2)];
  // What the fabric leaves of a port's own rate.
  const std::vector<int>& ports = paths_->ports(at.host);
  if (l.kind == topology::LinkKind::network)
    for (const int end : {l.a, l.b})
      if (std::find(ports.begin(), ports.end(), end) != ports.end())
        return paths_->port_rate(at.host, end).gb_per_s;
  return l.rate.gb_per_s;
}

Resource SimulatedNetwork::resource(uint32_t number) const {
  if (!paths_) {
    if (number >= resources_) fail(Result::internal_error, "resource {} of {}", number, resources_);
    const bool core = number < static_cast<uint32_t>(cores_);
    return {core ? Resource::Kind::core : Resource::Kind::memory, topology::LinkKind::cpu,
            core ? fmt::format("core {}", number) : "memory", gb_per_s(number)};
  }
  const Place at = place_of(number);
  if (at.host < 0) {
    const int leaf = at.local / 2 / rails_, rail = at.local / 2 % rails_;
    const std::string of_rail = cluster_.fabric.rails ? fmt::format(", rail {}", rail) : "";
    return {Resource::Kind::uplink, topology::LinkKind::network,
            fmt::format("leaf {}{}: {} the spine", leaf, of_rail, at.local % 2 ? "from" : "to"),
            gb_per_s(number)};
  }
  const Machine& m = machine(at.host);
  const Link& l = m.links[static_cast<size_t>(at.local / 2)];
  const bool from_a = at.local % 2 == 0;
  return {Resource::Kind::link, l.kind,
          fmt::format("{}: {} -> {}", cluster_.host_name(at.host), m[from_a ? l.a : l.b].name,
                      m[from_a ? l.b : l.a].name),
          gb_per_s(number)};
}

void SimulatedNetwork::append(Route& r, int host, const Path& path, bool reversed) const {
  const Machine& m = machine(host);
  const uint32_t first = first_of_host_[static_cast<size_t>(host)];
  const size_t n = path.links.size();
  for (size_t i = 0; i < n; ++i) {
    const size_t at = reversed ? n - 1 - i : i;
    r.resources.push_back(first + direction(m, path.links[at], path.nodes[reversed ? at + 1 : at]));
  }
}

uint32_t SimulatedNetwork::nvswitch_link(int host, int gpu, bool out) const {
  const Machine& m = machine(host);
  const int node = m.all(Kind::gpu)[static_cast<size_t>(gpu)];
  for (size_t i = 0; i < m.links.size(); ++i) {
    const Link& l = m.links[i];
    if (l.a != node && l.b != node) continue;
    const int other = l.a == node ? l.b : l.a;
    if (m[other].kind == Kind::nvswitch)
      return first_of_host_[static_cast<size_t>(host)] +
             direction(m, static_cast<int>(i), out ? node : other);
  }
  fail(Result::invalid_argument,
       "the fabric joins {} hosts by NVLink, but {} of {} has no link to an NVSwitch",
       cluster_.fabric.hosts_per_nvlink_domain, m[node].name, cluster_.host_name(host));
}

uint32_t SimulatedNetwork::uplink(int host, int port, bool up) const {
  const std::vector<int>& ports = paths_->ports(host);
  const auto rail = cluster_.fabric.rails ? std::find(ports.begin(), ports.end(), port) - ports.begin() : 0;
  const auto leaf = static_cast<uint32_t>(paths_->leaf_of(host) * rails_);
  return first_of_host_.back() + 2 * (leaf + static_cast<uint32_t>(rail)) + (up ? 0 : 1);
}

Route SimulatedNetwork::route(int from, int to) const {
  for (const int r : {from, to})
    if (r < 0 || r >= ranks()) fail(Result::invalid_argument, "rank {} is not in 0..{}", r, ranks() - 1);
  if (!paths_) return {{}, topology::LinkClass::local, from == to ? 0 : memory_.latency_us};
  const auto a = static_cast<size_t>(from), b = static_cast<size_t>(to);
  const topology::HostPaths& paths = *paths_;
  const int host = host_of_[a], peer = host_of_[b];
  const topology::HostPath p = paths.between(host, gpu_of_[a], peer, gpu_of_[b]);
  if (p.path_class == PathClass::dis)
    fail(Result::invalid_argument, "nothing joins rank {} (GPU {} of {}) with rank {} (GPU {} of {})", from,
         gpu_of_[a], cluster_.host_name(host), to, gpu_of_[b], cluster_.host_name(peer));
  Route r{{}, topology::plain(p.path_class, p.network), p.latency_us};
  if (host == peer) {
    append(r, host, paths.inside(host, gpu_of_[a], gpu_of_[b]), false);
  } else if (p.path_class == PathClass::nvl) {
    r.resources = {nvswitch_link(host, gpu_of_[a], true), nvswitch_link(peer, gpu_of_[b], false)};
  } else {
    append(r, host, paths.to_port(host, gpu_of_[a], p.from_port), false);
    if (p.switches > 1 && !uplink_rates_.empty()) {
      r.resources.push_back(uplink(host, p.from_port, true));
      r.resources.push_back(uplink(peer, p.to_port, false));
    }
    append(r, peer, paths.to_port(peer, gpu_of_[b], p.to_port), true);
  }
  return r;
}

std::vector<uint32_t> SimulatedNetwork::work(int rank) const {
  if (paths_) return {};
  std::vector<uint32_t> r{static_cast<uint32_t>(memory_.core_of.at(static_cast<size_t>(rank)))};
  if (memory_.memory_gb_per_s > 0) r.push_back(static_cast<uint32_t>(cores_));
  return r;
}

}  // namespace muster
