#include "transports/verbs/library.h"

#include "base/error.h"

namespace muster::verbs {

Library::Library(const std::string& file) : handle(file) {
  if (!handle)
    fail(Result::system_error, "there is no {}. Install rdma-core with the card's provider (Debian: libibverbs1 ibverbs-providers)", file);
  const auto find = [&](auto& to, const char* name) {
    to = handle.function<std::remove_pointer_t<std::remove_reference_t<decltype(to)>>>(name);
    if (!to) fail(Result::system_error, "{} has no {}: it is older than rdma-core 32. Install a newer one", file, name);
  };
  find(get_device_list, "ibv_get_device_list");
  find(free_device_list, "ibv_free_device_list");
  find(get_device_name, "ibv_get_device_name");
  find(open_device, "ibv_open_device");
  find(close_device, "ibv_close_device");
  find(query_device, "ibv_query_device");
  find(query_port, "ibv_query_port");
  find(query_gid_table, "_ibv_query_gid_table");
  find(alloc_pd, "ibv_alloc_pd");
  find(dealloc_pd, "ibv_dealloc_pd");
  find(reg_mr, "ibv_reg_mr_iova2");
  find(dereg_mr, "ibv_dereg_mr");
  find(create_comp_channel, "ibv_create_comp_channel");
  find(destroy_comp_channel, "ibv_destroy_comp_channel");
  find(create_cq, "ibv_create_cq");
  find(destroy_cq, "ibv_destroy_cq");
  find(get_cq_event, "ibv_get_cq_event");
  find(ack_cq_events, "ibv_ack_cq_events");
  find(create_srq, "ibv_create_srq");
  find(destroy_srq, "ibv_destroy_srq");
  find(create_qp, "ibv_create_qp");
  find(modify_qp, "ibv_modify_qp");
  find(destroy_qp, "ibv_destroy_qp");
  find(create_ah, "ibv_create_ah");
  find(destroy_ah, "ibv_destroy_ah");
  find(get_async_event, "ibv_get_async_event");
  find(ack_async_event, "ibv_ack_async_event");
  if (auto* const ask = handle.function<ibv_fork_status()>("ibv_is_fork_initialized")) fork_is_harmless = ask() == IBV_FORK_UNNEEDED;
}

std::shared_ptr<const Library> Library::load(const std::string& file) { return std::make_shared<const Library>(file); }

const char* name_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS: return "IBV_WC_SUCCESS";
    case IBV_WC_LOC_LEN_ERR: return "IBV_WC_LOC_LEN_ERR";
    case IBV_WC_LOC_QP_OP_ERR: return "IBV_WC_LOC_QP_OP_ERR";
    case IBV_WC_LOC_EEC_OP_ERR: return "IBV_WC_LOC_EEC_OP_ERR";
    case IBV_WC_LOC_PROT_ERR: return "IBV_WC_LOC_PROT_ERR";
    case IBV_WC_WR_FLUSH_ERR: return "IBV_WC_WR_FLUSH_ERR";
    case IBV_WC_MW_BIND_ERR: return "IBV_WC_MW_BIND_ERR";
    case IBV_WC_BAD_RESP_ERR: return "IBV_WC_BAD_RESP_ERR";
    case IBV_WC_LOC_ACCESS_ERR: return "IBV_WC_LOC_ACCESS_ERR";
    case IBV_WC_REM_INV_REQ_ERR: return "IBV_WC_REM_INV_REQ_ERR";
    case IBV_WC_REM_ACCESS_ERR: return "IBV_WC_REM_ACCESS_ERR";
    case IBV_WC_REM_OP_ERR: return "IBV_WC_REM_OP_ERR";
    case IBV_WC_RETRY_EXC_ERR: return "IBV_WC_RETRY_EXC_ERR";
    case IBV_WC_RNR_RETRY_EXC_ERR: return "IBV_WC_RNR_RETRY_EXC_ERR";
    case IBV_WC_REM_ABORT_ERR: return "IBV_WC_REM_ABORT_ERR";
    case IBV_WC_FATAL_ERR: return "IBV_WC_FATAL_ERR";
    case IBV_WC_RESP_TIMEOUT_ERR: return "IBV_WC_RESP_TIMEOUT_ERR";
    case IBV_WC_GENERAL_ERR: return "IBV_WC_GENERAL_ERR";
    default: return "an unknown status";
  }
}

