#include "plan/prediction.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"
#include "plan/selection.h"

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
  r.us = std::max(near_us, far_us);
  r.what = far_us > near_us
               ? fmt::format("the ports of a host together: {:.4g} GB/s each way", l.ports)
               : fmt::format("the {} links of a GPU: {:.4g} GB/s each way", name_of(l.near), near);
  return r;
}

uint64_t message_bytes(Protocol p, const Constants& k, const PredictOptions& o) {
  if (p == Protocol::simple && o.simple_message_bytes) return o.simple_message_bytes;
  return static_cast<uint64_t>(k(fmt::format("gpu.{}.message", lower(name_of(p)))));
}

// A channel is a thread block, which moves so much; one of a ring or tree passes each host once. Says what
// the bound on channels takes away.
Links within_channels(Links l, const Work& w, const Constants& k, int most) {
  const double all = most * k(fmt::format("gpu.channel.{}", generation(l.sm)));
  l.rings = std::min(l.rings, all);
  l.exchange = std::min(l.exchange, all);
  l.ports = std::min(l.ports, w.ring || w.tree ? all : all * l.spread.per_host);
  return l;
}

// As many channels as links take, and not so many that they have too little to do. On a ring a channel takes
// a message and sends one in the same step; elsewhere it does one after the other, so that half of the
// channels use the links at a time.
void set_channels(Candidate& c, bool rings, const CallShape& call, const Links& l, double data,
                  const Constants& k, const PredictOptions& o) {
  const double of_links = l.spread.per_host > 1 ? rings ? l.rings : 2 * l.exchange : l.ports;
  const int wanted =
      std::max(l.near_channels,
               static_cast<int>(std::ceil(of_links / k(fmt::format("gpu.channel.{}", generation(l.sm))))));
  // Each port has as many of them as the others, each ring inside a host, and where GPUs have links of their own to
  // each other each peer.
  const int alike = l.spread.hosts > 1                     ? l.port_count
                    : rings                                ? l.near_channels
                    : !l.switched && l.spread.per_host > 1 ? l.spread.per_host - 1
                                                           : 1;
  int links = std::clamp((wanted + alike - 1) / alike * alike, 1, o.most_channels);
  if (rings && l.spread.hosts == 1 && links > alike) links -= links % alike;
  const int least = std::clamp(o.least_channels, 1, o.most_channels);
  c.channels = std::clamp(static_cast<int>(data / k("gpu.channel.least")), least, std::max(least, links));
  const double part = data / l.spread.ranks / c.channels;
  c.chunk_bytes = std::max<uint64_t>(
      size_of(call.type),
      static_cast<uint64_t>(std::min(part, static_cast<double>(message_bytes(c.protocol, k, o)))));
}

std::string obstacle_of(const Algorithm& a, const Links& l, Protocol protocol, double data,
                        const Constants& k, const PredictOptions& o) {
  if (const uint64_t most = message_bytes(protocol, k, o); a.whole && data > static_cast<double>(most))
    return fmt::format("sends all data as one message, so up to {} bytes: these are {:.0f}", most, data);
  if (a.names_all && l.spread.ranks > kMostDirect)
    return fmt::format("joins all ranks with all, so for up to {}: these are {}", kMostDirect,
                       l.spread.ranks);
  return a.by_host ? obstacle(l.spread.hosts, l.spread.per_host) : "";
}

void check_names(const CallShape& call, const PredictOptions& o) {
  if (!o.algorithm.empty() && !find_algorithm(call.coll, o.algorithm)) {
    std::vector<std::string_view> names;
    for (const Algorithm& a : algorithms())
      if (a.coll == call.coll) names.push_back(a.name);
    fail(Result::invalid_argument, "{} has no algorithm '{}'. There are: {}", name_of(call.coll),
         printable(o.algorithm, 60), fmt::join(names, ", "));
  }
}

bool wanted(const Algorithm& a, const CallShape& call, const PredictOptions& o) {
  return o.algorithm.empty() ? is_allowed(call, a) : o.algorithm == a.name;
}

Candidate copy_of(const CallShape& call, const Links& links, double data, const Constants& k,
                  const PredictOptions& o) {
  Candidate c;
  c.algorithm = "copy";
  c.known = &*std::find_if(algorithms().begin(), algorithms().end(),
                           [&](const Algorithm& a) { return a.coll == call.coll && !a.windows; });
  c.price = copy_price(links, data, k, o.per_thread);
  c.chunk_bytes = static_cast<uint64_t>(data);
  return c;
}

}  // namespace

double Prediction::busbw(double us) const { return algbw(us) * bus_factor(call.coll, links.spread.ranks); }

Prediction predict(const CallShape& call, const Links& links, const Constants& constants,
                   const PredictOptions& o) {
  check_names(call, o);
  const std::vector<Protocol> protocols = protocols_of(o.protocol);
  Prediction p;
  p.call = call;
  p.links = links;
  p.data_bytes = data_bytes(call.coll, links.spread.ranks, call.count, size_of(call.type));
  if (links.spread.ranks == 1) {
    p.candidates.push_back(copy_of(call, links, p.data_bytes, constants, o));
    p.roof.us = p.candidates[0].price.transfer_us;
    p.roof.what =
        fmt::format("the GPU's memory: {:.4g} GB/s copied", p.candidates[0].price.near_gbytes_per_s);
    return p;
  }
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
      const Links reached = within_channels(links, *work, constants, o.most_channels);
      c.price = gpu_price(*work, reached, protocol, constants, o.per_thread);
      if ((c.price.bound == Bound::ports && reached.ports < links.ports) ||
          (c.price.bound == Bound::near_links &&
           (reached.rings < links.rings || reached.exchange < links.exchange)))
        c.price.bound = Bound::channels;
      c.obstacle = obstacle_of(a, links, protocol, p.data_bytes, constants, o);
      if (c.obstacle.empty()) c.obstacle = obstacle(protocol, links);
      const bool other_algorithm = !wanted(a, call, o),
                 other_protocol = std::find(protocols.begin(), protocols.end(), protocol) == protocols.end();
      c.unwanted = other_algorithm || other_protocol;
      if (c.obstacle.empty() && c.unwanted)
        c.obstacle = other_algorithm ? "another algorithm is asked for" : "another protocol is asked for";
      set_channels(c, work->ring, call, links, p.data_bytes, constants, o);
      p.candidates.push_back(std::move(c));
    }
  }
  if (call.coll == Coll::all_reduce && can_reduce_in_switch(links)) {
    Candidate c;
    c.algorithm = "in_switch";
    c.price = in_switch_price(links, p.data_bytes, constants, o.per_thread);
    c.obstacle = "sums in the NVSwitches (NVLS): Muster has no program for it";
    set_channels(c, true, call, links, p.data_bytes, constants, o);
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
