#include "topology/json.h"

#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/json_document.h"

namespace muster::topology {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
using NamedValue = std::pair<std::string_view, T>;

constexpr std::array<NamedValue<Kind>, 7> kKinds = {{{"numa", Kind::numa},
                                               {"host_bridge", Kind::host_bridge},
                                               {"pci_switch", Kind::pci_switch},
                                               {"gpu", Kind::gpu},
                                               {"nvswitch", Kind::nvswitch},
                                               {"nic", Kind::nic},
                                               {"port", Kind::port}}};
constexpr std::array<NamedValue<LinkKind>, 6> kLinks = {{{"nvlink", LinkKind::nvlink},
                                                   {"xgmi", LinkKind::xgmi},
                                                   {"c2c", LinkKind::c2c},
                                                   {"pcie", LinkKind::pcie},
                                                   {"cpu", LinkKind::cpu},
                                                   {"network", LinkKind::network}}};
constexpr std::array<NamedValue<Network>, 5> kNetworks = {{{"unknown", Network::unknown},
                                                     {"infiniband", Network::infiniband},
                                                     {"roce", Network::roce},
                                                     {"ethernet", Network::ethernet},
                                                     {"efa", Network::efa}}};
constexpr std::array<NamedValue<Answer3>, 3> kAnswers = {
    {{"unknown", Answer3::unknown}, {"no", Answer3::no}, {"yes", Answer3::yes}}};
constexpr std::array<NamedValue<CpuArch>, 4> kArchs = {{{"unknown", CpuArch::unknown},
                                                  {"x86_64", CpuArch::x86_64},
                                                  {"arm64", CpuArch::arm64},
                                                  {"ppc64", CpuArch::ppc64}}};
constexpr std::array<NamedValue<Source>, 4> kSources = {{{"measured", Source::measured},
                                                   {"read", Source::read},
                                                   {"table", Source::table},
                                                   {"assumed", Source::assumed}}};
constexpr std::array<NamedValue<Severity>, 3> kSeverities = {
    {{"note", Severity::note}, {"warning", Severity::warning}, {"error", Severity::error}}};

template <class T, size_t N>
std::string word_of(const std::array<NamedValue<T>, N>& words, T value) {
  for (const auto& [word, v] : words)
    if (v == value) return std::string(word);
  return std::string(words[0].first);
}

// A member is written where it differs from what a reader takes if it isn't there.
template <class V>
void put(Json& to, const char* name, const V& value, const V& unknown = {}) {
  if (value != unknown) to[name] = value;
}
template <class T, size_t N>
void put_word(Json& to, const char* name, const std::array<NamedValue<T>, N>& words, T value, T unknown) {
  if (value != unknown) to[name] = word_of(words, value);
}
void put_hex(Json& to, const char* name, uint64_t v) {
  if (v) to[name] = fmt::format("{:#x}", v);
}

Json json_of(const Finding& f) {
  return {{"severity", word_of(kSeverities, f.severity)},
          {"id", f.id},
          {"where", f.where},
          {"text", f.text},
          {"remedy", f.remedy}};
}

Json json_of(const std::vector<Finding>& findings) {
  Json all = Json::array();
  for (const Finding& f : findings) all.push_back(json_of(f));
  return all;
}

Json json_of(const Pci& p) {
  Json j = {{"address", p.address.text()}};
  put_hex(j, "class", p.class_code);
  put_hex(j, "vendor", p.vendor);
  put_hex(j, "device", p.device);
  put_hex(j, "subsystem_vendor", p.subsystem_vendor);
  put_hex(j, "subsystem_device", p.subsystem_device);
  put(j, "gigatransfers_per_s", p.gigatransfers);
  put(j, "lanes", p.lanes);
  return j;
}

struct DetailWriter {
  Json& to;
  void operator()(std::monostate) const {}
  void operator()(const Numa& n) const {
    put(to, "os_index", n.os_index, kNone);
    put(to, "package", n.package, kNone);
    if (!n.cpus.empty()) to["cpus"] = n.cpus;
    put(to, "memory_bytes", n.memory_bytes);
    put_word(to, "arch", kArchs, n.arch, CpuArch::unknown);
    put(to, "vendor", n.vendor);
    put(to, "family", n.family, kNone);
    put(to, "model", n.model, kNone);
    put(to, "allowed", n.allowed, true);
  }
  void operator()(const Gpu& g) const {
    put(to, "index", g.index, kNone);
    put(to, "sm", g.sm);
    put(to, "gcn", g.gcn);
    put(to, "model_name", g.model);
    put(to, "uuid", g.uuid);
    put(to, "rank", g.rank, kNone);
    put_word(to, "gpudirect", kAnswers, g.gpudirect, Answer3::unknown);
    put(to, "memory_numa", g.memory_numa, kNone);
  }
  void operator()(const NvSwitch& s) const { put(to, "count", s.count, 1); }
  void operator()(const Nic& n) const { put(to, "guid", n.guid); }
  void operator()(const Port& p) const {
    put(to, "device", p.device);
    put(to, "number", p.number, 1);
    put(to, "index", p.index, kNone);
    put_word(to, "network", kNetworks, p.network, Network::unknown);
    put(to, "gbit_per_s", p.gbit_per_s);
    put(to, "latency_us", p.latency_us);
    put(to, "guid", p.guid);
    put(to, "interface", p.interface);
    put_word(to, "up", kAnswers, p.up, Answer3::unknown);
    put_word(to, "gpudirect", kAnswers, p.gpudirect, Answer3::unknown);
    put(to, "max_connections", p.max_connections);
    put(to, "collectives", p.collectives);
  }
};

Json json_of(const Machine& m) {
  Json j = Json::object();
  put(j, "name", m.name);
  put_hex(j, "host_hash", m.host_hash);
  j["nodes"] = Json::array();
  for (const Node& n : m.nodes) {
    Json to = {{"name", n.name}, {"kind", word_of(kKinds, n.kind)}};
    if (n.parent != kNone) to["parent"] = m[n.parent].name;
    if (n.pci) to["pci"] = json_of(*n.pci);
    put(to, "hidden", n.hidden);
    put(to, "made_up", n.made_up);
    std::visit(DetailWriter{to}, n.detail);
    j["nodes"].push_back(std::move(to));
  }
  j["links"] = Json::array();
  for (const Link& l : m.links) {
    Json to = {{"a", m[l.a].name}, {"b", m[l.b].name}, {"kind", word_of(kLinks, l.kind)}};
    put(to, "count", l.count, 1);
    to["gb_per_s"] = l.rate.gb_per_s;
    to["source"] = word_of(kSources, l.rate.source);
    put(to, "latency_us", l.latency_us);
    j["links"].push_back(std::move(to));
  }
  j["findings"] = json_of(m.findings);
  return j;
}

// Bounds that no machine reaches; they keep sums and products of what is read finite.
constexpr int kMost = 1'000'000'000;
constexpr double kMostReal = 1e12;

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& name) : d_(text, name) {}

  Cluster read() {
    JsonFields f(d_, d_.root());
    const JsonValue& version = f.required("muster_topology");
    if (const int64_t v = d_.integer(version, 1, INT64_MAX); v > kJsonSchema)
      d_.refuse(version, "schema {} is newer than this version reads, which is {}", v, kJsonSchema);
    Cluster c;
    f.text("name", &c.name);
    for (const JsonValue& s : list(f.required("shapes"), 100'000))
      c.shapes.push_back(std::make_shared<const Machine>(machine(s)));
    int64_t hosts = 0;
    const JsonValue& groups = f.required("hosts");
    for (const JsonValue& g : list(groups, 1'000'000)) {
      c.hosts.push_back(group(g, static_cast<int>(c.shapes.size())));
      if ((hosts += c.hosts.back().count) > 1'000'000) d_.refuse(g, "more than 1000000 hosts");
    }
    if (c.hosts.empty()) d_.refuse(groups, "at least one host is wanted");
    if (const JsonValue* v = f.find("fabric")) fabric(*v, &c.fabric);
    findings(f.find("findings"), &c.findings);
    f.done();
    return c;
  }

 private:
  const std::vector<JsonValue>& list(const JsonValue& v, size_t most) const {
    if (d_.array(v).size() > most) d_.refuse(v, "more than {} entries", most);
    return v.items;
  }
  void hex(JsonFields& f, const char* name, auto* to, uint64_t most) const {
    const JsonValue* v = f.find(name);
    if (!v) return;
    const uint64_t n = d_.hexadecimal(*v);
    if (n > most) d_.refuse(*v, "{:#x} is more than {:#x}", n, most);
    *to = static_cast<std::remove_pointer_t<decltype(to)>>(n);
  }

  HostGroup group(const JsonValue& v, int shapes) const {
    HostGroup g;
    JsonFields f(d_, v);
    g.shape = static_cast<int>(d_.integer(f.required("shape"), 0, shapes - 1));
    f.integer("count", &g.count, 1, 1'000'000);
    f.text("name", &g.name);
    f.done();
    return g;
  }

  void fabric(const JsonValue& v, Fabric* to) const {
    JsonFields f(d_, v);
    f.word("network", &to->network, kNetworks);
    f.boolean("rails", &to->rails);
    f.integer("hosts_per_leaf", &to->hosts_per_leaf, 0, kMost);
    f.real("oversubscription", &to->oversubscription, 1, kMostReal);
    f.real("gbit_per_s", &to->gbit_per_s, 0, kMostReal);
    f.real("switch_latency_us", &to->latency_us, 0, kMostReal);
    f.integer("hosts_per_nvlink_domain", &to->hosts_per_nvlink_domain, 1, kMost);
    f.word("source", &to->source, kSources);
    f.done();
  }

  void findings(const JsonValue* v, std::vector<Finding>* to) const {
    if (!v) return;
    for (const JsonValue& entry : d_.array(*v)) {
      Finding found;
      JsonFields f(d_, entry);
      f.word("severity", &found.severity, kSeverities);
      f.text("id", &found.id);
      f.text("where", &found.where);
      f.text("text", &found.text);
      f.text("remedy", &found.remedy);
      f.done();
      to->push_back(std::move(found));
    }
  }

  Pci pci(const JsonValue& v) const {
    Pci p;
    JsonFields f(d_, v);
    const JsonValue& address = f.required("address");
    const auto parsed = PciAddress::parse(d_.text(address));
    if (!parsed) d_.refuse(address, "\"{}\" is no PCI address such as 0000:17:00.0", address.text);
    p.address = *parsed;
    hex(f, "class", &p.class_code, 0xffffff);
    hex(f, "vendor", &p.vendor, 0xffff);
    hex(f, "device", &p.device, 0xffff);
    hex(f, "subsystem_vendor", &p.subsystem_vendor, 0xffff);
    hex(f, "subsystem_device", &p.subsystem_device, 0xffff);
    f.real("gigatransfers_per_s", &p.gigatransfers, 0, kMostReal);
    f.integer("lanes", &p.lanes, 0, kMost);
    f.done();
    return p;
  }

  Numa numa(JsonFields& f) const {
    Numa n;
    f.integer("os_index", &n.os_index, kNone, kMost);
    f.integer("package", &n.package, kNone, kMost);
    if (const JsonValue* cpus = f.find("cpus"))
      for (const JsonValue& c : d_.array(*cpus)) n.cpus.push_back(static_cast<int>(d_.integer(c, 0, kMost)));
    if (const JsonValue* v = f.find("memory_bytes")) n.memory_bytes = d_.natural(*v);
    f.word("arch", &n.arch, kArchs);
    f.text("vendor", &n.vendor);
    f.integer("family", &n.family, kNone, kMost);
    f.integer("model", &n.model, kNone, kMost);
    f.boolean("allowed", &n.allowed);
    return n;
  }
  Gpu gpu(JsonFields& f) const {
    Gpu g;
    f.integer("index", &g.index, kNone, kMost);
    f.integer("sm", &g.sm, 0, kMost);
    f.integer("gcn", &g.gcn, 0, kMost);
    f.text("model_name", &g.model);
    f.text("uuid", &g.uuid);
    f.integer("rank", &g.rank, kNone, kMost);
    f.word("gpudirect", &g.gpudirect, kAnswers);
    f.integer("memory_numa", &g.memory_numa, kNone, kMost);
    return g;
  }
  Port port(JsonFields& f) const {
    Port p;
    f.text("device", &p.device);
    f.integer("number", &p.number, 0, kMost);
    f.integer("index", &p.index, kNone, kMost);
    f.word("network", &p.network, kNetworks);
    f.real("gbit_per_s", &p.gbit_per_s, 0, kMostReal);
    f.real("latency_us", &p.latency_us, 0, kMostReal);
    f.text("guid", &p.guid);
    f.text("interface", &p.interface);
    f.word("up", &p.up, kAnswers);
    f.word("gpudirect", &p.gpudirect, kAnswers);
    f.integer("max_connections", &p.max_connections, 0, kMost);
    f.boolean("collectives", &p.collectives);
    return p;
  }

  Node node(const JsonValue& v) {
    Node n;
    JsonFields f(d_, v);
    n.name = d_.text(f.required("name"));
    if (!f.word("kind", &n.kind, kKinds)) f.missing("kind");
    parents_.push_back(f.find("parent"));
    if (const JsonValue* p = f.find("pci")) n.pci = pci(*p);
    f.boolean("hidden", &n.hidden);
    f.boolean("made_up", &n.made_up);
    switch (n.kind) {
      case Kind::numa:
        n.detail = numa(f);
        break;
      case Kind::gpu:
        n.detail = gpu(f);
        break;
      case Kind::port:
        n.detail = port(f);
        break;
      case Kind::nvswitch: {
        NvSwitch s;
        f.integer("count", &s.count, 1, kMost);
        n.detail = s;
        break;
      }
      case Kind::nic: {
        Nic nic;
        f.text("guid", &nic.guid);
        n.detail = nic;
        break;
      }
      case Kind::host_bridge:
      case Kind::pci_switch:
        break;
    }
    f.done();
    return n;
  }

  int named(const JsonValue& v) const {
    const auto at = nodes_.find(d_.text(v));
    if (at == nodes_.end()) d_.refuse(v, "there is no node \"{}\"", v.text);
    return at->second;
  }

  Machine machine(const JsonValue& v) {
    Machine m;
    JsonFields f(d_, v);
    f.text("name", &m.name);
    hex(f, "host_hash", &m.host_hash, UINT64_MAX);
    nodes_.clear();
    parents_.clear();
    const JsonValue& nodes = f.required("nodes");
    for (const JsonValue& n : list(nodes, 1'000'000)) {
      m.nodes.push_back(node(n));
      if (!nodes_.emplace(m.nodes.back().name, static_cast<int>(m.nodes.size()) - 1).second)
        d_.refuse(n, "two nodes named \"{}\"", m.nodes.back().name);
    }
    for (size_t i = 0; i < m.nodes.size(); ++i)
      if (parents_[i]) m.nodes[i].parent = named(*parents_[i]);
    check_parents(m, nodes);
    for (const JsonValue& l : list(f.required("links"), 1'000'000)) m.links.push_back(link(l));
    findings(f.find("findings"), &m.findings);
    f.done();
    return m;
  }

  void check_parents(const Machine& m, const JsonValue& nodes) const {
    const auto upper = [&](int i) { return i == kNone ? kNone : m[i].parent; };
    for (size_t i = 0; i < m.nodes.size(); ++i) {
      const JsonValue& where = parents_[i] ? *parents_[i] : nodes.items[i];
      if (m.nodes[i].kind == Kind::port && m.nodes[i].parent == kNone)
        d_.refuse(where, "a port without 'parent', its card");
      int depth = 0;
      for (int up = m.nodes[i].parent; up != kNone; up = upper(up))
        if (++depth > kMostDepth) d_.refuse(where, "is above itself, or more than {} deep", kMostDepth);
    }
  }

  Link link(const JsonValue& v) const {
    Link l;
    JsonFields f(d_, v);
    l.a = named(f.required("a"));
    l.b = named(f.required("b"));
    if (l.a == l.b) d_.refuse(v, "a link from a node to itself");
    f.word("kind", &l.kind, kLinks);
    f.integer("count", &l.count, 0, kMost);
    f.real("gb_per_s", &l.rate.gb_per_s, 0, kMostReal);
    f.word("source", &l.rate.source, kSources);
    f.real("latency_us", &l.latency_us, 0, kMostReal);
    f.done();
    return l;
  }

  static constexpr int kMostDepth = 256;
  JsonDocument d_;
  std::unordered_map<std::string, int> nodes_;  // of the machine that is being read
  std::vector<const JsonValue*> parents_;       // of its nodes; nullptr: none
};

}  // namespace

