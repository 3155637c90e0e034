#include "topology/read.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "topology/cluster_file.h"
#include "topology/hwloc_xml.h"
#include "topology/json.h"
#include "topology/nccl_xml.h"
#include "topology/smi_matrix.h"

namespace muster::topology {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

void skip_blanks(std::string_view* text) {
  const size_t first = text->find_first_not_of(" \t\r\n\v\f");
  text->remove_prefix(std::min(first, text->size()));
}

void skip_past(std::string_view* text, std::string_view end) {
  const size_t at = text->find(end);
  text->remove_prefix(at == text->npos ? text->size() : at + end.size());
}

// What comes before the document proper: blanks, a byte order mark, comments and declarations of XML and
// JSON.
std::string_view beginning(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (;;) {
    skip_blanks(&text);
    if (text.starts_with("<?"))
      skip_past(&text, "?>");
    else if (text.starts_with("<!--"))
      skip_past(&text, "-->");
    else if (text.starts_with("<!"))
      skip_past(&text, ">");
    else if (text.starts_with("//"))
      skip_past(&text, "\n");
    else if (text.starts_with("/*"))
      skip_past(&text, "*/");
    else
      return text;
  }
}

// "system" of "<system version=...": empty where no element begins.
std::string_view first_element(std::string_view text) {
  text = beginning(text);
  if (!text.starts_with('<')) return {};
  text.remove_prefix(1);
  return text.substr(0, text.find_first_of(" \t\r\n/>"));
}

// The words of a line, without what terminals take for colours ("\033[4m").
std::vector<std::string> words_of(std::string_view line) {
  std::string plain;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\033') {
      plain += line[i];
    } else if (i + 1 < line.size() && line[i + 1] == '[') {
      i += 2;
      while (i < line.size() && (line[i] < '@' || line[i] > '~')) ++i;
    }
  }
  std::vector<std::string> words;
  constexpr std::string_view kBetween = " \t\r\v\f|";  // tables are also drawn with lines
  for (size_t at = plain.find_first_not_of(kBetween); at < plain.size();) {
    const size_t end = std::min(plain.find_first_of(kBetween, at), plain.size());
    words.push_back(plain.substr(at, end - at));
    at = plain.find_first_not_of(kBetween, end);
  }
  return words;
}