const char* remedy_for(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "The peer's port doesn't answer: look at both ports (ibv_devinfo), cables, switches and, for RoCE, whether the GIDs are of "
             "networks that reach each other (NCCL_IB_GID_INDEX, NCCL_IB_ADDR_RANGE, NCCL_IB_HCA); NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT say "
             "how long is waited";
    case IBV_WC_WR_FLUSH_ERR:
      return "The peer's device refused a message of the peer's, whose own error says why, or this host's device or port has failed: see the kernel's log "
             "(dmesg) and ibv_devinfo";
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_FATAL_ERR:
      return "The device or its port has failed: see the kernel's log (dmesg) and ibv_devinfo on this host";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
      return "This is a mistake of the library or of a driver, not of yours: please report it";
    case IBV_WC_REM_INV_REQ_ERR:
      return "Soft-RoCE (rdma_rxe) does this when it sends packets again that were only late: set a longer NCCL_IB_TIMEOUT. From another device it "
             "is a mistake of the library or of a driver, not of yours: please report it";
    default: return "See the kernel's log (dmesg) on both hosts";
  }
}

const char* name_of(ibv_event_type event) {
  switch (event) {
    case IBV_EVENT_CQ_ERR: return "IBV_EVENT_CQ_ERR";
    case IBV_EVENT_QP_FATAL: return "IBV_EVENT_QP_FATAL";
    case IBV_EVENT_QP_REQ_ERR: return "IBV_EVENT_QP_REQ_ERR";
    case IBV_EVENT_QP_ACCESS_ERR: return "IBV_EVENT_QP_ACCESS_ERR";
    case IBV_EVENT_COMM_EST: return "IBV_EVENT_COMM_EST";
    case IBV_EVENT_SQ_DRAINED: return "IBV_EVENT_SQ_DRAINED";
    case IBV_EVENT_PATH_MIG: return "IBV_EVENT_PATH_MIG";
    case IBV_EVENT_PATH_MIG_ERR: return "IBV_EVENT_PATH_MIG_ERR";
    case IBV_EVENT_DEVICE_FATAL: return "IBV_EVENT_DEVICE_FATAL";
    case IBV_EVENT_PORT_ACTIVE: return "IBV_EVENT_PORT_ACTIVE";
    case IBV_EVENT_PORT_ERR: return "IBV_EVENT_PORT_ERR";
    case IBV_EVENT_LID_CHANGE: return "IBV_EVENT_LID_CHANGE";
    case IBV_EVENT_PKEY_CHANGE: return "IBV_EVENT_PKEY_CHANGE";
    case IBV_EVENT_SM_CHANGE: return "IBV_EVENT_SM_CHANGE";
    case IBV_EVENT_SRQ_ERR: return "IBV_EVENT_SRQ_ERR";
    case IBV_EVENT_SRQ_LIMIT_REACHED: return "IBV_EVENT_SRQ_LIMIT_REACHED";
    case IBV_EVENT_QP_LAST_WQE_REACHED: return "IBV_EVENT_QP_LAST_WQE_REACHED";
    case IBV_EVENT_CLIENT_REREGISTER: return "IBV_EVENT_CLIENT_REREGISTER";
    case IBV_EVENT_GID_CHANGE: return "IBV_EVENT_GID_CHANGE";
    case IBV_EVENT_WQ_FATAL: return "IBV_EVENT_WQ_FATAL";
    default: return "an unknown event";
  }
}

}  // namespace muster::verbs
