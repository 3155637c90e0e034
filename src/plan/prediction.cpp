#include "plan/prediction.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"

namespace muster {
namespace {

// No fewer bytes than the result needs: of a rank inside a host, of a host among hosts.
Roof roof_of(const CallShape& call, const Links& l, double data, const Constants& k) {
  const double n = l.spread.ranks, g = l.spread.per_host, hosts = l.spread.hosts;
  double rank = 0, host = 0;
  switch (call.coll) {
    case Coll::all_reduce:
      rank = 2 * (n - 1) / n * data;
      host = 2 * (hosts - 1) / hosts * data;
      break;
    case Coll::reduce_scatter:
    case Coll::all_gather:
    case Coll::gather:
    case Coll::scatter:
      rank = (n - 1) / n * data;
      host = (n - g) / n * data;
      break;
    case Coll::all_to_all:
      rank = (n - 1) / n * data;
      host = g * (n - g) / n * data;
      break;
    default:
      rank = host = data;
  }
  // Links and ports of a rank work at the same time.
  const double near =
      std::max(l.exchange, l.rings) *
      (l.near == Near::nvlink ? 1 : k(l.near == Near::pcie ? "gpu.pcie.share" : "gpu.cpu.share"));
  const double near_us = l.spread.per_host > 1 ? rank / near / 1e3 : 0;
  const double far_us = l.spread.hosts > 1 ? host / l.ports / 1e3 : 0;
  Roof r;
  if (n == 1) {
    r.what = "nothing: there is one rank";
    return r;
  }
  r.us = std::max(near_us, far_us);
  r.what = far_us > near_us
               ? fmt::format("the ports of a host together: {:.4g} GB/s each way", l.ports)
               : fmt::format("the {} links of a GPU: {:.4g} GB/s each way", name_of(l.near), near);
  return r;
}

uint64_t message_bytes(Protocol p, const Constants& k) {
  return static_cast<uint64_t>(k(fmt::format("gpu.{}.message", lower(name_of(p)))));
}

// As many channels as links take, and not so many that they have too little to do.
void set_channels(Candidate& c, const CallShape& call, const Links& l, double data, const Constants& k,
                  const PredictOptions& o) {
  const double of_links = l.spread.per_host > 1 ? l.rings : l.ports;
  const int wanted =
      std::max(l.near_channels,
               static_cast<int>(std::ceil(of_links / k(fmt::format("gpu.channel.{}", generation(l.sm))))));
  // Each port has as many of them as the others.
  const int links =
      std::clamp(l.spread.hosts > 1 ? (wanted + l.port_count - 1) / l.port_count * l.port_count : wanted, 1,
                 o.most_channels);
  c.channels = std::clamp(static_cast<int>(data / k("gpu.channel.least")), 1, links);
  const double part = data / l.spread.ranks / c.channels;
  c.chunk_bytes = std::max<uint64_t>(
      size_of(call.type),
      static_cast<uint64_t>(std::min(part, static_cast<double>(message_bytes(c.protocol, k)))));
}

std::string obstacle_of(const Algorithm& a, const Links& l, Protocol protocol, double data,
                        const Constants& k) {
  if (const uint64_t most = message_bytes(protocol, k); a.whole && data > static_cast<double>(most))
    return fmt::format("for data of one message: up to {} bytes", most);
  const std::string_view name = a.name;
  if (l.spread.ranks > kMostDirect && (name == "one_shot" || name == "direct" || name == "scatter_gather") &&
      a.coll != Coll::gather && a.coll != Coll::scatter)
    return fmt::format("for up to {} ranks", kMostDirect);
  return name == "hierarchical" ? obstacle(l.spread.hosts, l.spread.per_host) : "";
}

std::optional<Protocol> protocol_named(const std::string& name) {
  for (const Protocol p : kProtocols)
    if (lower(name) == lower(name_of(p))) return p;
  return std::nullopt;
}

void check_names(const CallShape& call, const PredictOptions& o) {
  if (!o.algorithm.empty() && !find_algorithm(call.coll, o.algorithm)) {
    std::vector<std::string_view> names;
    for (const Algorithm& a : algorithms())
      if (a.coll == call.coll) names.push_back(a.name);
    fail(Result::invalid_argument, "{} has no algorithm '{}'. There are: {}", name_of(call.coll),
         printable(o.algorithm, 60), fmt::join(names, ", "));
  }
  if (!o.protocol.empty() && !protocol_named(o.protocol))
    fail(Result::invalid_argument, "'{}' is no protocol. There are: LL, LL128, simple",
         printable(o.protocol, 60));
}

}  // namespace

double Prediction::busbw(double us) const { return algbw(us) * bus_factor(call.coll, links.spread.ranks); }

Prediction predict(const CallShape& call, const Links& links, const Constants& constants,
                   const PredictOptions& o) {
  check_names(call, o);
  Prediction p;
  p.call = call;
  p.links = links;
  p.data_bytes = data_bytes(call.coll, links.spread.ranks, call.count, size_of(call.type));
  p.roof = roof_of(call, links, p.data_bytes, constants);
  for (const Algorithm& a : algorithms()) {
    if (a.coll != call.coll) continue;
    const std::optional<Work> work = work_of(a, links.spread, p.data_bytes);
    if (!work) continue;
    for (const Protocol protocol : kProtocols) {
      Candidate c;
      c.algorithm = a.name;
      c.known = &a;
      c.protocol = protocol;
      c.price = gpu_price(*work, links, protocol, constants, o.per_thread);
      c.obstacle = obstacle_of(a, links, protocol, p.data_bytes, constants);
      if (c.obstacle.empty()) c.obstacle = obstacle(protocol, links);
      if (c.obstacle.empty() && !o.algorithm.empty() && o.algorithm != a.name)
        c.obstacle = "another algorithm is forced";
      if (c.obstacle.empty() && !o.protocol.empty() && protocol_named(o.protocol) != protocol)
        c.obstacle = "another protocol is forced";
      set_channels(c, call, links, p.data_bytes, constants, o);
      p.candidates.push_back(std::move(c));
    }
  }
  if (call.coll == Coll::all_reduce && can_reduce_in_switch(links)) {
    Candidate c;
    c.algorithm = "in_switch";
    c.price = in_switch_price(links, p.data_bytes, constants, o.per_thread);
    c.obstacle = "sums in the NVSwitches (NVLS): Muster has no program for it";
    set_channels(c, call, links, p.data_bytes, constants, o);
    p.candidates.push_back(std::move(c));
  }
  // Equal prices keep the table's order, so every rank has the same first.
  std::stable_sort(p.candidates.begin(), p.candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.obstacle.empty() != b.obstacle.empty() ? a.obstacle.empty() : a.price.us() < b.price.us();
  });
  return p;
}

uint64_t count_of(const CallShape& call, uint64_t bytes, int nranks) {
  const uint64_t per_element =
      size_of(call.type) *
      (splits_count(call.coll) || call.coll == Coll::send_recv ? 1 : static_cast<uint64_t>(nranks));
  return std::max<uint64_t>(1, bytes / per_element);
}

std::vector<SizeRow> predict_sizes(CallShape call, uint64_t smallest, uint64_t largest, const Links& links,
                                   const Constants& constants, const PredictOptions& o) {
  if (smallest == 0 || smallest > largest)
    fail(Result::invalid_argument, "sizes from {} to {} bytes: 1 or more are wanted, ascending", smallest,
         largest);
  std::vector<SizeRow> rows;
  for (uint64_t bytes = smallest;; bytes *= 2) {
    call.count = count_of(call, bytes, links.spread.ranks);
    rows.push_back({bytes, predict(call, links, constants, o)});
    if (bytes > largest / 2) break;
  }
  return rows;
}

}  // namespace muster
