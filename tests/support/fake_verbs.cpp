// Stands for libibverbs: tells what the file says that MUSTER_TEST_VERBS names, a line each:
//   device NAME NODE_TYPE GUID              the GUID as 16 hexadecimal digits
//   port STATE WIDTH SPEED LAYER GIDS       of the last device; state, width, speed and layer as InfiniBand numbers them
//   gid INDEX ADDRESS TYPE                  of the last port; types: 0 InfiniBand, 1 RoCE v1, 2 RoCE v2
//   closed ERRNO                            the last device can't be opened
//   fails ERRNO                             there is no list
// Nothing can be made with its devices.
#include <arpa/inet.h>
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
  std::vector<ibv_gid_entry> gids;
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
    if (what == "gid") {
      ibv_gid_entry e = {};
      std::string address;
      words >> e.gid_index >> address >> e.gid_type;
      e.port_num = static_cast<uint32_t>(g_devices.back().ports.size());
      if (inet_pton(AF_INET, address.c_str(), e.gid.raw + 12) == 1)
        e.gid.raw[10] = e.gid.raw[11] = 0xff;
      else
        inet_pton(AF_INET6, address.c_str(), e.gid.raw);
      g_devices.back().gids.push_back(e);
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
FAKE ssize_t _ibv_query_gid_table(ibv_context* c, ibv_gid_entry* entries, size_t most, uint32_t, size_t) {
  const auto& gids = of(c->device).gids;
  for (size_t i = 0; i < gids.size() && i < most; ++i) entries[i] = gids[i];
  return static_cast<ssize_t>(gids.size());
}

// The header declares them with other types.
#define NOTHING(name)                     \
  FAKE void* fake_##name() asm(#name);    \
  FAKE void* fake_##name() {              \
    errno = EOPNOTSUPP;                   \
    return nullptr;                       \
  }
NOTHING(ibv_alloc_pd)
NOTHING(ibv_dealloc_pd)
NOTHING(ibv_reg_mr_iova2)
NOTHING(ibv_dereg_mr)
NOTHING(ibv_create_comp_channel)
NOTHING(ibv_destroy_comp_channel)
NOTHING(ibv_create_cq)
NOTHING(ibv_destroy_cq)
NOTHING(ibv_get_cq_event)
NOTHING(ibv_ack_cq_events)
NOTHING(ibv_create_srq)
NOTHING(ibv_destroy_srq)
NOTHING(ibv_create_qp)
NOTHING(ibv_modify_qp)
NOTHING(ibv_destroy_qp)
NOTHING(ibv_create_ah)
NOTHING(ibv_destroy_ah)
NOTHING(ibv_get_async_event)
NOTHING(ibv_ack_async_event)
