#include "topology/verbs.h"

#ifdef MUSTER_HAVE_VERBS
#include <endian.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>
#undef ibv_query_port  // the header's own calls it with less, and needs the library to link with

#include <cerrno>
#include <memory>
#include <system_error>

#include "base/shared_library.h"
#include "base/text.h"
#include "topology/network_names.h"
#endif

namespace muster::topology {

#ifdef MUSTER_HAVE_VERBS
namespace {

// InfiniBand Architecture Specification, volume 1, PortInfo: LinkWidthActive and LinkSpeedActive, in Gbit/s
// of a lane as they are counted in names of products (and in the kernel's "rate").
int lanes_of(unsigned width) {
  switch (width) {
    case 1:
      return 1;
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 0;
  }
}

constexpr unsigned kNdr = 128;

double gbit_per_lane(unsigned speed) {
  switch (speed) {
    case 1:
      return 2.5;
    case 2:
      return 5;
    case 4:
    case 8:
      return 10;  // QDR, FDR10
    case 16:
      return 14;
    case 32:
      return 25;
    case 64:
      return 50;
    case kNdr:
      return 100;
    default:
      return 0;
  }
}

std::string text_of(int error) {
  return fmt::format("{} ({})", std::generic_category().message(error), error);
}

class Verbs {
 public:
  explicit Verbs(const std::string& name) : library_(name) {
    if (!library_) return;
    list_ = library_.function<decltype(ibv_get_device_list)>("ibv_get_device_list");
    free_ = library_.function<decltype(ibv_free_device_list)>("ibv_free_device_list");
    name_ = library_.function<decltype(ibv_get_device_name)>("ibv_get_device_name");
    guid_ = library_.function<decltype(ibv_get_device_guid)>("ibv_get_device_guid");
    open_ = library_.function<decltype(ibv_open_device)>("ibv_open_device");
    close_ = library_.function<decltype(ibv_close_device)>("ibv_close_device");
    device_ = library_.function<decltype(ibv_query_device)>("ibv_query_device");
    port_ = library_.function<int(ibv_context*, uint8_t, ibv_port_attr*)>("ibv_query_port");
  }

  VerbsAnswer ask() {
    VerbsAnswer r{.asked = true, .found = static_cast<bool>(library_)};
    if (!r.found) return r;
    if (!list_ || !free_ || !name_ || !open_ || !close_ || !device_ || !port_) {
      r.problem = "it lacks functions that rdma-core's has";
      return r;
    }
    int n = 0;
    errno = 0;
    const std::unique_ptr<ibv_device*, decltype(free_)> list(list_(&n), free_);
    if (!list) {
      // Without the kernel's part there is nothing to list.
      if (errno != 0 && errno != ENOSYS && errno != ENOENT)
        r.problem = fmt::format("ibv_get_device_list: {}", text_of(errno));
      return r;
    }
    for (int i = 0; i < n && list.get()[i]; ++i) r.devices.push_back(device(list.get()[i]));
    return r;
  }

 private:
  VerbsDevice device(ibv_device* d) const {
    VerbsDevice r;
    const char* name = name_(d);
    r.name = printable(name ? name : "", 64);
    r.node_type = d->node_type > 0 ? d->node_type : 0;
    if (guid_) r.guid = guid_of(fmt::format("{:016x}", be64toh(guid_(d))));
    errno = 0;
    const std::unique_ptr<ibv_context, decltype(close_)> context(open_(d), close_);
    if (!context) {
      r.problem = text_of(errno);
      return r;
    }
    ibv_device_attr attributes = {};
    if (const int e = device_(context.get(), &attributes); e != 0) {
      r.problem = text_of(e);
      return r;
    }
    if (const std::string card = guid_of(fmt::format("{:016x}", be64toh(attributes.sys_image_guid)));
        !card.empty())
      r.guid = card;
    for (int p = 1; p <= attributes.phys_port_cnt; ++p) r.ports.push_back(port(context.get(), p));
    return r;
  }

  VerbsPort port(ibv_context* context, int number) const {
    VerbsPort r{.number = number};
    ibv_port_attr a = {};
    if (port_(context, static_cast<uint8_t>(number), &a) != 0) return r;
    r.up = a.state == IBV_PORT_ACTIVE ? Answer3::yes : Answer3::no;
    r.gbit_per_s = lanes_of(a.active_width) * gbit_per_lane(a.active_speed);
    r.could_be_faster = a.active_speed == kNdr;
    r.link_layer = a.link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
                   : a.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet"
                                                             : "";
    if (a.gid_tbl_len >= 0) r.gids = a.gid_tbl_len;
    return r;
  }

  SharedLibrary library_;
  decltype(ibv_get_device_list)* list_ = nullptr;
  decltype(ibv_free_device_list)* free_ = nullptr;
  decltype(ibv_get_device_name)* name_ = nullptr;
  decltype(ibv_get_device_guid)* guid_ = nullptr;
  decltype(ibv_open_device)* open_ = nullptr;
  decltype(ibv_close_device)* close_ = nullptr;
  decltype(ibv_query_device)* device_ = nullptr;
  int (*port_)(ibv_context*, uint8_t, ibv_port_attr*) = nullptr;
};

}  // namespace

VerbsAnswer ask_verbs(const std::string& library) { return Verbs(library).ask(); }
#else
VerbsAnswer ask_verbs(const std::string&) { return {}; }
#endif

}  // namespace muster::topology
