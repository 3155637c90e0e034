#include "topology/detect_verbs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace muster::topology {
namespace {

constexpr const char* kMakeUsable =
    "Install rdma-core with the card's provider (Debian: ibverbs-providers); give a container "
    "/dev/infiniband "
    "(docker run --device=/dev/infiniband)";

class VerbsComparison {
 public:
  VerbsComparison(NetworkDevices& network, std::vector<Finding>& findings)
      : network_(network), findings_(findings) {}

  void run(const VerbsAnswer& verbs) {
    if (!verbs.asked) return;
    if (!verbs.found || !verbs.problem.empty()) {
      if (network_.rdma.empty()) return;
      unusable("", verbs.found
                       ? fmt::format("libibverbs can't be asked for RDMA devices: {}", verbs.problem)
                       : fmt::format("{} RDMA devices, but no libibverbs.so.1 that programs use them through",
                                     network_.rdma.size()));
      return;
    }
    for (const RdmaDevice& d : network_.rdma)
      if (std::none_of(verbs.devices.begin(), verbs.devices.end(),
                       [&](const VerbsDevice& v) { return v.name == d.name; }))
        unusable(d.name, "the kernel has this RDMA device, and libibverbs doesn't list it");
    for (const VerbsDevice& v : verbs.devices) device(v);
  }

 private:
  void unusable(const std::string& where, std::string text) {
    findings_.push_back({Severity::warning, "rdma-unusable", where, std::move(text), kMakeUsable});
  }

  void device(const VerbsDevice& v) {
    if (!v.problem.empty())
      unusable(v.name, fmt::format("libibverbs can't open this RDMA device: {}", v.problem));
    auto d = std::find_if(network_.rdma.begin(), network_.rdma.end(),
                          [&](const RdmaDevice& r) { return r.name == v.name; });
    if (d == network_.rdma.end()) {
      findings_.push_back(
          {Severity::note, "rdma-not-in-sysfs", v.name,
           "libibverbs lists this device, but /sys/class/infiniband doesn't: what its card is isn't known",
           "Give the container the host's /sys"});
      d = network_.rdma.insert(d, RdmaDevice{.name = v.name});
    }
    differences_.clear();
    fill(d->guid, v.guid, {}, nullptr);  // sysfs has the card's, libibverbs may have the device's
    fill(d->node_type, v.node_type, 0, "node type");
    for (const VerbsPort& p : v.ports) port(*d, p);
    if (!differences_.empty())
      findings_.push_back(
          {Severity::warning, "verbs-disagrees", v.name,
           fmt::format("/sys and libibverbs differ: {}; /sys is believed", fmt::join(differences_, ", ")),
           "Look again, since a port may just have changed; then compare ibv_devinfo -v with "
           "/sys/class/infiniband"});
  }

  void port(RdmaDevice& d, const VerbsPort& v) {
    auto p =
        std::find_if(d.ports.begin(), d.ports.end(), [&](const RdmaPort& r) { return r.number == v.number; });
    if (p == d.ports.end()) p = d.ports.insert(p, RdmaPort{.number = v.number});
    const std::string of = d.ports.size() > 1 ? fmt::format("port {} ", v.number) : "";
    fill(p->link_layer, v.link_layer, {}, (of + "link layer").c_str());
    fill(p->gids, v.gids, {}, (of + "GID table").c_str());
    if (p->up != Answer3::unknown && v.up != Answer3::unknown && p->up != v.up)
      differences_.push_back(fmt::format("{}state is {} and {}", of,
                                         p->up == Answer3::yes ? "active" : "not active",
                                         v.up == Answer3::yes ? "active" : "not active"));
    if (p->up == Answer3::unknown) p->up = v.up;
    if (p->gbit_per_s == 0) {
      p->gbit_per_s = v.gbit_per_s;
    } else if (v.gbit_per_s > 0 && std::abs(v.gbit_per_s - p->gbit_per_s) > 0.01 * p->gbit_per_s &&
               !(v.could_be_faster && p->gbit_per_s > v.gbit_per_s)) {
      differences_.push_back(fmt::format("{}speed is {:g} and {:g} Gbit/s", of, p->gbit_per_s, v.gbit_per_s));
    }
  }

  static std::string text(const std::string& v) { return v; }
  static std::string text(int v) { return std::to_string(v); }
  static std::string text(const std::optional<int>& v) { return std::to_string(v.value_or(0)); }

  // `what`: nullptr if a difference means nothing.
  template <class T>
  void fill(T& ours, const T& theirs, const std::type_identity_t<T>& unknown, const char* what) {
    if (theirs == unknown) return;
    if (ours == unknown)
      ours = theirs;
    else if (what && ours != theirs)
      differences_.push_back(fmt::format("{} is {} and {}", what, text(ours), text(theirs)));
  }

  NetworkDevices& network_;
  std::vector<Finding>& findings_;
  std::vector<std::string> differences_;  // of one device
};

}  // namespace

void add_verbs(NetworkDevices& network, const VerbsAnswer& verbs, std::vector<Finding>& findings) {
  VerbsComparison(network, findings).run(verbs);
}

}  // namespace muster::topology