bool is_gpu_name(std::string_view word) {
  return word.size() > 3 && word.size() < 9 && word.starts_with("GPU") &&
         std::all_of(word.begin() + 3, word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// A row of a table of GPUs: its name, then at least a cell.
bool has_gpu_table(std::string_view text) {
  for (const std::string_view line : split(text, '\n')) {
    const std::vector<std::string> words = words_of(line.substr(0, 10'000));
    if (words.size() < 2 || !is_gpu_name(words[0])) continue;
    const std::string& cell = words[1];
    const bool all_capitals = std::all_of(
        cell.begin(), cell.end(), [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); });
    if (all_capitals) return true;
  }
  return false;
}

bool is_binary(std::string_view text) { return text.substr(0, 65536).find('\0') != text.npos; }

Format recognise_json(std::string_view text) {
  // The readers check that the member is the outermost object's.
  const size_t cluster = text.find("\"muster_cluster\""), topology = text.find("\"muster_topology\"");
  if (cluster == topology) return Format::unknown;  // neither
  return topology == text.npos || (cluster != text.npos && cluster < topology) ? Format::cluster
                                                                               : Format::json;
}

struct Sign {
  std::string_view sign;  // is somewhere in the text's beginning
  std::string_view what;
};
constexpr std::array<Sign, 12> kSigns = {{
    {"version https://git-lfs", "a pointer of Git LFS instead of the file: fetch it with git lfs pull"},
    {"NCCL INFO", "a debug log of NCCL"},
    {"# nThread", "output of nccl-tests"},
    {"busbw", "output of nccl-tests"},
    {"Driver Version:", "the table of nvidia-smi without arguments: nvidia-smi topo -m is wanted"},
    {"Attached GPUs", "output of nvidia-smi -q: nvidia-smi topo -m is wanted"},
    {"ROCm System Management", "a table of rocm-smi"},
    {"L3 L#", "lstopo's text: lstopo topology.xml writes what can be read"},
    {"PCI bridge:", "output of lspci"},
    {"available: ", "output of numactl"},
    {"hca_id:", "output of ibv_devinfo"},
    {"digraph", "a graph for Graphviz"},
}};

}  // namespace

std::string_view name_of(Format f) {
  switch (f) {
    case Format::unknown:
      return "unknown";
    case Format::nccl_xml:
      return "NCCL topology XML";
    case Format::nccl_graph:
      return "NCCL graph XML";
    case Format::hwloc_xml:
      return "hwloc XML";
    case Format::smi_matrix:
      return "nvidia-smi topo -m";
    case Format::cluster:
      return "Muster cluster description";
    case Format::json:
      return "Muster topology JSON";
  }
  return "?";
}

Format recognise(std::string_view text) {
  if (is_binary(text)) return Format::unknown;
  const std::string_view element = first_element(text);
  if (!element.empty()) {
    // Parts of a file, as people cut them, are their format's: its reader says what is missing.
    for (const std::string_view e : {"system", "cpu", "pci", "gpu", "nic", "net", "nvlink"})
      if (element == e) return Format::nccl_xml;
    if (element == "graphs" || element == "graph" || element == "channel") return Format::nccl_graph;
    if (element == "topology" || element == "root" || element == "object") return Format::hwloc_xml;
    return Format::unknown;
  }
  if (beginning(text).starts_with('{')) return recognise_json(text);
  return has_gpu_table(text) ? Format::smi_matrix : Format::unknown;
}

std::string seems_to_be(std::string_view text) {
  if (trim(text).empty()) return text.empty() ? "empty" : "nothing but blanks";
  for (const Sign& magic : {Sign{"\x7f"
                                 "ELF",
                                 "a program"},
                            {"\x1f\x8b", "compressed with gzip: unpack it"},
                            {"\xfd"
                             "7zXZ",
                             "compressed with xz: unpack it"},
                            {"PK\x03\x04", "a zip archive: unpack it"},
                            {"\x89PNG", "a picture"},
                            {"%PDF", "a PDF file"},
                            {"\xff\xfe", "UTF-16: save it as UTF-8"},
                            {"\xfe\xff", "UTF-16: save it as UTF-8"}})
    if (text.starts_with(magic.sign)) return std::string(magic.what);
  if (is_binary(text)) return "binary";
  const std::string element = lower(first_element(text));
  if (element == "html") return "a web page";
  if (element == "svg") return "a picture (SVG)";
  if (element == "nvidia_smi_log")
    return "output of nvidia-smi -q -x, which has no topology: nvidia-smi topo -m is wanted";
  if (element == "topologydiff") return "a difference of two topologies of hwloc";
  if (!element.empty()) return fmt::format("XML of an unknown kind (<{}>)", printable(element, 60));
  if (beginning(text).starts_with('{') || beginning(text).starts_with('['))
    return "JSON without \"muster_cluster\" or \"muster_topology\"";
  for (const Sign& s : kSigns)
    if (text.substr(0, 1 << 20).find(s.sign) != text.npos) return std::string(s.what);
  std::string_view first = trim(text);
  return fmt::format("text that begins with '{}'", printable(first.substr(0, first.find('\n')), 60));
}

Cluster read_topology(std::string_view text, const std::string& name, const Loader& load) {
  switch (recognise(text)) {
    case Format::cluster:
      return read_cluster_file(text, name, load);
    case Format::json:
      return read_json(text, name);
    case Format::nccl_graph:
      fail(Result::invalid_argument, "{} is NCCL graph XML: it has rings and trees, and no topology", name);
    case Format::nccl_xml:
      return read_nccl_xml(text, name);
    case Format::hwloc_xml:
      return cluster_of(read_hwloc_xml(text, name));
    case Format::smi_matrix:
      return cluster_of(read_smi_matrix(text, name));
    default:
      break;
  }
  fail(Result::invalid_argument,
       "{} is no topology that can be read, but {}. Readable are NCCL topology XML, hwloc XML, nvidia-smi "
       "topo -m, Muster's "
       "cluster descriptions and its topology JSON",
       name, seems_to_be(text));
}

}  // namespace muster::topology
