#include "topology/nvml.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "base/shared_library.h"
#include "base/text.h"

namespace muster::topology {
namespace {

// Functions, numbers and layouts are those of NVIDIA's NVML reference. What a name that ends in _v2 or _v3
// means stays.
constexpr int kSuccess = 0;
constexpr unsigned kMostNvmlGpus = 1024, kMostNvmlLinks = 36;  // of NVLinks the header has had 4, 6, 12, 18

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device;
  unsigned pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

union FieldNumber {
  double d;
  unsigned ui;
  unsigned long ul;
  unsigned long long ull;
  long long sll;
  int si;
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type;
  int result;
  FieldNumber value;
};
static_assert(sizeof(FieldValue) == 40);
constexpr unsigned kC2cLinkCount = 170, kC2cLinkMostMbPerS = 172;

enum RemoteDevice : int { kRemoteGpu = 0, kRemoteCpu = 1, kRemoteSwitch = 2 };

using Handle = void*;

// A text of a buffer that a library filled: it may have no end.
template <size_t N>
std::string text_in(const char (&buffer)[N]) {
  return printable(std::string_view(buffer, strnlen(buffer, N)));
}

double number_in(const FieldValue& v) {
  switch (v.type) {
    case 0:
      return v.value.d;
    case 1:
      return v.value.ui;
    case 2:
      return static_cast<double>(v.value.ul);
    case 3:
      return static_cast<double>(v.value.ull);
    case 4:
      return static_cast<double>(v.value.sll);
    case 5:
      return v.value.si;
    default:
      return 0;
  }
}

class Nvml {
 public:
  explicit Nvml(const std::string& name) : library_(name) {
    if (!library_) return;
    init_ = library_.function<int()>("nvmlInit_v2");
    shutdown_ = library_.function<int()>("nvmlShutdown");
    error_ = library_.function<const char*(int)>("nvmlErrorString");
    driver_ = library_.function<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
    count_ = library_.function<int(unsigned*)>("nvmlDeviceGetCount_v2");
    device_ = library_.function<int(unsigned, Handle*)>("nvmlDeviceGetHandleByIndex_v2");
    pci_ = library_.function<int(Handle, PciInfo*)>("nvmlDeviceGetPciInfo_v3");
    name_ = library_.function<int(Handle, char*, unsigned)>("nvmlDeviceGetName");
    uuid_ = library_.function<int(Handle, char*, unsigned)>("nvmlDeviceGetUUID");
    capability_ = library_.function<int(Handle, int*, int*)>("nvmlDeviceGetCudaComputeCapability");
    link_state_ = library_.function<int(Handle, unsigned, unsigned*)>("nvmlDeviceGetNvLinkState");
    link_pci_ = library_.function<int(Handle, unsigned, PciInfo*)>("nvmlDeviceGetNvLinkRemotePciInfo_v2");
    link_type_ = library_.function<int(Handle, unsigned, int*)>("nvmlDeviceGetNvLinkRemoteDeviceType");
    fields_ = library_.function<int(Handle, int, FieldValue*)>("nvmlDeviceGetFieldValues");
  }

  NvmlAnswer ask() {
    NvmlAnswer r;
    r.found = static_cast<bool>(library_);
    if (!r.found) return r;
    if (!init_ || !shutdown_ || !count_ || !device_ || !pci_) {
      r.problem = "it lacks functions that drivers have had since 2018";
      return r;
    }
    if (const int e = init_(); e != kSuccess) {
      r.problem = fmt::format("nvmlInit: {}", text_of(e));
      return r;
    }
    const auto end = [this](Nvml*) { shutdown_(); };
    const std::unique_ptr<Nvml, decltype(end)> ends(this, end);
    char version[96] = {};
    if (driver_ && driver_(version, sizeof version) == kSuccess) r.driver = text_in(version);
    unsigned n = 0;
    if (const int e = count_(&n); e != kSuccess)
      r.problem = fmt::format("nvmlDeviceGetCount: {}", text_of(e));
    for (unsigned i = 0; i < std::min(n, kMostNvmlGpus); ++i) {
      Handle device = nullptr;
      if (const int e = device_(i, &device); e != kSuccess) {
        r.problem = fmt::format("nvmlDeviceGetHandleByIndex({}): {}", i, text_of(e));
        continue;
      }
      r.gpus.push_back(gpu(static_cast<int>(i), device));
    }
    return r;
  }

