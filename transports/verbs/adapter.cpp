#include "transports/verbs/adapter.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/math.h"
#include "base/text.h"

namespace muster::verbs {
namespace {

// Messages that all peers together may have under way to this rank before they must wait for it, and that this rank may have
// under way.
constexpr int kReceives = 1024, kSends = 4096;
// rdma_rxe's vendor. Its seven retries have no end, while other devices try seven times.
constexpr uint32_t kSoftRoce = 0xffffff;

[[noreturn]] void fail_resource(const std::string& device, std::string_view what, int error) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if ((error == ENOMEM || error == EPERM || error == EAGAIN) && limit.rlim_cur != RLIM_INFINITY)
    fail(Result::system_error, "{}: {}: {}. This process may lock {} bytes of memory (RLIMIT_MEMLOCK), which RDMA devices need: raise it "
         "(ulimit -l unlimited; in containers --ulimit memlock=-1; of services LimitMEMLOCK=infinity)",
         device, what, describe_errno(error), limit.rlim_cur);
  fail(Result::system_error, "{}: {}: {}. See the kernel's log (dmesg) and what the device has (ibv_devinfo -v)", device, what, describe_errno(error));
}

// Bits of the netmask of the interface that has this address; 0: none has.
uint8_t subnet_bits_of(const Gid& gid) {
  if (gid.kind == Gid::Kind::infiniband) return 64;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return 0;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  const auto bits_of = [](const void* mask, size_t bytes) {
    uint8_t n = 0;
    for (size_t i = 0; i < bytes; ++i) n = static_cast<uint8_t>(n + __builtin_popcount(static_cast<const uint8_t*>(mask)[i]));
    return n;
  };
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || !i->ifa_netmask) continue;
    if (i->ifa_addr->sa_family == AF_INET && gid.is_ipv4() &&
        std::memcmp(&reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, gid.bytes.data() + 12, 4) == 0)
      return static_cast<uint8_t>(96 + bits_of(&reinterpret_cast<const sockaddr_in*>(i->ifa_netmask)->sin_addr, 4));
    if (i->ifa_addr->sa_family == AF_INET6 &&
        std::memcmp(&reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr, gid.bytes.data(), 16) == 0)
      return bits_of(&reinterpret_cast<const sockaddr_in6*>(i->ifa_netmask)->sin6_addr, 16);
  }
  return 0;
}

// Gbit/s of a port: lanes by the rate of each (InfiniBand's PortInfo: LinkWidthActive, LinkSpeedActive).
double rate_of(const ibv_port_attr& a) {
  const double lanes = a.active_width == 1 ? 1 : a.active_width == 2 ? 4 : a.active_width == 4 ? 8 : a.active_width == 8 ? 12 : a.active_width == 16 ? 2 : 0;
  const double lane = a.active_speed == 1    ? 2.5
                      : a.active_speed == 2  ? 5
                      : a.active_speed <= 8  ? 10
                      : a.active_speed == 16 ? 14
                      : a.active_speed == 32 ? 25
                      : a.active_speed == 64 ? 50
                                             : 100;
  return lanes * lane;
}

}  // namespace

Pages::Pages(size_t bytes) : bytes_(align_up(bytes, size_t{4096})) {
  void* const p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail_errno(errno, fmt::format("mapping {} bytes for an RDMA device", bytes_), "Check the limit on address space (ulimit -v)");
  madvise(p, bytes_, MADV_DONTFORK);
  data_ = static_cast<std::byte*>(p);
}

Pages::~Pages() { munmap(data_, bytes_); }

Adapter::Adapter(std::shared_ptr<const Library> library, std::string name, Owned<ibv_context> context)
    : library_(std::move(library)),
      name_(std::move(name)),
      context_(std::move(context)),
      domain_(nullptr, library_->dealloc_pd),
      channel_(nullptr, library_->destroy_comp_channel),
      received_(nullptr, library_->destroy_cq),
      sent_(nullptr, library_->destroy_cq),
      receives_(nullptr, library_->destroy_srq),
      messages_key_(nullptr, library_->dereg_mr) {}

std::vector<std::unique_ptr<Adapter>> Adapter::open_all(const std::shared_ptr<const Library>& library, std::string& problems) {
  std::vector<std::unique_ptr<Adapter>> r;
  int n = 0;
  errno = 0;
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(library->get_device_list(&n), library->free_device_list);
  if (!list) {
    if (errno != 0 && errno != ENOSYS && errno != ENOENT) problems = fmt::format("libibverbs lists no devices: {}", describe_errno(errno));
    return r;
  }
  for (int i = 0; i < n && list.get()[i]; ++i) {
    ibv_device* const device = list.get()[i];
    const std::string name = printable(library->get_device_name(device), 64);
    errno = 0;
    Owned<ibv_context> context(library->open_device(device), library->close_device);
    if (context)
      r.push_back(std::unique_ptr<Adapter>(new Adapter(library, name, std::move(context))));
    else
      problems += fmt::format("{}{} can't be opened: {}. Give a container /dev/infiniband (docker run --device=/dev/infiniband)",
                              problems.empty() ? "" : "; ", name, describe_errno(errno));
  }
  return r;
}

