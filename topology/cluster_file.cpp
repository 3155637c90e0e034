#include "topology/cluster_file.h"

#include <map>

#include "base/json_document.h"
#include "base/text.h"
#include "topology/host_description.h"
#include "topology/read.h"

namespace muster::topology {
namespace {

constexpr int kMostHosts = 1'000'000, kMostGroups = 10'000;

std::string beside(const std::string& file, const std::string& named) {
  const size_t slash = file.rfind('/');
  if (named.starts_with('/') || slash == std::string::npos) return named;
  return file.substr(0, slash + 1) + named;
}

std::shared_ptr<const Machine> machine_of_file(const JsonDocument& d, const JsonValue& v,
                                               const Loader& load) {
  const std::string path = beside(d.name(), d.text(v));
  try {
    const std::string text = load(path);
    if (recognise(text) == Format::cluster)
      fail(Result::invalid_argument, "it describes a cluster, and a host is wanted");
    Cluster c = read_topology(text, path, load);
    if (c.host_count() != 1)
      fail(Result::invalid_argument, "it has {} hosts, and one is wanted", c.host_count());
    return c.shapes[static_cast<size_t>(c.hosts[0].shape)];
  } catch (const Error& e) {
    d.refuse(v, "{}: {}", printable(path, 300), e.what());
  }
}

std::shared_ptr<const Machine> ready_machine(const JsonDocument& d, const JsonValue& v) {
  if (auto m = ready_host(d.text(v))) return std::make_shared<const Machine>(std::move(*m));
  std::vector<std::string_view> names;
  for (const ReadyHost& r : ready_hosts()) names.push_back(r.name);
  d.refuse(v, "\"{}\" is not known; known are {}", printable(v.text, 60), fmt::join(names, ", "));
}

class ClusterReader {
 public:
  ClusterReader(const JsonDocument& d, const Loader& load) : d_(d), load_(load) {}

  Cluster read() {
    JsonFields f(d_, d_.root());
    d_.integer(f.required("muster_cluster"), 1, 1);
    f.text("name", &c_.name);
    const JsonValue& hosts = f.required("hosts");
    if (d_.array(hosts).empty()) d_.refuse(hosts, "at least one group of hosts is wanted");
    if (hosts.items.size() > kMostGroups) d_.refuse(hosts, "more than {} groups", kMostGroups);
    for (const JsonValue& g : hosts.items) group(g);
    fabric(f.find("fabric"));
    f.done();
    return std::move(c_);
  }

 private:
  void group(const JsonValue& v) {
    JsonFields f(d_, v);
    HostGroup g;
    const JsonValue* count = f.find("count");
    if (count) g.count = static_cast<int>(d_.integer(*count, 1, kMostHosts));
    total_ += g.count;
    if (total_ > kMostHosts) d_.refuse(count ? *count : v, "more than {} hosts", kMostHosts);
    f.text("name", &g.name);
    const JsonValue *ready = f.find("ready"), *file = f.find("file"), *host = f.find("host");
    if ((ready != nullptr) + (file != nullptr) + (host != nullptr) != 1)
      d_.refuse(v, "one of 'ready', 'file' and 'host' is wanted: what the hosts are made of");
    if (g.name.empty()) g.name = c_.hosts.empty() ? "host" : fmt::format("host{}-", c_.hosts.size());
    // One shape for all groups that name the same.
    const std::string key = ready ? "ready " + d_.text(*ready) : file ? "file " + d_.text(*file) : "";
    if (const auto known = shapes_.find(key); known != shapes_.end() && !key.empty()) {
      g.shape = known->second;
    } else {
      g.shape = static_cast<int>(c_.shapes.size());
      c_.shapes.push_back(
          ready  ? ready_machine(d_, *ready)
          : file ? machine_of_file(d_, *file, load_)
                 : std::make_shared<const Machine>(build_host(read_host_description(d_, *host), g.name)));
      shapes_[key] = g.shape;
    }
    f.done();
    c_.hosts.push_back(std::move(g));
  }

  void fabric(const JsonValue* v) {
    Fabric& to = c_.fabric;
    if (v) {
      JsonFields f(d_, *v);
      f.word("network", &to.network, kNetworkWords);
      f.boolean("rails", &to.rails);
      f.integer("hosts_per_leaf", &to.hosts_per_leaf, 0, kMostHosts);
      f.real("oversubscription", &to.oversubscription, 1, 1000);
      f.real("gbit_per_s", &to.gbit_per_s, 0.001, 1e5);
      f.real("switch_latency_us", &to.latency_us, 0, 1e6);
      f.integer("hosts_per_nvlink_domain", &to.hosts_per_nvlink_domain, 1, 10'000);
      f.done();
      to.source = Source::read;
    }
    // What the fabric doesn't say its ports may: the kind that most hosts have.
    std::map<Network, int> kinds;
    for (const HostGroup& g : c_.hosts) {
      const Machine& m = *c_.shapes[static_cast<size_t>(g.shape)];
      for (const int p : m.all(Kind::port)) kinds[m.port(p).network] += g.count;
    }
    if (to.network != Network::unknown) return;
    int most = 0;
    for (const auto& [network, n] : kinds)
      if (network != Network::unknown && n > most) to.network = network, most = n;
  }

  const JsonDocument& d_;
  const Loader& load_;
  Cluster c_;
  std::map<std::string, int> shapes_;
  int64_t total_ = 0;
};

}  // namespace

Cluster read_cluster_file(std::string_view text, const std::string& name, const Loader& load) {
  const JsonDocument d(text, name);
  return ClusterReader(d, load).read();
}

}  // namespace muster::topology
