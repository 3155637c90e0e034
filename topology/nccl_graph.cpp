#include "topology/nccl_graph.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/text.h"
#include "base/xml.h"
#include "topology/notes.h"

namespace muster::topology {
namespace {

using pugi::xml_node;

class GraphReader {
 public:
  explicit GraphReader(const XmlDocument& doc) : doc_(doc) {}

  ChannelGraphs read() {
    const xml_node root = doc_.root();
    if (!is(root, "graphs")) doc_.refuse(root, "no NCCL graph, which begins with <graphs>");
    const auto version = doc_.integer(root, "version", INT32_MIN, INT32_MAX);
    if (!version) doc_.refuse(root, "attribute 'version' is missing: 1");
    if (*version != 1) doc_.refuse(root, "version=\"{}\" isn't known: 1 is", *version);
    ChannelGraphs r;
    for (xml_node c : root.children()) {
      if (is(c, "graph"))
        r.graphs.push_back(read_graph(c));
      else
        skip(c);
    }
    r.findings = notes_.take();
    return r;
  }

 private:
  void note(Severity s, const char* id, std::string_view kind, xml_node at, const std::string& text) {
    if (!notes_.again(id, kind))
      notes_.add({s, id, doc_.where(at), fmt::format("<{}>: {}", at.name(), text), ""});
  }
  void skip(xml_node n) {
    if (n.type() == pugi::node_element)
      note(Severity::note, "unknown-element", n.name(), n,
           fmt::format("not known within <{}>, and left out", n.parent().name()));
  }
  int64_t required(xml_node n, const char* attribute, int64_t least, int64_t most) {
    const auto v = doc_.integer(n, attribute, least, most);
    if (!v) doc_.refuse(n, "attribute '{}' is missing", attribute);
    return *v;
  }
  // Digits that are hexadecimal without saying so: people mean the number, NCCL reads what is before the
  // first letter.
  int64_t read_device(xml_node n) {
    const std::string_view text = trim(doc_.text(n, "dev").value_or(""));
    int64_t v = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v, 16);
    const bool bare_hex = error == std::errc() && end == text.data() + text.size() &&
                          text.find_first_not_of("0123456789") != text.npos && v >= 0;
    if (!bare_hex) return required(n, "dev", 0, INT64_MAX);
    note(Severity::warning, "bare-hexadecimal", "", n,
         fmt::format("dev=\"{}\" is taken as {}: hexadecimal numbers begin with 0x, and without NCCL reads "
                     "something else",
                     printable(text, 20), v));
    return v;
  }
  PathClass type(xml_node n, const char* attribute) {
    const auto text = doc_.text(n, attribute);
    if (!text) return PathClass::loc;
    const auto c = parse_path_class(trim(*text));
    if (!c)
      doc_.refuse(n, "{}=\"{}\" is no class of paths (LOC, NVL, PIX, PXB, PHB, SYS, ...)", attribute,
                  printable(*text, 60));
    return *c;
  }

  ChannelGraph read_graph(xml_node n) {
    ChannelGraph g;
    g.id = static_cast<int>(required(n, "id", 0, 1000));
    g.pattern_number = static_cast<int>(required(n, "pattern", 0, 1000));
    if (g.pattern_number >= 1 && g.pattern_number <= 6)
      g.pattern = static_cast<GraphPattern>(g.pattern_number);
    else
      note(Severity::note, "unknown-pattern", "", n,
           fmt::format("pattern=\"{}\" isn't known", g.pattern_number));
    g.cross_nic = static_cast<int>(doc_.integer(n, "crossnic", 0, 1000).value_or(0));
    g.same_channels = doc_.integer(n, "samechannels", 0, 1).value_or(0) != 0;
    g.gb_per_s_intra = doc_.real(n, "speedintra", 0, 1e9).value_or(0);
    g.gb_per_s_inter = doc_.real(n, "speedinter", 0, 1e9).value_or(0);
    g.latency_inter_us = doc_.real(n, "latencyinter", 0, 1e9).value_or(0);
    g.type_intra = type(n, "typeintra");
    g.type_inter = type(n, "typeinter");
    for (xml_node c : n.children()) {
      if (is(c, "channel"))
        g.channels.push_back(read_channel(c));
      else
        skip(c);
    }
    if (const auto said = doc_.integer(n, "nchannels", 0, INT32_MAX);
        said && *said != static_cast<int64_t>(g.channels.size()))
      note(Severity::warning, "channel-count", "", n,
           fmt::format("nchannels=\"{}\", and there are {}", *said, g.channels.size()));
    return g;
  }