std::vector<Port> Adapter::ports() const {
  ibv_device_attr device{};
  if (library_->query_device(context_.get(), &device) != 0) return {};
  std::vector<ibv_gid_entry> gids(1024);  // of all ports; tables have 256 entries at most
  const ssize_t n = library_->query_gid_table(context_.get(), gids.data(), gids.size(), 0, sizeof gids[0]);
  gids.resize(n > 0 ? static_cast<size_t>(n) : 0);
  std::vector<Port> r;
  for (int number = 1; number <= device.phys_port_cnt; ++number) {
    ibv_port_attr a{};
    if (library_->query_port(context_.get(), static_cast<uint8_t>(number), &a) != 0) continue;
    Port p{.device = name_, .number = static_cast<uint8_t>(number), .active = a.state == IBV_PORT_ACTIVE};
    p.infiniband = a.link_layer != IBV_LINK_LAYER_ETHERNET;
    p.lid = a.lid;
    p.mtu = static_cast<uint8_t>(a.active_mtu);
    p.gbit_per_s = rate_of(a);
    for (const ibv_gid_entry& e : gids) {
      if (e.port_num != static_cast<uint32_t>(number)) continue;
      Gid g;
      std::memcpy(g.bytes.data(), e.gid.raw, g.bytes.size());
      if (g.bytes == decltype(g.bytes){}) continue;
      g.index = e.gid_index;
      g.kind = e.gid_type == IBV_GID_TYPE_ROCE_V2   ? Gid::Kind::roce_v2
               : e.gid_type == IBV_GID_TYPE_ROCE_V1 ? Gid::Kind::roce_v1
                                                    : Gid::Kind::infiniband;
      g.subnet_bits = subnet_bits_of(g);
      p.gids.push_back(g);
    }
    r.push_back(std::move(p));
  }
  return r;
}

void Adapter::start(const Settings& settings) {
  const Library& lib = *library_;
  ibv_device_attr device{};
  lib.query_device(context_.get(), &device);
  endless_retries_ = device.vendor_id == kSoftRoce;
  relaxed_ordering_ = settings.relaxed_ordering;
  const auto made = [&](auto& to, auto* what, std::string_view name) {
    if (!what) fail_resource(name_, fmt::format("{} can't be made", name), errno);
    to.reset(what);
  };
  made(domain_, lib.alloc_pd(context_.get()), "a protection domain");
  made(channel_, lib.create_comp_channel(context_.get()), "a completion channel");
  fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  const int receives = std::min(kReceives, std::max(1, device.max_srq_wr));
  most_sent_ = static_cast<uint32_t>(std::min(kSends, device.max_cqe));
  made(received_, lib.create_cq(context_.get(), std::min(receives, device.max_cqe), nullptr, channel_.get(), 0), "a completion queue");
  made(sent_, lib.create_cq(context_.get(), static_cast<int>(most_sent_), nullptr, channel_.get(), 0), "a completion queue");
  ibv_srq_init_attr shared{};
  shared.attr.max_wr = static_cast<uint32_t>(receives);
  shared.attr.max_sge = 1;
  made(receives_, lib.create_srq(domain_.get(), &shared), "a shared receive queue");
  messages_ = std::make_unique<Pages>(static_cast<size_t>(receives) * kMessageBytes);
  messages_key_ = register_memory({messages_->data(), messages_->bytes()}, Use::receive);
  for (int i = 0; i < receives; ++i) receive_again(static_cast<uint64_t>(i));
}

void Adapter::receive_again(uint64_t slot) {
  ibv_sge where{reinterpret_cast<uint64_t>(message(slot)), kMessageBytes, messages_key_->lkey};
  ibv_recv_wr request{};
  request.wr_id = slot;
  request.sg_list = &where;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int e = ibv_post_srq_recv(receives_.get(), &request, &bad); e != 0) fail_resource(name_, "posting a receive", e);
}

void Adapter::arm() {
  ibv_cq* queue = nullptr;
  void* unused = nullptr;
  while (library_->get_cq_event(channel_.get(), &queue, &unused) == 0) library_->ack_cq_events(queue, 1);
  ibv_req_notify_cq(received_.get(), 0);
  ibv_req_notify_cq(sent_.get(), 0);
}

Owned<ibv_mr> Adapter::register_memory(std::span<const std::byte> memory, Use use) const {
  int access = use == Use::send ? 0 : IBV_ACCESS_LOCAL_WRITE;
  if (use == Use::be_written_by_peers) access |= IBV_ACCESS_REMOTE_WRITE;
  // Payload may pass payload: only the completion behind it says that it is there, and that is ordered.
  if (use == Use::be_written_by_peers && relaxed_ordering_) access |= IBV_ACCESS_RELAXED_ORDERING;
  Owned<ibv_mr> r(library_->reg_mr(domain_.get(), const_cast<std::byte*>(memory.data()), memory.size(), reinterpret_cast<uint64_t>(memory.data()),
                                   static_cast<unsigned>(access)),
                  library_->dereg_mr);
  if (!r) fail_resource(name_, fmt::format("registering {} bytes of memory", memory.size()), errno);
  return r;
}

}  // namespace muster::verbs