std::string write_json(const Cluster& c) {
  Json j = {{"muster_topology", kJsonSchema}};
  put(j, "name", c.name);
  j["shapes"] = Json::array();
  for (const auto& m : c.shapes) j["shapes"].push_back(json_of(*m));
  j["hosts"] = Json::array();
  for (const HostGroup& g : c.hosts) {
    Json to = {{"shape", g.shape}};
    put(to, "count", g.count, 1);
    put(to, "name", g.name);
    j["hosts"].push_back(std::move(to));
  }
  const Fabric& f = c.fabric;
  Json& to = j["fabric"] = Json::object();
  put_word(to, "network", kNetworks, f.network, Network::unknown);
  put(to, "rails", f.rails);
  put(to, "hosts_per_leaf", f.hosts_per_leaf);
  put(to, "oversubscription", f.oversubscription, 1.0);
  put(to, "gbit_per_s", f.gbit_per_s);
  put(to, "switch_latency_us", f.latency_us);
  put(to, "hosts_per_nvlink_domain", f.hosts_per_nvlink_domain, 1);
  put_word(to, "source", kSources, f.source, Source::assumed);
  j["findings"] = json_of(c.findings);
  // Names come from files of others: what isn't UTF-8 in them is replaced.
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Cluster read_json(std::string_view text, const std::string& name) { return JsonReader(text, name).read(); }

}  // namespace muster::topology
