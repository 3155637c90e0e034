// UCX's library, looked for at run time: Muster works where it isn't installed. Functions have the names of UCX's reference.
// From UCX 1.12 on, the first that has all that is used here.
#pragma once

#include <ucp/api/ucp.h>

#include <optional>
#include <string>

#include "base/shared_library.h"

namespace muster {

class UcpLibrary {
 public:
  // Once per process. Throws system_error, saying what is missing and how to get it.
  static const UcpLibrary& get();
  // Why get() would throw; empty if it wouldn't.
  static std::string problem();
  bool is_at_least(unsigned major, unsigned minor) const;
  std::string version() const;  // "1.13.1"

  // ucp_init() is an inline function over this one.
  decltype(&ucp_init_version) init_version;
  decltype(&ucp_cleanup) cleanup;
  decltype(&ucp_config_read) config_read;
  decltype(&ucp_config_modify) config_modify;
  decltype(&ucp_config_release) config_release;
  decltype(&ucp_worker_create) worker_create;
  decltype(&ucp_worker_destroy) worker_destroy;
  decltype(&ucp_worker_get_address) worker_get_address;
  decltype(&ucp_worker_release_address) worker_release_address;
  decltype(&ucp_worker_progress) worker_progress;
  decltype(&ucp_worker_get_efd) worker_get_efd;
  decltype(&ucp_worker_arm) worker_arm;
  decltype(&ucp_worker_set_am_recv_handler) worker_set_am_recv_handler;
  decltype(&ucp_am_send_nbx) am_send;
  decltype(&ucp_am_recv_data_nbx) am_recv_data;
  decltype(&ucp_ep_create) ep_create;
  decltype(&ucp_ep_close_nbx) ep_close;
  decltype(&ucp_request_check_status) request_check_status;
  decltype(&ucp_request_free) request_free;
  decltype(&ucp_get_version) get_version;
  decltype(&ucs_status_string) status_string;

 private:
  UcpLibrary();
  static const UcpLibrary& loaded();
  std::optional<SharedLibrary> library_;
  std::string problem_;
};

}  // namespace muster
