#include "transports/verbs/queue_pair.h"

#include <algorithm>

#include "base/error.h"

namespace muster::verbs {
namespace {

uint32_t work_of(const WireOp* op) { return op && op->header.bytes > 0 ? 2 : 1; }

}  // namespace

QueuePair::QueuePair(const Adapter& adapter, size_t index, const Port& port, const Path& the_path, const Settings& settings)
    : path(the_path),
      adapter_index(index),
      port_(port),
      settings_(settings),
      library_(adapter.library()),
      endless_retries_(adapter.has_endless_retries()),
      pair_(nullptr, adapter.library().destroy_qp) {
  ibv_qp_init_attr make{};
  make.send_cq = adapter.sent();
  make.recv_cq = adapter.received();
  make.srq = adapter.receives();
  make.cap.max_send_wr = kDepth;
  make.cap.max_send_sge = 1;
  make.cap.max_inline_data = sizeof(WireHeader);
  make.qp_type = IBV_QPT_RC;
  pair_.reset(library_.create_qp(adapter.domain(), &make));
  if (!pair_) fail(Result::system_error, "{}: a queue pair can't be made: {}. `ibv_devinfo -v` says how many there can be, `rdma resource` how many there are",
                   port.name(), describe_errno(errno));
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.pkey_index = settings.pkey_index;
  a.port_num = port.number;
  a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (const int e = library_.modify_qp(pair_.get(), &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS); e != 0)
    fail(Result::system_error, "{}: a queue pair can't be made: {}", port.name(), describe_errno(e));
}

int QueuePair::connect(const Port& remote, uint32_t remote_pair, uint32_t first) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  a.ah_attr = address_of(remote, path.remote_gid, port_, path.local_gid, settings_);
  a.path_mtu = static_cast<ibv_mtu>(std::min(port_.mtu, remote.mtu));
  a.dest_qp_num = remote_pair;
  a.rq_psn = first;
  a.max_dest_rd_atomic = 1;
  a.min_rnr_timer = 12;  // 0.64 ms: how long a sender waits when all receives of this rank are taken
  if (const int e = library_.modify_qp(pair_.get(), &a,
                                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    return e;
  a.qp_state = IBV_QPS_RTS;
  a.sq_psn = first;
  a.timeout = settings_.timeout;
  a.retry_cnt = endless_retries_ ? std::min<uint8_t>(settings_.retries, 6) : settings_.retries;
  a.rnr_retry = 7;  // for ever: a rank that is busy elsewhere is late, not lost
  a.max_rd_atomic = 1;
  return library_.modify_qp(pair_.get(), &a,
                            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

void QueuePair::stop() noexcept {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_ERR;
  library_.modify_qp(pair_.get(), &a, IBV_QP_STATE);
}

void QueuePair::post(WireOp& op, Source payload, uint64_t at, uint32_t remote_key) {
  ibv_sge header{reinterpret_cast<uint64_t>(&op.header), sizeof op.header, 0};
  ibv_send_wr send{};
  send.sg_list = &header;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  ibv_sge data{reinterpret_cast<uint64_t>(payload.at), op.header.bytes, payload.key};
  ibv_send_wr write{};
  write.next = &send;
  write.sg_list = &data;
  write.num_sge = 1;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.wr.rdma = {at, remote_key};
  ibv_send_wr* bad = nullptr;
  if (const int e = ibv_post_send(pair_.get(), op.header.bytes > 0 ? &write : &send, &bad); e != 0)
    fail(Result::system_error, "{}: its device refuses to send: {}", port_.name(), describe_errno(e));
  work_ += work_of(&op);
  posted.push_back({&op, true, std::move(payload.registration)});
}

void QueuePair::post_bare(ibv_wr_opcode what) {
  ibv_send_wr send{};
  send.opcode = what;
  send.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (const int e = ibv_post_send(pair_.get(), &send, &bad); e != 0)
    fail(Result::system_error, "{}: its device refuses to send: {}", port_.name(), describe_errno(e));
  ++work_;
  posted.push_back({nullptr, what == IBV_WR_SEND, nullptr});
}

void QueuePair::post_greeting() { post_bare(IBV_WR_SEND); }

// Of no bytes to nowhere: it takes none of the peer's receives.
void QueuePair::post_heartbeat() { post_bare(IBV_WR_RDMA_WRITE); }

WireOp* QueuePair::delivered() {
  if (posted.front().message) ++finished;
  return refused();
}

WireOp* QueuePair::refused() {
  WireOp* const op = posted.front().op;
  posted.pop_front();
  work_ -= work_of(op);
  return op;
}

}  // namespace muster::verbs
