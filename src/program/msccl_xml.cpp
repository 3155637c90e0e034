#include "program/msccl_xml.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/text.h"
#include "program/checker.h"
#include "program/msccl_algorithm.h"

namespace muster {
namespace {

constexpr std::array<std::pair<std::string_view, Coll>, 6> kCollectives = {{{"allreduce", Coll::all_reduce},
                                                                           {"allgather", Coll::all_gather},
                                                                           {"reduce_scatter", Coll::reduce_scatter},
                                                                           {"broadcast", Coll::broadcast},
                                                                           {"reduce", Coll::reduce},
                                                                           {"alltoall", Coll::all_to_all}}};

struct Kind {
  std::string_view name;
  bool receives, sends, reads, adds_to, stores;
};
constexpr std::array<Kind, 9> kKinds = {{{"s", false, true, true, false, false},
                                         {"r", true, false, false, false, true},
                                         {"cpy", false, false, true, false, true},
                                         {"re", false, false, true, true, true},
                                         {"rcs", true, true, false, false, true},
                                         {"rrc", true, false, true, false, true},
                                         {"rrs", true, true, true, false, false},
                                         {"rrcs", true, true, true, false, true},
                                         {"nop", false, false, false, false, false}}};

class AlgorithmReader {
 public:
  AlgorithmReader(std::string_view text, const std::string& name) : d_(text, name) {}

  ProgramSet read() {
    const pugi::xml_node root = d_.root();
    if (!is(root, "algo")) d_.refuse(root, "no MSCCL algorithm, which begins with <algo>");
    ProgramSet set;
    set.name = printable(trim(d_.text(root, "name").value_or("msccl")), kMostProgramName);
    for (char& c : set.name)
      if (c == ',') c = ';';  // separates names where one is chosen
    if (!is_program_name(set.name)) d_.refuse(root, "name=\"{}\" is no name for a program", set.name);
    set.idea = "an MSCCL algorithm";
    read_header(root);
    // 0 is no bound, as RCCL's reader has it.
    set.min_bytes = static_cast<uint64_t>(d_.integer(root, "minBytes", 0, INT64_MAX).value_or(0));
    const int64_t most = d_.integer(root, "maxBytes", 0, INT64_MAX).value_or(0);
    if (most) set.max_bytes = static_cast<uint64_t>(most);
    if (set.max_bytes < set.min_bytes) d_.refuse(root, "maxBytes={} is less than minBytes={}", set.max_bytes, set.min_bytes);
    read_gpus(root);
    set.programs = msccl_programs(algorithm_, d_, set.name);
    set.in_place = algorithm_.in_place || check(set.programs, {.in_place = true}).ok;
    return set;
  }

 private:
  int64_t required(pugi::xml_node n, const char* attribute, int64_t least, int64_t most) const {
    d_.required_text(n, attribute);
    const auto v = d_.integer(n, attribute, least, most);
    if (!v) d_.refuse(n, "{} is empty", attribute);
    return *v;
  }

  void read_header(pugi::xml_node root) {
    const std::string_view coll = d_.required_text(root, "coll");
    const auto at = std::find_if(kCollectives.begin(), kCollectives.end(), [&](const auto& c) { return c.first == coll; });
    if (at == kCollectives.end()) {
      std::vector<std::string_view> known;
      for (const auto& c : kCollectives) known.push_back(c.first);
      d_.refuse(root, "coll=\"{}\" is not a collective that can be run. Possible are: {}", printable(coll, 60), fmt::join(known, ", "));
    }
    algorithm_.coll = at->second;
    const auto n = required(root, "ngpus", 1, kMostProgramRanks);
    algorithm_.gpus.resize(static_cast<size_t>(n));
    algorithm_.chunks = static_cast<uint32_t>(required(root, "nchunksperloop", 1, kMostProgramCells));
    if (!splits_count(algorithm_.coll) && algorithm_.chunks % n)
      d_.refuse(root, "nchunksperloop={} is no multiple of ngpus={}, as {} needs", algorithm_.chunks, n, coll);
    algorithm_.root = static_cast<int>(d_.integer(root, "root", 0, n - 1).value_or(0));
    algorithm_.in_place = d_.integer(root, "inplace", 0, 1).value_or(0) != 0;
  }

  void read_gpus(pugi::xml_node root) {
    std::vector<bool> seen(algorithm_.gpus.size());
    const auto most = static_cast<int64_t>(seen.size()) - 1;
    for (const pugi::xml_node n : root.children()) {
      if (n.type() != pugi::node_element) continue;
      if (!is(n, "gpu")) d_.refuse(n, "only <gpu> is known in <algo>");
      const auto id = static_cast<size_t>(required(n, "id", 0, most));
      if (seen[id]) d_.refuse(n, "gpu {} is there twice", id);
      seen[id] = true;
      read_gpu(n, algorithm_.gpus[id], static_cast<int>(id));
    }
    for (size_t i = 0; i < seen.size(); ++i)
      if (!seen[i]) d_.refuse(root, "gpu {} is missing, of ngpus={}", i, seen.size());
  }

