#include <algorithm>
#include <map>
#include <memory>

#include "base/text.h"
#include "topology/nccl_host.h"
#include "topology/nccl_text.h"
#include "topology/nccl_xml.h"

namespace muster::topology {
namespace {

using pugi::xml_node;

void note_limits(const XmlDocument& doc, Notes& notes) {
  using L = NcclXmlLimits;
  int elements = 0;
  const auto note = [&](xml_node at, std::string_view kind, const std::string& text) {
    if (!notes.again("beyond-nccl-limits", kind))
      notes.add({Severity::note, "beyond-nccl-limits", doc.where(at),
                 fmt::format("<{}>: {}", at.name(), text),
                 "Leave out what NCCL need not know, if the file is for NCCL, too."});
  };
  for (xml_node n = doc.root(); n;) {
    if (n.type() == pugi::node_element) {
      if (++elements == L::elements + 1)
        note(n, "elements", fmt::format("NCCL itself reads only {} elements per host", L::elements));
      int attributes = 0, children = 0;
      for (const auto& a : n.attributes()) {
        if (std::string_view(a.value()).size() > L::text || std::string_view(a.name()).size() > L::text)
          note(n, "text",
               fmt::format(
                   "attribute '{}' has {} characters, and NCCL itself reads only {}", printable(a.name(), 40),
                   std::max(std::string_view(a.value()).size(), std::string_view(a.name()).size()), L::text));
        ++attributes;
      }
      if (std::string_view(n.name()).size() > L::text)
        note(n, "tag", fmt::format("NCCL itself reads only {} characters of a name", L::text));
      for (xml_node c : n.children()) children += c.type() == pugi::node_element;
      if (attributes > L::attributes)
        note(n, "attributes",
             fmt::format("{} attributes, and NCCL itself reads only {}", attributes, L::attributes));
      if (children > L::children)
        note(n, "children",
             fmt::format("{} elements within it, and NCCL itself reads only {}", children, L::children));
    }
    if (n.first_child()) {
      n = n.first_child();
      continue;
    }
    while (n && n != doc.root() && !n.next_sibling()) n = n.parent();
    n = n == doc.root() ? xml_node() : n.next_sibling();
  }
}

}  // namespace

Cluster read_nccl_xml(std::string_view text, const std::string& name) {
  const XmlDocument doc(text, name);
  const xml_node system = doc.root();
  if (!is(system, "system")) doc.refuse(system, "no NCCL topology, which begins with <system>");
  const auto version = doc.integer(system, "version", INT32_MIN, INT32_MAX);
  if (!version) doc.refuse(system, "attribute 'version' is missing: 1, or 2 for RCCL's dialect");
  if (*version != 1 && *version != 2)
    doc.refuse(system, "version=\"{}\" isn't known: 1 is NCCL's, 2 RCCL's", *version);

  Cluster cluster;
  Notes notes;
  std::vector<std::pair<std::string, std::unique_ptr<HostReader>>> hosts;
  std::map<std::string, size_t, std::less<>> by_hash;
  for (xml_node c : system.children()) {
    if (c.type() != pugi::node_element) continue;
    if (is(c, "cpu")) {
      const std::string hash(trim(doc.text(c, "host_hash").value_or("")));
      const auto [at, first] = by_hash.try_emplace(hash, hosts.size());
      if (first) {
        hosts.emplace_back(hash, std::make_unique<HostReader>(doc));
        hosts.back().second->m.host_hash = hash.empty() ? 0 : parse_host_hash(hash);
      }
      hosts[at->second].second->add_cpu(c);
    } else if ((is(c, "gpu") || is(c, "apu")) && c.attribute("net")) {
      doc.refuse(c,
                 "a list of which GPU uses which NIC, as FlagCX has it, and no topology: <gpu> stands within "
                 "<pci> within <cpu>");
    } else if (!notes.again("unknown-element", c.name())) {
      notes.add(
          {Severity::warning, "unknown-element", doc.where(c),
           fmt::format("<{}>: not known within <system>, and left out with all that is in it, as NCCL does",
                       c.name()),
           "Devices stand within <cpu>."});
    }
  }
  if (hosts.empty()) doc.refuse(system, "there is no <cpu> in it: a topology has one for each NUMA node");
  note_limits(doc, notes);
  cluster.findings = notes.take();
  cluster.name = doc.text(system, "name").value_or("");
  for (size_t i = 0; i < hosts.size(); ++i) {
    Machine m = hosts[i].second->finish();
    m.name = hosts.size() == 1 ? cluster.name : fmt::format("host{}", i);
    cluster.hosts.push_back({static_cast<int>(i), 1, m.name});
    cluster.shapes.push_back(std::make_shared<const Machine>(std::move(m)));
  }
  return cluster;
}

}  // namespace muster::topology
