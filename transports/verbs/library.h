// libibverbs, looked for at run time; only its header is needed to build. What the header does inline goes through a
// device's context and needs nothing of the library.
#pragma once

#include <infiniband/verbs.h>
#undef ibv_query_port  // the header's own need the library to link with
#undef ibv_reg_mr

#include <memory>
#include <string>

#include "base/shared_library.h"

namespace muster::verbs {

// Functions since rdma-core 32 (2020).
struct Library {
  explicit Library(const std::string& file);
  // Throws system_error, saying what is missing and what to install. `file`: as for dlopen.
  static std::shared_ptr<const Library> load(const std::string& file);

  SharedLibrary handle;
  decltype(&::ibv_get_device_list) get_device_list;
  decltype(&::ibv_free_device_list) free_device_list;
  decltype(&::ibv_get_device_name) get_device_name;
  decltype(&::ibv_open_device) open_device;
  decltype(&::ibv_close_device) close_device;
  decltype(&::ibv_query_device) query_device;
  int (*query_port)(ibv_context*, uint8_t, ibv_port_attr*);
  decltype(&::_ibv_query_gid_table) query_gid_table;
  decltype(&::ibv_alloc_pd) alloc_pd;
  decltype(&::ibv_dealloc_pd) dealloc_pd;
  decltype(&::ibv_reg_mr_iova2) reg_mr;
  decltype(&::ibv_dereg_mr) dereg_mr;
  decltype(&::ibv_create_comp_channel) create_comp_channel;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel;
  decltype(&::ibv_create_cq) create_cq;
  decltype(&::ibv_destroy_cq) destroy_cq;
  decltype(&::ibv_get_cq_event) get_cq_event;
  decltype(&::ibv_ack_cq_events) ack_cq_events;
  decltype(&::ibv_create_srq) create_srq;
  decltype(&::ibv_destroy_srq) destroy_srq;
  decltype(&::ibv_create_qp) create_qp;
  decltype(&::ibv_modify_qp) modify_qp;
  decltype(&::ibv_destroy_qp) destroy_qp;
  decltype(&::ibv_create_ah) create_ah;
  decltype(&::ibv_destroy_ah) destroy_ah;
  decltype(&::ibv_get_async_event) get_async_event;
  decltype(&::ibv_ack_async_event) ack_async_event;

  // Whether fork() leaves registered memory to its adapter whatever either process writes: the kernel copies such pages at once
  // (Linux 5.12), as rdma-core 35 and newer know.
  bool fork_is_harmless = false;
};

// Something of the library's with the function that frees it.
template <class T>
using Owned = std::unique_ptr<T, int (*)(T*)>;

// "IBV_WC_RETRY_EXC_ERR", and what a person can do about it.
const char* name_of(ibv_wc_status status);
const char* remedy_for(ibv_wc_status status);
const char* name_of(ibv_event_type event);  // "IBV_EVENT_PORT_ERR"

}  // namespace muster::verbs
