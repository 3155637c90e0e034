#include "transports/verbs/greeter.h"

#include <fcntl.h>

#include <cstring>

#include "base/error.h"

namespace muster::verbs {

ibv_ah_attr address_of(const Port& remote, size_t remote_gid, const Port& local, size_t local_gid, const Settings& settings) {
  ibv_ah_attr a{};
  a.port_num = local.number;
  a.sl = settings.service_level;
  a.dlid = remote.lid;
  const bool by_gid = remote_gid < remote.gids.size() && local_gid < local.gids.size();
  // Inside an InfiniBand subnet LIDs say all.
  const bool one_subnet = local.infiniband && remote.lid != 0 &&
                          (!by_gid || std::memcmp(remote.gids[remote_gid].bytes.data(), local.gids[local_gid].bytes.data(), 8) == 0);
  if (!by_gid || one_subnet) return a;
  a.is_global = 1;
  std::memcpy(a.grh.dgid.raw, remote.gids[remote_gid].bytes.data(), 16);
  a.grh.sgid_index = static_cast<uint8_t>(local.gids[local_gid].index);
  a.grh.hop_limit = 255;
  a.grh.traffic_class = settings.traffic_class;
  return a;
}

Greeter::Greeter(const Adapter& adapter, const Port& port, const Settings& settings)
    : adapter_(adapter),
      port_(port),
      settings_(settings),
      channel_(adapter.library().create_comp_channel(adapter.context()), adapter.library().destroy_comp_channel),
      received_(nullptr, adapter.library().destroy_cq),
      sent_(nullptr, adapter.library().destroy_cq),
      memory_(2 * kSlots * kSlotBytes),
      key_(adapter.register_memory({memory_.data(), memory_.bytes()}, Adapter::Use::receive)),
      pair_(nullptr, adapter.library().destroy_qp) {
  const Library& lib = adapter.library();
  const auto require = [&](bool ok, int error, const char* what) {
    if (!ok) fail(Result::system_error, "{}: {} for meeting other ranks can't be made: {}", port.name(), what, describe_errno(error));
  };
  require(channel_ != nullptr, errno, "a completion channel");
  fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  received_.reset(lib.create_cq(adapter.context(), kSlots, nullptr, channel_.get(), 0));
  require(received_ != nullptr, errno, "a completion queue");
  sent_.reset(lib.create_cq(adapter.context(), kSlots, nullptr, nullptr, 0));
  require(sent_ != nullptr, errno, "a completion queue");
  ibv_qp_init_attr make{};
  make.send_cq = sent_.get();
  make.recv_cq = received_.get();
  make.cap = {kSlots, kSlots, 1, 1, 0};
  make.qp_type = IBV_QPT_UD;
  pair_.reset(lib.create_qp(adapter.domain(), &make));
  require(pair_ != nullptr, errno, "a queue pair");
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.pkey_index = settings.pkey_index;
  a.port_num = port.number;
  a.qkey = kKey;
  int e = lib.modify_qp(pair_.get(), &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  require(e == 0, e, settings.pkey_index ? "a queue pair (NCCL_IB_PKEY)" : "a queue pair");
  for (uint32_t i = 0; i < kSlots; ++i) {
    receive_again(i);
    under_way_.emplace_back(nullptr, lib.destroy_ah);
  }
  a.qp_state = IBV_QPS_RTR;
  e = lib.modify_qp(pair_.get(), &a, IBV_QP_STATE);
  require(e == 0, e, "a queue pair");
  a.qp_state = IBV_QPS_RTS;
  e = lib.modify_qp(pair_.get(), &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
  require(e == 0, e, "a queue pair");
}

void Greeter::receive_again(uint32_t slot) {
  ibv_sge where{reinterpret_cast<uint64_t>(memory_.data()) + slot * kSlotBytes, kSlotBytes, key_->lkey};
  ibv_recv_wr request{};
  request.wr_id = slot;
  request.sg_list = &where;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ibv_post_recv(pair_.get(), &request, &bad);
}

void Greeter::arm() {
  ibv_cq* queue = nullptr;
  void* unused = nullptr;
  while (adapter_.library().get_cq_event(channel_.get(), &queue, &unused) == 0) adapter_.library().ack_cq_events(queue, 1);
  ibv_req_notify_cq(received_.get(), 0);
}

void Greeter::reap() {
  ibv_wc wc[16];
  for (int n; (n = ibv_poll_cq(sent_.get(), 16, wc)) > 0;)
    for (int i = 0; i < n; ++i) under_way_[wc[i].wr_id].reset();
}

bool Greeter::send(size_t gid, const GreeterAddress& to, std::string_view message, std::string& why) {
  reap();
  uint32_t slot = 0;
  while (slot < kSlots && under_way_[slot]) ++slot;
  if (slot == kSlots) {
    why = "its device takes no more datagrams";
    return false;
  }
  ibv_ah_attr address = verbs::address_of(to.port, to.gid, port_, gid, settings_);
  errno = 0;
  under_way_[slot].reset(adapter_.library().create_ah(adapter_.domain(), &address));
  if (!under_way_[slot]) {  // RoCE resolves addresses here
    why = fmt::format("the address can't be resolved ({})", describe_errno(errno ? errno : EHOSTUNREACH));
    return false;
  }
  std::byte* const at = memory_.data() + (kSlots + slot) * kSlotBytes;
  std::memcpy(at, message.data(), std::min(message.size(), kMost));
  ibv_sge where{reinterpret_cast<uint64_t>(at), static_cast<uint32_t>(std::min(message.size(), kMost)), key_->lkey};
  ibv_send_wr request{};
  request.wr_id = slot;
  request.sg_list = &where;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud = {under_way_[slot].get(), to.queue, kKey};
  ibv_send_wr* bad = nullptr;
  if (const int e = ibv_post_send(pair_.get(), &request, &bad); e != 0) {
    under_way_[slot].reset();
    why = fmt::format("its device refuses a datagram ({})", describe_errno(e));
    return false;
  }
  return true;
}

void Greeter::receive(const std::function<void(std::string_view message)>& take) {
  ibv_wc wc[16];
  for (int n; (n = ibv_poll_cq(received_.get(), 16, wc)) > 0;)
    for (int i = 0; i < n; ++i) {
      const auto slot = static_cast<uint32_t>(wc[i].wr_id);
      if (wc[i].status == IBV_WC_SUCCESS && wc[i].byte_len > kHeader)
        take({reinterpret_cast<const char*>(memory_.data()) + slot * kSlotBytes + kHeader, wc[i].byte_len - kHeader});
      receive_again(slot);
    }
}

}  // namespace muster::verbs
