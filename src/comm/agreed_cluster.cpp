#include "comm/agreed_cluster.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "bootstrap/crypto.h"
#include "bootstrap/wire.h"
#include "topology/json.h"
#include "topology/shape.h"

namespace muster {
namespace {

std::string digest_of(std::string_view text) { return std::string(view(hmac_sha256("muster topology", text))); }

topology::Machine read_shape(const std::string& text, size_t rank) {
  topology::Cluster c = topology::read_json(text, fmt::format("the topology that rank {} sent", rank));
  if (c.shapes.size() != 1)
    fail(Result::internal_error, "rank {} sent a topology of {} hosts in place of its own", rank, c.shapes.size());
  return *c.shapes[0];
}

}  // namespace

AgreedCluster agree_on_cluster(Bootstrap& bootstrap, const std::vector<std::string>& identities,
                               const std::vector<std::string>& names, const std::function<topology::Machine()>& machine,
                               Deadline deadline) {
  AgreedCluster r;
  std::vector<size_t> leaders;  // by host: its first rank
  std::unordered_map<std::string, int> number;
  for (size_t rank = 0; rank < identities.size(); ++rank) {
    const auto [it, first] = number.try_emplace(identities[rank], static_cast<int>(leaders.size()));
    if (first) leaders.push_back(rank);
    r.host_of.push_back(it->second);
  }
  const auto me = static_cast<size_t>(bootstrap.rank());
  std::string mine;
  if (leaders[static_cast<size_t>(r.host_of[me])] == me)
    mine = topology::write_json(topology::cluster_of(topology::shape_of(machine())));

  // First which shapes there are, then each from one rank; a lone host's is known to be the only one.
  std::vector<std::string> digests(identities.size());
  if (leaders.size() > 1) digests = bootstrap.all_gather(mine.empty() ? "" : digest_of(mine), deadline);
  std::unordered_map<std::string, size_t> sender;  // of a shape
  for (const size_t leader : leaders) sender.try_emplace(digests[leader], leader);
  const bool send = !mine.empty() && sender.at(digests[me]) == me;
  const std::vector<std::string> texts = bootstrap.all_gather(send ? mine : "", deadline);

  auto cluster = std::make_shared<topology::Cluster>();
  std::unordered_map<std::string, int> shape;
  std::string everything;
  for (size_t host = 0; host < leaders.size(); ++host) {
    const size_t leader = leaders[host];
    const auto [it, first] = shape.try_emplace(digests[leader], static_cast<int>(cluster->shapes.size()));
    if (first) {
      const std::string& text = texts[sender.at(digests[leader])];
      if (leaders.size() > 1 && digest_of(text) != digests[leader])
        fail(Result::internal_error, "rank {} sent another topology than it had announced", sender.at(digests[leader]));
      cluster->shapes.push_back(std::make_shared<const topology::Machine>(read_shape(text, sender.at(digests[leader]))));
      everything += text;
    }
    cluster->hosts.push_back({it->second, 1, names[leader]});
  }
  Writer w;
  for (size_t rank = 0; rank < identities.size(); ++rank) w.i32(r.host_of[rank]);
  for (const topology::HostGroup& h : cluster->hosts) w.i32(h.shape).text(h.name);
  const Digest d = hmac_sha256("muster cluster", everything + w.take());
  std::memcpy(&r.hash, d.data(), sizeof r.hash);
  r.cluster = std::move(cluster);
  return r;
}

std::string summary(const AgreedCluster& c) {
  size_t ports = 0;
  for (const topology::HostGroup& h : c.cluster->hosts)
    ports += static_cast<size_t>(h.count) * c.cluster->shapes[static_cast<size_t>(h.shape)]->all(topology::Kind::port).size();
  const int hosts = c.cluster->host_count();
  return fmt::format("{} host{} of {} kind{}, {} GPUs, {} network ports; topology {:016x}", hosts, hosts == 1 ? "" : "s", c.cluster->shapes.size(),
                     c.cluster->shapes.size() == 1 ? "" : "s", c.cluster->gpu_count(), ports, c.hash);
}

}  // namespace muster
