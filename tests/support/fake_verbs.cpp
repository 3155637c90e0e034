// Stands for libibverbs: tells what the file says that MUSTER_TEST_VERBS names, a line each:
//   device NAME NODE_TYPE GUID              the GUID as 16 hexadecimal digits
//   port STATE WIDTH SPEED LAYER GIDS       of the last device; state, width, speed and layer as InfiniBand
//   numbers them closed ERRNO                            the last device can't be opened fails ERRNO there is
//   no list
#include <endian.h>
#include <infiniband/verbs.h>
#undef ibv_query_port

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Device {
  ibv_device device = {};
  ibv_context context = {};
  uint64_t guid = 0;
  int closed = 0;
  std::vector<ibv_port_attr> ports;
};
std::vector<Device> g_devices;
std::vector<ibv_device*> g_list;

Device& of(const ibv_device* d) { return *reinterpret_cast<Device*>(const_cast<ibv_device*>(d)); }

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE ibv_device** ibv_get_device_list(int* count) {
  g_devices.clear();
  g_list.clear();
  const char* path = std::getenv("MUSTER_TEST_VERBS");
  std::ifstream in(path ? path : "");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "fails") {
      words >> errno;
      return nullptr;
    }
    if (what == "device") {
      Device d;
      std::string name;
      int type = 0;
      words >> name >> type >> std::hex >> d.guid;
      std::strncpy(d.device.name, name.c_str(), sizeof d.device.name - 1);
      d.device.node_type = static_cast<ibv_node_type>(type);
      g_devices.push_back(d);
    }
    if (what == "closed") words >> g_devices.back().closed;
    if (what == "port") {
      int state = 0, width = 0, speed = 0, layer = 0;
      ibv_port_attr p = {};
      words >> state >> width >> speed >> layer >> p.gid_tbl_len;
      p.state = static_cast<ibv_port_state>(state);
      p.active_width = static_cast<uint8_t>(width);
      p.active_speed = static_cast<uint8_t>(speed);
      p.link_layer = static_cast<uint8_t>(layer);
      g_devices.back().ports.push_back(p);
    }
  }
  for (Device& d : g_devices) {
    d.context.device = &d.device;
    g_list.push_back(&d.device);
  }
  *count = static_cast<int>(g_list.size());
  g_list.push_back(nullptr);
  return g_list.data();
}
FAKE void ibv_free_device_list(ibv_device**) {}
FAKE const char* ibv_get_device_name(ibv_device* d) { return d->name; }
FAKE __be64 ibv_get_device_guid(ibv_device* d) { return htobe64(of(d).guid); }
FAKE ibv_context* ibv_open_device(ibv_device* d) {
  errno = of(d).closed;
  return errno == 0 ? &of(d).context : nullptr;
}
FAKE int ibv_close_device(ibv_context*) { return 0; }
FAKE int ibv_query_device(ibv_context* c, ibv_device_attr* a) {
  a->phys_port_cnt = static_cast<uint8_t>(of(c->device).ports.size());
  a->sys_image_guid = htobe64(of(c->device).guid);
  return 0;
}
FAKE int ibv_query_port(ibv_context* c, uint8_t number,
                        _compat_ibv_port_attr* to) {  // the header's name for the same
  auto* a = reinterpret_cast<ibv_port_attr*>(to);
  const auto& ports = of(c->device).ports;
  if (number < 1 || number > ports.size()) return EINVAL;
  *a = ports[number - 1u];
  return 0;
}