 private:
  std::string text_of(int error) const {
    const char* text = error_ ? error_(error) : nullptr;
    return text ? printable(fmt::format("{} ({})", text, error), 200) : fmt::format("error {}", error);
  }

  static std::optional<PciAddress> address_of(const PciInfo& p) {
    return PciAddress::parse(text_in(p.bus_id));
  }

  NvmlGpu gpu(int index, Handle device) const {
    NvmlGpu g;
    g.index = index;
    PciInfo pci = {};
    if (pci_(device, &pci) == kSuccess) g.address = address_of(pci);
    char text[97] = {};
    if (name_ && name_(device, text, sizeof text - 1) == kSuccess) g.name = text_in(text);
    std::memset(text, 0, sizeof text);
    if (uuid_ && uuid_(device, text, sizeof text - 1) == kSuccess) g.uuid = text_in(text);
    int major = 0, minor = 0;
    if (capability_ && capability_(device, &major, &minor) == kSuccess && major > 0 && major < 1000 &&
        minor >= 0 && minor < 10)
      g.sm = major * 10 + minor;
    for (unsigned l = 0; link_state_ && l < kMostNvmlLinks; ++l) {
      unsigned active = 0;
      if (link_state_(device, l, &active) != kSuccess) break;  // there is no such link
      if (active == 0) {
        ++g.links_down;
        continue;
      }
      g.links.push_back(link(device, l));
    }
    ask_c2c(device, &g);
    return g;
  }

  NvmlLink link(Handle device, unsigned l) const {
    NvmlLink r;
    PciInfo pci = {};
    if (link_pci_ && link_pci_(device, l, &pci) == kSuccess) r.address = address_of(pci);
    int type = -1;
    if (!link_type_ || link_type_(device, l, &type) != kSuccess) return r;
    r.to = type == kRemoteGpu      ? NvmlLink::To::gpu
           : type == kRemoteCpu    ? NvmlLink::To::cpu
           : type == kRemoteSwitch ? NvmlLink::To::nvswitch
                                   : NvmlLink::To::unknown;
    return r;
  }

  void ask_c2c(Handle device, NvmlGpu* g) const {
    if (!fields_) return;
    FieldValue count = {};
    count.field = kC2cLinkCount;
    if (fields_(device, 1, &count) != kSuccess || count.result != kSuccess) return;
    const double n = number_in(count);
    if (!(n >= 1 && n <= 1024)) return;
    g->c2c_links = static_cast<int>(n);
    for (int i = 0; i < g->c2c_links; ++i) {
      FieldValue rate = {};
      rate.field = kC2cLinkMostMbPerS;
      rate.scope = static_cast<unsigned>(i);
      if (fields_(device, 1, &rate) == kSuccess && rate.result == kSuccess)
        g->c2c_gb_per_s += number_in(rate) / 1000;
    }
    if (!(g->c2c_gb_per_s > 0 && g->c2c_gb_per_s < 1e5)) g->c2c_gb_per_s = 0;
  }

  SharedLibrary library_;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  const char* (*error_)(int) = nullptr;
  int (*driver_)(char*, unsigned) = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_)(unsigned, Handle*) = nullptr;
  int (*pci_)(Handle, PciInfo*) = nullptr;
  int (*name_)(Handle, char*, unsigned) = nullptr;
  int (*uuid_)(Handle, char*, unsigned) = nullptr;
  int (*capability_)(Handle, int*, int*) = nullptr;
  int (*link_state_)(Handle, unsigned, unsigned*) = nullptr;
  int (*link_pci_)(Handle, unsigned, PciInfo*) = nullptr;
  int (*link_type_)(Handle, unsigned, int*) = nullptr;
  int (*fields_)(Handle, int, FieldValue*) = nullptr;
};

}  // namespace

NvmlAnswer ask_nvml(const std::string& library) { return Nvml(library).ask(); }

}  // namespace muster::topology