  GraphChannel read_channel(xml_node n) {
    GraphChannel channel;
    std::vector<int64_t> seen;
    for (xml_node c : n.children()) {
      if (!is(c, "net") && !is(c, "gpu")) {
        skip(c);
        continue;
      }
      const GraphHop hop{is(c, "net"), read_device(c)};
      channel.push_back(hop);
      if (!hop.net) seen.push_back(hop.device);
    }
    std::sort(seen.begin(), seen.end());
    if (std::adjacent_find(seen.begin(), seen.end()) != seen.end())
      note(Severity::warning, "gpu-twice-in-channel", "", n, "a GPU is in it twice");
    return channel;
  }

  const XmlDocument& doc_;
  Notes notes_;
};

std::string path_of(const GraphChannel& c, bool ring) {
  std::string r;
  for (size_t i = 0; i < c.size(); ++i) {
    const bool named = i == 0 || c[i - 1].net != c[i].net;
    r += fmt::format("{}{}{}", i == 0 ? "" : " > ", named ? (c[i].net ? "net " : "GPU ") : "", c[i].device);
  }
  if (ring && c.size() > 1 && !c.front().net) r += fmt::format(" > {}", c.front().device);
  return r;
}

}  // namespace

std::string_view name_of(GraphPattern p) {
  switch (p) {
    case GraphPattern::unknown:
      return "unknown pattern";
    case GraphPattern::balanced_tree:
      return "balanced tree";
    case GraphPattern::split_tree:
      return "split tree";
    case GraphPattern::tree:
      return "tree";
    case GraphPattern::ring:
      return "ring";
    case GraphPattern::nvls:
      return "NVLS";
    case GraphPattern::collnet_direct:
      return "collnet direct";
  }
  return "?";
}

ChannelGraphs read_nccl_graph(std::string_view text, const std::string& name) {
  const XmlDocument doc(text, name);
  return GraphReader(doc).read();
}

std::string describe(const ChannelGraphs& graphs) {
  std::string r;
  for (const ChannelGraph& g : graphs.graphs) {
    const size_t n = g.channels.size();
    if (n == 0) continue;
    const bool between = std::any_of(g.channels.begin(), g.channels.end(),
                                     [](const GraphChannel& c) { return !c.empty() && c.front().net; });
    r += fmt::format("{} (graph {}): {} channel{} of {:g} GB/s by {}", name_of(g.pattern), g.id, n,
                     n == 1 ? "" : "s", g.gb_per_s_intra, name_of(g.type_intra));
    if (between) r += fmt::format(", between hosts {:g} GB/s by {}", g.gb_per_s_inter, name_of(g.type_inter));
    r += '\n';
    std::map<GraphChannel, std::vector<size_t>> same;
    for (size_t i = 0; i < n; ++i) same[g.channels[i]].push_back(i);
    for (size_t i = 0; i < n; ++i) {
      const std::vector<size_t>& numbers = same[g.channels[i]];
      if (numbers.front() != i) continue;
      std::string which;
      for (size_t j = 0; j < numbers.size(); ++j) {
        size_t last = j;  // of those that follow each other
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        which += fmt::format(
            "{}{}", which.empty() ? "" : ", ",
            j == last ? fmt::format("{}", numbers[j]) : fmt::format("{}-{}", numbers[j], numbers[last]));
        j = last;
      }
      r += fmt::format("  {}: {}\n", which, path_of(g.channels[i], g.pattern == GraphPattern::ring));
    }
  }
  return r;
}

}  // namespace muster::topology
