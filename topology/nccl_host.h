// One host of a file of NCCL's: the elements of its <cpu>s become nodes (nccl_host.cpp), which are joined and
// named when all are known (nccl_host_join.cpp). Part of read_nccl_xml.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/xml.h"
#include "topology/machine.h"
#include "topology/notes.h"

namespace muster::topology {

// Links that one GPU says it has.
struct SaidLink {
  int gpu = kNone;
  LinkKind kind = LinkKind::nvlink;
  std::string target;
  std::optional<uint64_t> target_class;
  int count = 0;
  pugi::xml_node at;
};

struct SaidPciLink {
  int from = kNone;
  std::string target;
  pugi::xml_node at;
};

// One host: its nodes are gathered first, parents before children, and joined and named when all are known.
class HostReader {
 public:
  explicit HostReader(const XmlDocument& doc) : doc_(doc) {}

  void add_cpu(pugi::xml_node n);
  Machine finish();

  Machine m;

 private:
  void add_pci(pugi::xml_node n, int parent);
  void add_gpu(pugi::xml_node n, int parent, const Pci& pci);
  void add_bare_gpu(pugi::xml_node n, int parent, const Pci& pci);
  void add_nic(pugi::xml_node n, int parent, const std::optional<Pci>& pci);
  bool add_port(pugi::xml_node n, int nic, const std::optional<Pci>& pci, std::vector<int>& ports);
  void add_c2c(pugi::xml_node n, int gpu);
  void add_said_link(pugi::xml_node n, int gpu);
  Pci read_pci(pugi::xml_node n);
  std::vector<int> read_affinity(pugi::xml_node n);
  int new_node(Kind kind, int parent, std::optional<Pci> pci, decltype(Node::detail) detail,
               pugi::xml_node at);

  void number_gpus();
  void give_ports();
  void join_gpus();
  void join_switches();
  void mark_implausible();
  void name_nodes();
  void sort_by_number();
  std::vector<double> needs() const;

  template <class... Args>
  void note(Severity s, const char* id, std::string_view kind, pugi::xml_node at, std::string_view remedy,
            fmt::format_string<Args...> text, Args&&... args) {
    if (!notes_.again(id, kind))
      notes_.add({s, id, doc_.where(at),
                  fmt::format("<{}>: {}", at.name(), fmt::format(text, std::forward<Args>(args)...)),
                  std::string(remedy)});
  }
  void missing(pugi::xml_node n, const char* attribute, std::string_view instead) {
    note(Severity::note, "missing-attribute", fmt::format("{} {}", n.name(), attribute), n,
         "Complete the file, or load it into NCCL, which asks the running system.",
         "attribute '{}' is missing: {}", attribute, instead);
  }
  void skip(pugi::xml_node n) {
    if (n.type() != pugi::node_element) return;
    note(Severity::note, "unknown-element", fmt::format("{} in {}", n.name(), n.parent().name()), n, "",
         "not known within <{}>, and left out", n.parent().name());
  }
  std::optional<int> whole(pugi::xml_node n, const char* attribute, int least, int most) {
    const auto v = doc_.integer(n, attribute, least, most);
    return v ? std::optional<int>(static_cast<int>(*v)) : std::nullopt;
  }
  Answer3 answer(pugi::xml_node n, const char* attribute) {
    const auto v = doc_.integer(n, attribute, INT32_MIN, INT32_MAX);
    return !v ? Answer3::unknown : *v > 0 ? Answer3::yes : Answer3::no;
  }

  const XmlDocument& doc_;
  Notes notes_;
  std::vector<pugi::xml_node> at_;  // of each node
  int numa_count_ = 0;
  std::map<int, int> numas_;  // by the system's number
  std::map<PciAddress, int> addresses_, gpus_;
  std::map<std::pair<std::string, int>, int> virtual_ports_;  // those without PCI, by name and number
  std::vector<int> bare_gpus_, bare_nics_;
  std::vector<SaidLink> said_;
  std::vector<SaidPciLink> said_pci_;
};

}  // namespace muster::topology
