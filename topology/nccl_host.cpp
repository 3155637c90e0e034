#include "topology/nccl_host.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "topology/cpu_set.h"
#include "topology/gpu_chips.h"
#include "topology/nccl_text.h"
#include "topology/network_names.h"

namespace muster::topology {

using pugi::xml_node;

namespace {

constexpr double kMostMbit = 10'000'000;  // 10 Tbit/s: no port of our time comes near
constexpr double kKnownMbit[] = {1000,   2500,    10'000,  20'000,  25'000,  40'000,   50'000,
                                 56'000, 100'000, 200'000, 400'000, 800'000, 1'600'000};

}  // namespace

int HostReader::new_node(Kind kind, int parent, std::optional<Pci> pci, decltype(Node::detail) detail,
                         xml_node at) {
  const int node = static_cast<int>(m.nodes.size());
  if (pci) addresses_.emplace(pci->address, node);
  m.nodes.push_back({.kind = kind, .parent = parent, .pci = std::move(pci), .detail = std::move(detail)});
  at_.push_back(at);
  return node;
}

std::vector<int> HostReader::read_affinity(xml_node n) {
  const auto text = doc_.text(n, "affinity");
  if (!text || trim(*text).empty()) return {};
  auto cpus = parse_cpu_mask(*text);
  if (!cpus)
    doc_.refuse(n, "affinity=\"{}\" is no mask of up to {} CPUs (hexadecimal words of 32 bits)",
                printable(*text, 60), kMostCpus);
  return *std::move(cpus);
}

void HostReader::add_cpu(xml_node n) {
  Numa numa;
  if (const auto id = whole(n, "numaid", -1, 1 << 20))
    numa.os_index = *id;
  else
    missing(n, "numaid", "taken as a NUMA node without a number");
  numa.cpus = read_affinity(n);

  const std::string arch = lower(trim(doc_.text(n, "arch").value_or("")));
  if (arch == "x86_64" || arch == "amd64")
    numa.arch = CpuArch::x86_64;
  else if (arch == "arm64" || arch == "aarch64")
    numa.arch = CpuArch::arm64;
  else if (arch == "ppc64" || arch == "ppc64le")
    numa.arch = CpuArch::ppc64;
  else if (arch.empty())
    missing(n, "arch", "what the CPU interconnect carries is assumed");
  else
    note(Severity::warning, "unknown-cpu", "arch", n, "NCCL knows x86_64, arm64 and ppc64.",
         "arch=\"{}\" isn't known: what the CPU interconnect carries is assumed", printable(arch, 60));

  numa.vendor = doc_.text(n, "vendor").value_or("");
  numa.family = whole(n, "familyid", INT32_MIN, INT32_MAX).value_or(kNone);
  numa.model = whole(n, "modelid", INT32_MIN, INT32_MAX).value_or(kNone);
  if (numa.arch == CpuArch::x86_64) {
    if (numa.vendor.empty())
      missing(n, "vendor", "what the CPU interconnect carries is assumed");
    else if (numa.vendor != "GenuineIntel" && numa.vendor != "AuthenticAMD" &&
             numa.vendor != "CentaurHauls" && numa.vendor.find("Shanghai") == std::string::npos)
      note(Severity::warning, "unknown-cpu", "vendor", n,
           "Vendors are named as CPUID does: GenuineIntel, AuthenticAMD, CentaurHauls, \"  Shanghai  \".",
           "vendor=\"{}\" isn't known: what the CPU interconnect carries is assumed",
           printable(numa.vendor, 60));
    else if (numa.vendor == "GenuineIntel" && (numa.family == kNone || numa.model == kNone))
      missing(n, numa.family == kNone ? "familyid" : "modelid",
              "what the CPU interconnect carries is assumed");
  }

  if (numa_count_++ == static_cast<int>(kMostNumas)) doc_.refuse(n, "more than {} NUMA nodes in one host", kMostNumas);
  const int os_index = numa.os_index;
  const int node = new_node(Kind::numa, kNone, std::nullopt, std::move(numa), n);
  if (os_index >= 0 && !numas_.emplace(os_index, node).second)
    note(Severity::warning, "duplicate-numa", "", n, "Give each <cpu> of a host its own numaid.",
         "numaid=\"{}\" is there twice in one host: both are kept", os_index);
  for (xml_node c : n.children()) {
    if (is(c, "pci"))
      add_pci(c, node);
    else if (is(c, "nic"))
      add_nic(c, node, std::nullopt);
    else
      skip(c);
  }
}

Pci HostReader::read_pci(xml_node n) {
  Pci p;
  const std::string_view id = doc_.required_text(n, "busid");
  if (const auto a = PciAddress::parse(id)) {
    p.address = *a;
  } else if (const auto by_digits = parse_bus_id(id)) {
    p.address = *by_digits;
    note(Severity::note, "odd-bus-id", "", n, "Write bus ids as dddd:bb:dd.f.",
         "busid=\"{}\" isn't of the form dddd:bb:dd.f; read as {}, as NCCL does", printable(id, 60),
         by_digits->text());
  } else {
    doc_.refuse(n, "busid=\"{}\" is no PCI address (dddd:bb:dd.f)", printable(id, 60));
  }
  const auto number = [&](const char* attribute, uint64_t most) {
    const uint64_t v = doc_.hexadecimal(n, attribute).value_or(0);
    if (v > most) doc_.refuse(n, "{}=\"{:#x}\" is more than {:#x}", attribute, v, most);
    return v;
  };
  p.class_code = static_cast<uint32_t>(number("class", 0xffffff));
  p.vendor = static_cast<uint16_t>(number("vendor", 0xffff));
  p.device = static_cast<uint16_t>(number("device", 0xffff));
  p.subsystem_vendor = static_cast<uint16_t>(number("subsystem_vendor", 0xffff));
  p.subsystem_device = static_cast<uint16_t>(number("subsystem_device", 0xffff));

  const std::string_view speed = trim(doc_.text(n, "link_speed").value_or(""));
  p.gigatransfers = parse_link_speed(speed);
  if (p.gigatransfers == 0 && !speed.empty() && !lower(speed).starts_with("unknown"))
    note(Severity::warning, "unreadable-link-speed", speed, n,
         "Write link speeds as the kernel does: \"16.0 GT/s PCIe\".",
         "link_speed=\"{}\" is no speed: that of the third generation is assumed", printable(speed, 60));
  // The kernel says 255 for a width that it doesn't know.
  const int lanes = whole(n, "link_width", INT32_MIN, INT32_MAX).value_or(0);
  if (lanes >= 0 && lanes <= 32)
    p.lanes = lanes;
  else
    note(Severity::warning, "unreadable-link-width", "", n, "",
         "link_width=\"{}\" is no width of a link: 16 lanes are assumed", lanes);
  return p;
}

void HostReader::add_pci(xml_node n, int parent) {
  const Pci pci = read_pci(n);
  if (addresses_.contains(pci.address))
    note(Severity::warning, "duplicate-bus-id", "", n,
         "Give each device its own bus id: NCCL takes both for one.",
         "busid=\"{}\" is there twice in one host: both are kept", pci.address.text());

  std::vector<xml_node> gpus, nics, below, links;
  for (xml_node c : n.children()) {
    if (is(c, "gpu") || is(c, "apu"))
      gpus.push_back(c);
    else if (is(c, "nic"))
      nics.push_back(c);
    else if (is(c, "pci"))
      below.push_back(c);
    else if (is(c, "pcilink"))
      links.push_back(c);
    else
      skip(c);
  }
  const bool device = !gpus.empty() || !nics.empty() || pci.is_gpu() || pci.is_nic();
  if (device && (!below.empty() || (!gpus.empty() && !nics.empty())))
    note(Severity::warning, "device-within-device", "", n,
         "Put devices beside each other under the switch they share.",
         "{} has a device and other devices below it: they are taken to be beside it", pci.address.text());

  if (gpus.size() > 1)
    note(Severity::note, "gpus-of-one-device", "", n, "",
         "{} has {} GPUs: links to it are taken for the first one's", pci.address.text(), gpus.size());

  int below_what = parent;
  for (xml_node g : gpus) add_gpu(g, parent, pci);
  for (xml_node c : nics) add_nic(c, parent, pci);
  if (gpus.empty() && nics.empty()) {
    if (pci.is_gpu()) {
      add_bare_gpu(n, parent, pci);
    } else if (pci.is_nic()) {
      bare_nics_.push_back(new_node(Kind::nic, parent, pci, Nic{}, n));
    } else if (!below.empty() || pci.is_bridge() || pci.class_code == 0) {
      Pci bridge = pci;
      if (!pci.is_bridge() && pci.class_code != 0) bridge.class_code = 0x060400;  // what has devices below it is one
      below_what = new_node(Kind::pci_switch, parent, bridge, {}, n);
      if (below.empty() && pci.class_code == 0)
        note(Severity::note, "unknown-device", "", n,
             "NCCL asks the system when it loads the file; add class=\"0x030200\" for a GPU, \"0x020700\" or "
             "\"0x020000\" for a NIC.",
             "the file doesn't say what {} is: neither class nor <gpu> nor <nic>", pci.address.text());
    } else {
      note(Severity::note, "device-left-out", fmt::format("{:06x}", pci.class_code), n, "",
           "{} of class {:#08x} is neither bridge nor GPU nor NIC, and left out", pci.address.text(),
           pci.class_code);
    }
  }
  for (xml_node l : links) {
    if (below_what == parent)
      skip(l);
    else
      said_pci_.push_back({below_what, std::string(doc_.required_text(l, "target")), l});
  }
  for (xml_node c : below) add_pci(c, below_what);
}

void HostReader::add_bare_gpu(xml_node n, int parent, const Pci& pci) {
  const int gpu =
      new_node(Kind::gpu, parent, pci, Gpu{.sm = compute_capability_of(pci), .gcn = gcn_of(pci)}, n);
  gpus_.emplace(pci.address, gpu);
  bare_gpus_.push_back(gpu);
}

void HostReader::add_gpu(xml_node n, int parent, const Pci& pci) {
  Gpu g;
  if (const auto dev = whole(n, "dev", 0, 1 << 20))
    g.index = *dev;
  else
    missing(n, "dev", "GPUs without a number are counted in the order of their bus ids");
  if (const auto gcn = doc_.text(n, "gcn")) {
    g.gcn = parse_gcn(*gcn);
    if (g.gcn == 0)
      note(Severity::warning, "unknown-gpu", "gcn", n, "",
           "gcn=\"{}\" is no architecture of a GPU: what its links carry is assumed", printable(*gcn, 60));
  }
  // Next to gcn it is the number of compute units.
  if (const auto sm = whole(n, "sm", 0, 100'000); sm && !doc_.text(n, "gcn")) g.sm = *sm;
  if (g.sm == 0 && g.gcn == 0) {
    g.sm = compute_capability_of(pci);
    g.gcn = gcn_of(pci);
    if (g.sm == 0 && g.gcn == 0) missing(n, "sm", "what its NVLinks carry is assumed");
  }
  g.rank = whole(n, "rank", -1, INT32_MAX).value_or(kNone);
  g.gpudirect = answer(n, "gdr");
  const bool numbered = g.index != kNone;
  const int gpu = new_node(Kind::gpu, parent, pci, std::move(g), n);
  gpus_.emplace(pci.address, gpu);
  if (!numbered) bare_gpus_.push_back(gpu);
  for (xml_node c : n.children()) {
    if (is(c, "nvlink") || is(c, "xgmi"))
      add_said_link(c, gpu);
    else if (is(c, "c2c"))
      add_c2c(c, gpu);
    else
      skip(c);
  }
}

void HostReader::add_said_link(xml_node n, int gpu) {
  const std::string_view target = doc_.required_text(n, "target");
  const auto count = whole(n, "count", 0, 4096);
  if (!count) doc_.refuse(n, "attribute 'count' is missing");
  if (*count > 0)
    said_.push_back({gpu, is(n, "xgmi") ? LinkKind::xgmi : LinkKind::nvlink, std::string(target),
                     doc_.hexadecimal(n, "tclass"), *count, n});
}

void HostReader::add_c2c(xml_node n, int gpu) {
  const auto bw = doc_.real(n, "bw", 0, 1e9);
  const auto count = whole(n, "count", 0, 4096);
  if (!bw) doc_.refuse(n, "attribute 'bw' is missing");
  if (!count) doc_.refuse(n, "attribute 'count' is missing");
  if (*bw > 0 && *count > 0)
    m.link({gpu, m.numa_of(gpu), LinkKind::c2c, *count, {*bw * *count / 1000, Source::read}, 0});
}

void HostReader::add_nic(xml_node n, int parent, const std::optional<Pci>& pci) {
  const int nic = new_node(Kind::nic, parent, pci, Nic{}, n);
  std::vector<int> ports;
  bool repeated = false;
  for (xml_node c : n.children()) {
    if (is(c, "net"))
      repeated = !add_port(c, nic, pci, ports) || repeated;
    else
      skip(c);
  }
  if (ports.empty() && repeated) {  // nothing of its own; it has no address
    m.nodes.pop_back();
    at_.pop_back();
    return;
  }
  std::set<std::string> guids;
  for (const int p : ports) guids.insert(m.port(p).guid);
  if (guids.size() == 1) std::get<Nic>(m[nic].detail).guid = *guids.begin();
}

// False if it is a port that another <cpu> has, too.
bool HostReader::add_port(xml_node n, int nic, const std::optional<Pci>& pci, std::vector<int>& ports) {
  Port p;
  p.device = doc_.required_text(n, "name");
  if (p.device.empty()) doc_.refuse(n, "name=\"\" is no name of a network device");
  if (const auto dev = whole(n, "dev", 0, INT32_MAX)) p.index = *dev;
  p.number = whole(n, "port", 0, INT32_MAX).value_or(1);
  p.latency_us = doc_.real(n, "latency", 0, 1e9).value_or(0);
  if (const auto guid = doc_.hexadecimal(n, "guid")) p.guid = fmt::format("{:#x}", *guid);
  p.max_connections = whole(n, "maxconn", INT32_MIN, INT32_MAX).value_or(0);
  p.gpudirect = answer(n, "gdr");
  p.collectives = answer(n, "coll") == Answer3::yes;
  p.network = network_of(pci ? pci->class_code : 0, pci ? pci->vendor : 0, p.device);

  double mbit = doc_.real(n, "speed", -1e18, 1e18).value_or(0);
  if (mbit <= 0) missing(n, "speed", "100 Gbit/s are assumed");
  if (mbit > kMostMbit) {
    const bool in_kbit =
        std::find(std::begin(kKnownMbit), std::end(kKnownMbit), mbit / 1000) != std::end(kKnownMbit);
    note(Severity::warning, "implausible-port-speed", "", n, "speed is in Mbit/s.",
         "speed=\"{}\" would be {:g} Tbit/s: {}", mbit, mbit / 1e6,
         in_kbit ? fmt::format("taken for kbit/s, {:g} Gbit/s", mbit / 1e6)
                 : std::string("not used; 100 Gbit/s are assumed"));
    mbit = in_kbit ? mbit / 1000 : 0;
  }
  p.gbit_per_s = std::max(0.0, mbit / 1000);

  if (!pci) {
    const auto [at, first] = virtual_ports_.try_emplace({p.device, p.index}, nic);
    if (!first && at->second != nic) {
      note(Severity::note, "net-repeated", "", n, "",
           "'{}' has no PCI device and is listed under several <cpu>: it is one, and kept where it is first",
           printable(p.device, 60));
      return false;
    }
  }
  ports.push_back(new_node(Kind::port, nic, std::nullopt, std::move(p), n));
  return true;
}

}  // namespace muster::topology
