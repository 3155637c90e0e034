#include "parallel/group_prices.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "plan/prediction.h"

namespace muster {
namespace {

constexpr int64_t kMostBases = 64;  // groups looked at: more than hosts' patterns have

int64_t length(const GroupDimension& d) { return d.neighbours ? std::min<int64_t>(2, d.size) : d.size; }

std::vector<int64_t> members_of(const GroupShape& shape, int64_t base) {
  std::vector<int64_t> ranks{base};
  for (const GroupDimension& d : shape) {
    std::vector<int64_t> more;
    for (int64_t i = 0; i < length(d); ++i)
      for (const int64_t r : ranks) more.push_back(r + i * d.stride);
    ranks = std::move(more);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

bool is_base(const GroupShape& shape, int64_t rank) {
  return std::all_of(shape.begin(), shape.end(), [&](const GroupDimension& d) {
    const int64_t i = rank / d.stride % d.size;
    return d.neighbours ? i + 1 < d.size : i == 0;
  });
}

}  // namespace

int64_t size_of(const GroupShape& shape) {
  int64_t n = 1;
  for (const GroupDimension& d : shape) n *= length(d);
  return n;
}

std::string link_name(const Links& l) {
  if (l.spread.hosts == 1) return name_of(l.near);
  return l.network == topology::Network::unknown ? "network" : std::string(topology::name_of(l.network));
}

GroupPrices::GroupPrices(const topology::Cluster& cluster, int64_t ranks, const Constants& constants)
    : constants_(constants), cluster_(cluster), places_(all_gpus(cluster)) {
  if (places_.empty())
    fail(Result::invalid_argument, "there are no GPUs to train on. Describe some (docs/topology.md)");
  if (ranks < 1 || ranks > static_cast<int64_t>(places_.size()))
    fail(Result::invalid_argument,
         "{} GPUs are wanted, and the cluster has {}: take a smaller layout, or describe more hosts", ranks,
         places_.size());
  places_.resize(static_cast<size_t>(ranks));
  whole_ = links_of(cluster, places_, constants);
}

const Links& GroupPrices::links(const GroupShape& shape) {
  if (const auto it = links_.find(shape); it != links_.end()) return it->second;
  std::vector<RankPlace> group;
  size_t most_hosts = 0;
  int64_t seen = 0;
  for (int64_t base = 0; base < ranks() && seen < kMostBases; ++base) {
    if (!is_base(shape, base)) continue;
    ++seen;
    std::vector<RankPlace> places;
    std::set<int> hosts;
    for (const int64_t r : members_of(shape, base)) {
      if (r >= ranks()) break;
      places.push_back(places_[static_cast<size_t>(r)]);
      hosts.insert(places.back().host);
    }
    if (static_cast<int64_t>(places.size()) < size_of(shape) || hosts.size() <= most_hosts) continue;
    most_hosts = hosts.size();
    group = std::move(places);
  }
  Links l = links_of(cluster_, group, constants_);
  const double part = static_cast<double>(l.spread.per_host) / whole_.spread.per_host;
  if (l.spread.hosts > 1) l.ports = std::min(l.ports, whole_.ports * part);
  if (!l.switched && l.spread.per_host > 1) {
    l.rings = std::min(l.rings, whole_.rings * part);
    l.exchange = std::min(l.exchange, whole_.exchange);
  }
  return links_.emplace(shape, l).first->second;
}

const GroupPrice& GroupPrices::price(const GroupShape& shape, Coll coll, DataType type, double bytes) {
  const auto key = std::tuple(shape, coll, type, static_cast<uint64_t>(std::llround(bytes)));
  if (const auto it = prices_.find(key); it != prices_.end()) return it->second;
  GroupPrice price;
  const double n = static_cast<double>(size_of(shape));
  if (n > 1) {
    const Links& l = links(shape);
    CallShape call{coll, type, RedOp::sum, 0, 1};
    call.count = count_of(call, std::max<uint64_t>(1, std::get<3>(key)), l.spread.ranks);
    const Prediction p = predict(call, l, constants_);
    // Where no program of ours serves, what no algorithm exceeds.
    price.us = p.best() ? p.best()->price.us() : p.roof.us;
    price.algorithm = p.best() ? p.best()->algorithm : "none";
    const double g = l.spread.hosts > 1 ? l.spread.per_host : n;
    if (coll == Coll::all_to_all) {
      price.near_bytes = bytes * (g - 1) / n;
      price.far_bytes = bytes * (n - g) / n;
    } else {
      const double sent = bytes * (coll == Coll::broadcast    ? 1
                                   : coll == Coll::all_reduce ? 2 * (n - 1) / n
                                                              : (n - 1) / n);
      price.far_bytes = l.spread.hosts > 1 ? sent / g : 0;
      price.near_bytes = sent - price.far_bytes;
    }
  }
  return prices_.emplace(key, price).first->second;
}

}  // namespace muster
