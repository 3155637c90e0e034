#include "plan/gpu_price.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "plan/units.h"

namespace muster {
namespace {


struct Names {
  std::string_view protocol, near, sm;
  Names(Protocol p, const Links& l)
      : protocol(p == Protocol::ll      ? "ll"
                 : p == Protocol::ll128 ? "ll128"
                                        : "simple"),
        near(l.near == Near::nvlink ? "nvlink" : "pcie"),
        sm(generation(l.sm)) {}
};

// What a protocol leaves of a bandwidth.
double share(Protocol p, double gbytes_per_s, double most, const Constants& k) {
  if (p == Protocol::ll) return std::min(gbytes_per_s * k("gpu.ll.share"), most);
  if (p == Protocol::ll128) return gbytes_per_s * k("gpu.ll128.share");
  return gbytes_per_s;
}

double link_share(Near n, const Constants& k) {
  return n == Near::nvlink ? 1 : k(n == Near::pcie ? "gpu.pcie.share" : "gpu.cpu.share");
}

void set_bound(Price& p, double near_us, double far_us) {
  p.bound = p.latency_us >= p.transfer_us + p.ramp_us ? Bound::latency
            : far_us > near_us                        ? Bound::ports
                                                      : Bound::near_links;
  if (p.launch_us > std::max(p.latency_us, p.transfer_us + p.ramp_us)) p.bound = Bound::launch;
}

double launch(const Constants& k, int per_thread) {
  return per_thread > 1 ? per_thread * k("gpu.launch") : 0;
}

double ramp(const Links& l, double transfer_us, const Constants& k) {
  return k.of("gpu.ramp", generation(l.sm)) * (l.spread.hosts > 1 ? k("gpu.ramp.network") : 1) * std::sqrt(transfer_us);
}

}  // namespace

std::string_view generation(int sm) { return sm >= 90 ? "sm90" : sm >= 80 ? "sm80" : "sm70"; }

std::string obstacle(Protocol p, const Links& l) {
  if (p == Protocol::ll128 && l.near != Near::nvlink && l.spread.per_host > 1)
    return fmt::format("LL128 needs lines to arrive whole, which only NVLink promises; here it is {}",
                       name_of(l.near));
  return {};
}

Price gpu_price(const Work& w, const Links& l, Protocol protocol, const Constants& k, int per_thread) {
  const Names names(protocol, l);
  Price p;
  p.launch_us = launch(k, per_thread);
  const std::string message = fmt::format("gpu.{}", names.protocol);
  p.latency_us = k.of(message + ".base", names.sm) +
                 w.near_rounds * k.of(fmt::format("{}.{}", message, names.near), names.sm) +
                 w.far_rounds * k.of(message + ".network", w.tree ? "tree" : "");

  const double most =
      l.spread.hosts > 1 ? k.of("gpu.ll.most.network", names.sm) : k.of("gpu.ll.most", names.sm);
  double near = (w.ring || w.tree ? l.rings : l.exchange) * link_share(l.near, k);
  if (w.tree) near *= k.of("gpu.tree.share", names.sm);
  p.near_gbytes_per_s = l.spread.per_host > 1 ? share(protocol, near, most, k) : 0;
  // What a host reaches: of the ports that its ranks at work have, and of the leaf's uplinks.
  const double ports =
      w.far_ranks > 0 ? l.ports * std::min(1.0, static_cast<double>(w.far_ranks) / l.port_count) : l.ports;
  const double uplinks = l.ports * (w.ring ? l.hosts_per_leaf : 1) / l.oversubscription;
  p.far_gbytes_per_s = l.spread.hosts > 1 ? share(protocol, std::min(ports, uplinks), most, k) : 0;
  const double near_us = w.near_bytes > 0 ? w.near_bytes / (p.near_gbytes_per_s * kBytesPerMicrosecond) : 0;
  const double far_us = w.far_bytes > 0 ? w.far_bytes / (p.far_gbytes_per_s * kBytesPerMicrosecond) : 0;
  p.transfer_us = w.flows ? std::max(near_us, far_us) : near_us + far_us;
  p.ramp_us = ramp(l, p.transfer_us, k);
  set_bound(p, near_us, far_us);
  return p;
}

SimCosts sim_costs(const Links& l, Protocol protocol, const Constants& k, int per_thread) {
  const Names names(protocol, l);
  const std::string message = fmt::format("gpu.{}", names.protocol);
  const auto latency = [&](std::string_view link) {
    return k.of(fmt::format("{}.{}", message, link), names.sm);
  };
  SimCosts c;
  c.launch_us = launch(k, per_thread) + k.of(message + ".base", names.sm);
  const auto cost_of = [&](topology::LinkClass link) -> LinkCosts& {
    return c.links[static_cast<size_t>(link)];
  };
  cost_of(topology::LinkClass::nvlink).latency_us = latency("nvlink");
  cost_of(topology::LinkClass::pcie).latency_us = cost_of(topology::LinkClass::cpu_interconnect).latency_us =
      latency("pcie");
  for (const topology::LinkClass link :
       {topology::LinkClass::infiniband, topology::LinkClass::roce, topology::LinkClass::ethernet}) {
    cost_of(link).latency_us = latency("network");
    cost_of(link).by_proxy = true;
  }
  // The constant is what passes through a channel while it is kept, too: two results of each byte.
  c.channel_gb_per_s = 2 * k(fmt::format("gpu.channel.{}", names.sm));
  c.slots = static_cast<int>(k("gpu.slots"));
  return c;
}

Price copy_price(const Links& l, double data, const Constants& k, int per_thread) {
  Price p;
  p.launch_us = launch(k, per_thread);
  p.latency_us = k("gpu.copy.base");
  p.near_gbytes_per_s = k(fmt::format("gpu.copy.{}", generation(l.sm)));
  p.transfer_us = data / (p.near_gbytes_per_s * kBytesPerMicrosecond);
  p.bound = p.latency_us >= p.transfer_us ? Bound::latency : Bound::memory;
  if (p.launch_us > std::max(p.latency_us, p.transfer_us)) p.bound = Bound::launch;
  return p;
}

bool can_reduce_in_switch(const Links& l) { return l.sm >= 90 && l.switched && l.spread.per_host > 1; }

Price in_switch_price(const Links& l, double data, const Constants& k, int per_thread) {
  const Names names(Protocol::simple, l);
  const double n = l.spread.ranks, hosts = l.spread.hosts;
  Price p;
  p.launch_us = launch(k, per_thread);
  p.latency_us =
      k.of("gpu.simple.base", names.sm) + k("gpu.nvls") + 2 * std::log2(hosts) * k("gpu.simple.network.tree");
  // What rings would move of so many bytes, faster by the gain: a GPU sends its data once and gets the sums
  // once.
  p.near_gbytes_per_s = l.rings * k("gpu.nvls.gain");
  p.far_gbytes_per_s = hosts > 1 ? l.ports : 0;
  const double near_us = 2 * (n - 1) / n * data / (p.near_gbytes_per_s * kBytesPerMicrosecond);
  const double far_us =
      hosts > 1 ? data * (hosts > 2 ? 2 : 1) / (p.far_gbytes_per_s * kBytesPerMicrosecond) : 0;
  p.transfer_us = std::max(near_us, far_us);
  p.ramp_us = ramp(l, p.transfer_us, k);
  set_bound(p, near_us, far_us);
  return p;
}

}  // namespace muster
