#include "plan/hosts_price.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/math.h"
#include "plan/host_price.h"
#include "plan/units.h"

namespace muster {
namespace {

constexpr double kLineBytes = 32;             // of a message that fits a connection's line

class Terms {
 public:
  Terms(const PlanInputs& in, const Constants& k, bool ring, DataType type)
      : k_(k), kind_(in.network.kind == HostNetwork::Kind::rdma ? "rdma" : "tcp") {
    latency = k.of(key("latency"), ring ? "ring" : "");
    overhead = k(key("overhead"));
    if (k.has(key("handshake"))) {
      handshake = k(key("handshake"));
      copy = per_byte(k(key("copy")));
    }
    rank = per_byte(k(key("rank")));
    port = per_byte(in.network.gbytes_per_s > 0 ? in.network.gbytes_per_s * k("network.share")
                                                : k(key("port")));
    local = per_byte(k("host.local"));
    slot = per_byte(k("host.slot"));
    outside = std::max(0.0, per_byte(k("host.local.memory")) - local);
    combine = combine_us_per_byte(type, k);
  }

  double message(double bytes) const {
    return k_("host.message") + (bytes > kLineBytes ? k_("host.ring") : 0);
  }
  double near_round(double bytes) const { return 2 * message(bytes) + k_("host.hand_over"); }
  double far_round(double bytes) const { return latency + std::min(bytes * copy, handshake); }

  double latency, overhead, handshake = 0;                     // us
  double copy = 0, rank, port, local, slot, outside, combine;  // us per byte

 private:
  std::string key(const char* term) const { return fmt::format("network.{}.{}", kind_, term); }
  static double per_byte(double gbytes_per_s) { return 1 / (gbytes_per_s * kBytesPerMicrosecond); }

  const Constants& k_;
  const char* kind_;
};

double data_of(const CallShape& c, int nranks) {
  const double bytes = static_cast<double>(c.count) * static_cast<double>(size_of(c.type));
  return splits_count(c.coll) ? bytes : bytes * nranks;
}

double average(double bytes, double messages) { return messages > 0 ? bytes / messages : 0; }

}  // namespace

Spread spread_of(const PlanInputs& in) {
  Spread s{in.nranks, 1, in.nranks};
  if (!in.placement) return s;
  const std::vector<int>& host_of = in.placement->host_of;
  std::vector<int> ranks;  // by host
  for (const int h : host_of) {
    ranks.resize(std::max(ranks.size(), static_cast<size_t>(h) + 1));
    ++ranks[static_cast<size_t>(h)];
  }
  s.hosts = static_cast<int>(ranks.size());
  s.per_host = *std::max_element(ranks.begin(), ranks.end());
  s.in_order = std::is_sorted(host_of.begin(), host_of.end());
  return s;
}

std::optional<HostsPrice> hosts_price(const Algorithm& a, const CallShape& call, const PlanInputs& in,
                                      const Constants& k) {
  const Spread s = spread_of(in);
  const std::optional<Work> work = work_of(a, s, data_of(call, in.nranks));
  if (!work) return std::nullopt;
  const Work& w = *work;
  const Terms t(in, k, w.ring, call.type);
  const double cores_shared_by = std::ceil(static_cast<double>(s.per_host) / std::max(1, in.cores));
  const double tile = static_cast<double>(in.slot_bytes);
  const double far_ranks = w.far_ranks > 0 ? w.far_ranks : s.per_host;
  const double rank_far_bytes = w.flows ? w.far_bytes : w.far_bytes / far_ranks;
  const double near_message = std::min(tile, average(w.near_bytes, w.near_messages)),
               far_message = std::min(tile, average(rank_far_bytes, w.far_messages));
  const double near_byte = 2 * (t.local + t.slot) * cores_shared_by;
  const double far_byte = std::max(t.rank, t.port);  // of one message alone

  HostsPrice p;
  p.far_rounds = w.far_rounds;
  p.far_bytes = w.far_bytes;
  p.rounds_us = k("host.call") + w.near_rounds * t.near_round(near_message) +
                w.far_rounds * t.far_round(far_message) +
                std::max(0.0, w.near_messages - w.near_rounds) * t.message(near_message) +
                std::max(0.0, w.far_messages - w.far_rounds) * t.overhead;
  if (cores_shared_by > 1)
    p.rounds_us += (w.near_rounds + w.far_rounds) * cores_shared_by * k("host.turn");

  const double near_fill = std::max(0.0, w.near_rounds - w.near_messages) * near_message * near_byte,
               far_fill = std::max(0.0, w.far_rounds - w.far_messages) * far_message * far_byte;
  p.near_bytes_us = w.near_bytes * near_byte;
  p.far_bytes_us = std::max(rank_far_bytes * t.rank, w.far_bytes * t.port);
  if (w.flows) (p.near_bytes_us < p.far_bytes_us ? p.near_bytes_us : p.far_bytes_us) = 0;
  p.near_bytes_us += near_fill;
  p.far_bytes_us += far_fill;

  const double host_share = static_cast<double>(s.per_host) / s.ranks, cache = static_cast<double>(in.cache_bytes);
  const double moved = w.flows ? std::max(w.near_bytes, w.far_bytes) : w.near_bytes + rank_far_bytes;
  const double buffers_outside = share_outside_cache(host_footprint(call, in.nranks) * host_share, cache),
               messages_outside = share_outside_cache(2 * std::min(w.longest_far, tile) * s.per_host, cache);
  p.memory_us = cores_shared_by * t.outside *
                (buffers_outside * moved + messages_outside * (moved + 3 * w.combined));
  p.combine_us = cores_shared_by * w.combined * t.combine;
  p.us = p.rounds_us + p.near_bytes_us + p.far_bytes_us + p.combine_us + p.memory_us;
  return p;
}

}  // namespace muster
