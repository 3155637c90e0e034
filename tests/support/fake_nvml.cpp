// Stands for NVIDIA's management library: tells what the file says that MUSTER_TEST_NVML names, a line each:
//   init CODE                             nvmlInit fails so
//   gpu ADDRESS MAJOR MINOR UUID NAME...
//   link TYPE ADDRESS                     of the last GPU; 0 GPU, 1 CPU, 2 switch, 255 unknown; "-": it can't
//   be read down                                  a link of the last GPU that isn't up c2c COUNT MB of the
//   last GPU, MB/s each
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Link {
  bool up = true;
  int type = 0;
  std::string address;
};
struct Device {
  std::string address, uuid, name;
  int major = 0, minor = 0, c2c = 0;
  unsigned long long c2c_mb = 0;
  std::vector<Link> links;
};
std::vector<Device> g_devices;
int g_init = 0;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type, result;
  unsigned long long value;
};

constexpr int kNotSupported = 3, kInvalid = 2;

int copy(const std::string& text, char* to, unsigned size) {
  std::strncpy(to, text.c_str(), size - 1);
  to[size - 1] = 0;
  return 0;
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE int nvmlInit_v2() {
  g_devices.clear();
  g_init = 0;
  const char* path = std::getenv("MUSTER_TEST_NVML");
  std::ifstream in(path ? path : "");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "init") words >> g_init;
    if (what == "gpu") {
      Device d;
      words >> d.address >> d.major >> d.minor >> d.uuid >> std::ws;
      std::getline(words, d.name);
      g_devices.push_back(d);
    }
    if (what == "link") {
      Link l;
      words >> l.type >> l.address;
      g_devices.back().links.push_back(l);
    }
    if (what == "down") g_devices.back().links.push_back({false, 0, ""});
    if (what == "c2c") words >> g_devices.back().c2c >> g_devices.back().c2c_mb;
  }
  return g_init;
}
FAKE int nvmlShutdown() { return 0; }
FAKE const char* nvmlErrorString(int error) { return error == 9 ? "Driver Not Loaded" : "an error"; }
FAKE int nvmlSystemGetDriverVersion(char* to, unsigned size) { return copy("570.1", to, size); }
FAKE int nvmlDeviceGetCount_v2(unsigned* n) {
  *n = static_cast<unsigned>(g_devices.size());
  return 0;
}
FAKE int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** device) {
  *device = &g_devices[i];
  return 0;
}
FAKE int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  return copy(static_cast<Device*>(device)->address, info->bus_id, sizeof info->bus_id);
}
FAKE int nvmlDeviceGetName(void* device, char* to, unsigned size) {
  return copy(static_cast<Device*>(device)->name, to, size);
}
FAKE int nvmlDeviceGetUUID(void* device, char* to, unsigned size) {
  return copy(static_cast<Device*>(device)->uuid, to, size);
}
FAKE int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = static_cast<Device*>(device)->major;
  *minor = static_cast<Device*>(device)->minor;
  return 0;
}
FAKE int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
  const auto& links = static_cast<Device*>(device)->links;
  if (link >= links.size()) return kInvalid;
  *active = links[link].up;
  return 0;
}
FAKE int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, PciInfo* info) {
  const Link& l = static_cast<Device*>(device)->links[link];
  return l.address == "-" ? kNotSupported : copy(l.address, info->bus_id, sizeof info->bus_id);
}
FAKE int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, int* type) {
  *type = static_cast<Device*>(device)->links[link].type;
  return 0;
}
FAKE int nvmlDeviceGetFieldValues(void* device, int n, FieldValue* values) {
  const Device& d = *static_cast<Device*>(device);
  for (int i = 0; i < n; ++i) {
    values[i].result = d.c2c > 0 && (values[i].field == 170 || values[i].field == 172) ? 0 : kNotSupported;
    values[i].type = 3;
    values[i].value = values[i].field == 170 ? static_cast<unsigned long long>(d.c2c) : d.c2c_mb;
  }
  return 0;
}
