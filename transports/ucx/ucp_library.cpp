#include "transports/ucx/ucp_library.h"

#include <cstdlib>
#include <utility>

#include "base/error.h"

namespace muster {

UcpLibrary::UcpLibrary() {
  library_.emplace("libucp.so.0");
  if (!*library_) {
    problem_ = "libucp.so.0 isn't installed. Install UCX (Debian: apt-get install libucx0) on every host";
    return;
  }
  const auto find = [&](auto& function, const char* name) {
    function = library_->function<std::remove_pointer_t<std::remove_reference_t<decltype(function)>>>(name);
    if (!function && problem_.empty()) problem_ = fmt::format("libucp.so.0 has no {}. UCX 1.12 or newer is needed", name);
  };
  find(init_version, "ucp_init_version");
  find(cleanup, "ucp_cleanup");
  find(config_read, "ucp_config_read");
  find(config_modify, "ucp_config_modify");
  find(config_release, "ucp_config_release");
  find(worker_create, "ucp_worker_create");
  find(worker_destroy, "ucp_worker_destroy");
  find(worker_get_address, "ucp_worker_get_address");
  find(worker_release_address, "ucp_worker_release_address");
  find(worker_progress, "ucp_worker_progress");
  find(worker_get_efd, "ucp_worker_get_efd");
  find(worker_arm, "ucp_worker_arm");
  find(worker_set_am_recv_handler, "ucp_worker_set_am_recv_handler");
  find(am_send, "ucp_am_send_nbx");
  find(am_recv_data, "ucp_am_recv_data_nbx");
  find(ep_create, "ucp_ep_create");
  find(ep_close, "ucp_ep_close_nbx");
  find(request_check_status, "ucp_request_check_status");
  find(request_free, "ucp_request_free");
  find(get_version, "ucp_get_version");
  find(status_string, "ucs_status_string");
  // UCX catches SIGSEGV and the like as soon as it is loaded. The process belongs to its program, unless somebody asked for that.
  if (!std::getenv("UCX_HANDLE_ERRORS"))  // NOLINT(concurrency-mt-unsafe)
    if (auto* const give_back = library_->function<void()>("ucs_debug_disable_signals")) give_back();
}

const UcpLibrary& UcpLibrary::loaded() {
  static const UcpLibrary library;
  return library;
}

const UcpLibrary& UcpLibrary::get() {
  const UcpLibrary& l = loaded();
  if (!l.problem_.empty()) fail(Result::system_error, "the ucx network can't be used: {}", l.problem_);
  return l;
}

std::string UcpLibrary::problem() { return loaded().problem_; }

bool UcpLibrary::is_at_least(unsigned major, unsigned minor) const {
  unsigned has_major = 0, has_minor = 0, release = 0;
  get_version(&has_major, &has_minor, &release);
  return std::pair(has_major, has_minor) >= std::pair(major, minor);
}

std::string UcpLibrary::version() const {
  unsigned major = 0, minor = 0, release = 0;
  get_version(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace muster