  void read_gpu(pugi::xml_node node, MscclGpu& gpu, int id) {
    gpu.at = node;
    gpu.scratch = static_cast<uint32_t>(d_.integer(node, "s_chunks", 0, kMostProgramCells).value_or(0));
    std::map<int64_t, int> index_of;  // by threadblock id
    std::map<std::pair<int, int>, size_t> sender, receiver;
    for (const pugi::xml_node n : node.children()) {
      if (n.type() != pugi::node_element) continue;
      if (!is(n, "tb")) d_.refuse(n, "only <tb> is known in <gpu>");
      const int64_t tb = required(n, "id", 0, INT32_MAX);
      if (!index_of.emplace(tb, static_cast<int>(gpu.blocks.size())).second) d_.refuse(n, "threadblock {} of gpu {} is there twice", tb, id);
      MscclBlock b;
      b.at = n;
      const auto most = static_cast<int64_t>(algorithm_.gpus.size()) - 1;
      b.send = static_cast<int>(d_.integer(n, "send", -1, most).value_or(-1));
      b.recv = static_cast<int>(d_.integer(n, "recv", -1, most).value_or(-1));
      b.channel = static_cast<int>(d_.integer(n, "chan", -1, INT16_MAX).value_or(0));
      if (b.send == id || b.recv == id) d_.refuse(n, "gpu {} can't send to itself or receive from itself", id);
      if (b.send >= 0 && !sender.emplace(std::pair(b.send, b.channel), gpu.blocks.size()).second)
        d_.refuse(n, "two threadblocks of gpu {} send to gpu {} on channel {}", id, b.send, b.channel);
      if (b.recv >= 0 && !receiver.emplace(std::pair(b.recv, b.channel), gpu.blocks.size()).second)
        d_.refuse(n, "two threadblocks of gpu {} receive from gpu {} on channel {}", id, b.recv, b.channel);
      for (const pugi::xml_node s : n.children()) {
        if (s.type() != pugi::node_element) continue;
        if (!is(s, "step")) d_.refuse(s, "only <step> is known in <tb>");
        b.steps.push_back(read_step(s, b, b.steps.size()));
      }
      gpu.blocks.push_back(std::move(b));
    }
    // Threadblocks may wait for later ones.
    for (MscclBlock& b : gpu.blocks)
      for (MscclStep& s : b.steps) {
        if (s.dep_block < 0) continue;
        const auto at = index_of.find(s.dep_block);
        if (at == index_of.end()) d_.refuse(s.at, "depid=\"{}\" names no threadblock of gpu {}", s.dep_block, id);
        s.dep_block = at->second;
        const MscclBlock& other = gpu.blocks[static_cast<size_t>(s.dep_block)];
        if (s.dep_step < 0 || s.dep_step >= static_cast<int>(other.steps.size()))
          d_.refuse(s.at, "deps=\"{}\" names no step of threadblock {}, which has {}", s.dep_step, at->first, other.steps.size());
      }
  }

  MscclStep read_step(pugi::xml_node n, const MscclBlock& b, size_t index) {
    if (const auto s = d_.integer(n, "s", 0, INT32_MAX); s && static_cast<size_t>(*s) != index)
      d_.refuse(n, "s=\"{}\": step {} of its threadblock was expected here", *s, index);
    const std::string_view type = d_.required_text(n, "type");
    const auto kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) { return k.name == type; });
    if (kind == kKinds.end()) {
      std::vector<std::string_view> known;
      for (const Kind& k : kKinds) known.push_back(k.name);
      d_.refuse(n, "type=\"{}\" is not known. There are: {}", printable(type, 60), fmt::join(known, ", "));
    }
    MscclStep s;
    s.at = n;
    s.receives = kind->receives;
    s.sends = kind->sends;
    s.reads = kind->reads;
    s.adds_to = kind->adds_to;
    s.stores = kind->stores;
    s.dep_block = static_cast<int>(d_.integer(n, "depid", -1, INT32_MAX).value_or(-1));
    s.dep_step = static_cast<int>(d_.integer(n, "deps", -1, INT32_MAX).value_or(-1));
    if (s.sends && b.send < 0) d_.refuse(n, "type=\"{}\" sends, and its threadblock has no send peer", type);
    if (s.receives && b.recv < 0) d_.refuse(n, "type=\"{}\" receives, and its threadblock has no recv peer", type);
    if (s.combines() && !reduces(algorithm_.coll)) d_.refuse(n, "type=\"{}\" reduces, and {} doesn't", type, name_of(algorithm_.coll));
    if (s.reads) s.src_buffer = place(n, "srcbuf", "srcoff", &s.src);
    if (s.stores) s.dst_buffer = place(n, "dstbuf", "dstoff", &s.dst);
    if (s.reads || s.stores) s.count = static_cast<uint32_t>(d_.integer(n, "cnt", 1, kMostProgramCells).value_or(1));
    if (s.reads || s.stores) pieces_ += s.count;
    if (pieces_ > kMostProgramPieces) d_.refuse(n, "more than {} chunks in all steps (cnt)", kMostProgramPieces);
    return s;
  }

  char place(pugi::xml_node n, const char* buffer, const char* offset, uint32_t* to) const {
    const std::string_view b = d_.required_text(n, buffer);
    if (b != "i" && b != "o" && b != "s") d_.refuse(n, "{}=\"{}\": i (input), o (output) and s (scratch) are known", buffer, printable(b, 60));
    *to = static_cast<uint32_t>(required(n, offset, 0, kMostProgramCells));
    return b[0];
  }

  XmlDocument d_;
  MscclAlgorithm algorithm_;
  size_t pieces_ = 0;
};

}  // namespace

ProgramSet read_msccl_xml(std::string_view text, const std::string& name) { return AlgorithmReader(text, name).read(); }

}  // namespace muster
