#include "transports/ucx/ucx_network.h"

#include <sched.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "base/error.h"
#include "base/log.h"
#include "transports/ucx/ucp_library.h"
#include "transports/ucx/ucx_settings.h"
#include "transports/wired_network.h"

namespace muster {
namespace {

constexpr unsigned kActiveMessage = 1;  // the one kind there is: a WireHeader and its payload

class UcxNetwork final : public WiredNetwork {
 public:
  explicit UcxNetwork(const NetworkSetup& setup) : WiredNetwork(setup), ucp_(UcpLibrary::get()) {
    try {
      start();
    } catch (...) {
      stop();
      throw;
    }
  }
  ~UcxNetwork() override {
    const std::lock_guard lock(mutex_);
    say_goodbye();
    stop();
    free_ends();
  }

  std::string_view name() const override { return "ucx"; }
  size_t slot_bytes() const override { return kUcxSlotBytes; }
  std::string address() const override { return address_; }
  int event_fd() const override { return event_fd_; }

 private:
  struct Peer {
    UcxNetwork* network;
    int rank;
    ucp_ep_h endpoint = nullptr;
    bool failed = false;
    int under_way = 0;  // requests of UCX's, out and in
  };
  // A payload on its way into a ring.
  struct Receive {
    UcxNetwork* network = nullptr;
    WireHeader header{};
    Landing landing;
    Peer* peer = nullptr;  // null: not connected to yet
  };

  void start();
  void stop() noexcept;
  void await_quiet() noexcept;
  void require(ucs_status_t status, const char* what) const {
    if (status != UCS_OK) fail(Result::system_error, "ucx {}: {} failed: {}. UCX_LOG_LEVEL=info tells more", ucp_.version(), what, ucp_.status_string(status));
  }
  std::string text_of(ucs_status_t status) const;
  Peer& connect(int rank);
  void close_endpoint(Peer& peer) noexcept;
  void wait_closed(ucs_status_ptr_t request) noexcept;
  void sent(WireOp& op, ucs_status_t status) noexcept;
  void give_up(int rank, const std::string& why) noexcept;
  Receive& new_receive();

  bool poll() override;
  void post(WireOp& op) override;
  void expect(int peer) noexcept override;
  void disconnect(int peer) noexcept override;
  bool arm_events() override;

  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data, size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* op);
  static void on_received(void* request, ucs_status_t status, size_t bytes, void* receive);
  static void on_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  const UcpLibrary& ucp_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  int event_fd_ = -1;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank, as they are connected to
  std::vector<int> broken_;                   // whose endpoints are to be closed
  std::vector<int> expected_;                 // to be connected to
  std::deque<Receive> receives_;
  std::vector<Receive*> free_receives_;
  std::vector<ucs_status_ptr_t> closing_;
};

void UcxNetwork::start() {
  ucp_config_t* config = nullptr;
  require(ucp_.config_read(nullptr, nullptr, &config), "reading the configuration (variables UCX_*)");
  std::string said;
  const auto user_sets = [](const char* name) { return std::getenv(name) != nullptr; };  // NOLINT(concurrency-mt-unsafe)
  for (const UcxSetting& s : ucx_settings(setup().options, setup().interfaces, list_rdma_devices(), user_sets)) {
    // Before 1.17 a transport's own settings go without its name, a group's with the group's. What a release doesn't know
    // it does without.
    const std::string name = s.name.starts_with("TCP_") && !ucp_.is_at_least(1, 17) ? s.name.substr(4) : s.name;
    if (ucp_.config_modify(config, name.c_str(), s.value.c_str()) == UCS_OK) said += fmt::format(" {}={}", s.name, s.value);
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<size_t>(setup().nranks);
  const ucs_status_t made = ucp_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  ucp_.config_release(config);
  if (made != UCS_OK)
    fail(Result::system_error, "ucx {}: no device could be used ({}) with{}. Check NCCL_SOCKET_IFNAME, NCCL_IB_HCA, UCX_TLS and UCX_NET_DEVICES; `ucx_info -d` lists what there is",
         ucp_.version(), ucp_.status_string(made), said);
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  require(ucp_.worker_create(context_, &worker, &worker_), "opening devices");
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kActiveMessage;
  handler.cb = on_message;
  handler.arg = this;
  require(ucp_.worker_set_am_recv_handler(worker_, &handler), "registering for messages");
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  require(ucp_.worker_get_address(worker_, &address, &bytes), "asking for the own address");
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucp_.worker_release_address(worker_, address);
  require(ucp_.worker_get_efd(worker_, &event_fd_), "asking for an event descriptor");
  peers_.resize(static_cast<size_t>(setup().nranks));
  log_info(Topic::net, "ucx {}:{}, an address of {} bytes", ucp_.version(), said, bytes);
}

// UCX 1.13 ends the process when a worker is destroyed while it still has to answer a peer that is just connecting.
void UcxNetwork::await_quiet() noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr auto kQuiet = std::chrono::milliseconds(20), kPatience = std::chrono::milliseconds(1000);
  const auto until = Clock::now() + kPatience;
  for (auto quiet_since = Clock::now(), now = quiet_since; now < until && now - quiet_since < kQuiet; now = Clock::now())
    if (ucp_.worker_progress(worker_) != 0)
      quiet_since = now;
    else
      sched_yield();
}

void UcxNetwork::stop() noexcept {
  if (worker_) await_quiet();
  for (auto& p : peers_)
    if (p) close_endpoint(*p);
  for (ucs_status_ptr_t r : closing_) wait_closed(r);
  if (worker_) ucp_.worker_destroy(worker_);
  if (context_) ucp_.cleanup(context_);
}

std::string UcxNetwork::text_of(ucs_status_t status) const {
  const char* remedy = status == UCS_ERR_ENDPOINT_TIMEOUT || status == UCS_ERR_TIMED_OUT ? "The link is down or the host doesn't answer"
                       : status == UCS_ERR_UNREACHABLE
                           ? "No interface of this host leads there: name those that do with NCCL_SOCKET_IFNAME on both"
                           : "Its process has ended, or its host can't be reached";
  return fmt::format("ucx says '{}' ({}). {}", ucp_.status_string(status), static_cast<int>(status), remedy);
}

// --- endpoints ---

UcxNetwork::Peer& UcxNetwork::connect(int rank) {
  auto& p = peers_[static_cast<size_t>(rank)];
  if (p) return *p;
  auto made = std::make_unique<Peer>(Peer{this, rank});
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address_of(rank).data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_error;
  params.err_handler.arg = made.get();
  const ucs_status_t status = ucp_.ep_create(worker_, &params, &made->endpoint);
  if (status != UCS_OK) fail(Result::remote_error, "{}", text_of(status));
  p = std::move(made);
  return *p;
}

void UcxNetwork::expect(int peer) noexcept { expected_.push_back(peer); }

void UcxNetwork::close_endpoint(Peer& peer) noexcept {
  if (!peer.endpoint) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t r = ucp_.ep_close(peer.endpoint, &param);
  peer.endpoint = nullptr;
  if (UCS_PTR_IS_PTR(r)) closing_.push_back(r);
}

void UcxNetwork::wait_closed(ucs_status_ptr_t request) noexcept {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (ucp_.request_check_status(request) == UCS_INPROGRESS && std::chrono::steady_clock::now() < until) ucp_.worker_progress(worker_);
  ucp_.request_free(request);
}

void UcxNetwork::give_up(int rank, const std::string& why) noexcept {
  fail_peer(rank, why);
  auto& p = peers_[static_cast<size_t>(rank)];
  if (!p || p->failed) return;
  p->failed = true;
  broken_.push_back(rank);  // not here: UCX may be in the middle of it
}

void UcxNetwork::disconnect(int rank) noexcept {
  auto& p = peers_[static_cast<size_t>(rank)];
  if (!p) return;
  p->failed = true;
  close_endpoint(*p);  // what is under way ends as cancelled, soon
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (p->under_way > 0 && std::chrono::steady_clock::now() < until) ucp_.worker_progress(worker_);
}

void UcxNetwork::on_error(void* peer, ucp_ep_h, ucs_status_t status) {
  auto& p = *static_cast<Peer*>(peer);
  p.network->give_up(p.rank, p.network->text_of(status));
}

// --- progress ---

bool UcxNetwork::poll() {
  const bool moved = ucp_.worker_progress(worker_) != 0;
  if (!expected_.empty()) [[unlikely]] {
    for (const int rank : std::exchange(expected_, {})) {
      try {
        connect(rank);
      } catch (const std::exception& e) {
        log_info(Topic::net, "ucx: connecting to {}: {}", setup().rank_name(rank), e.what());
      }
    }
  }
  if (!broken_.empty()) [[unlikely]] {
    for (const int rank : std::exchange(broken_, {})) close_endpoint(*peers_[static_cast<size_t>(rank)]);
  }
  if (!closing_.empty()) [[unlikely]]
    std::erase_if(closing_, [&](ucs_status_ptr_t r) {
      if (ucp_.request_check_status(r) == UCS_INPROGRESS) return false;
      ucp_.request_free(r);
      return true;
    });
  return moved;
}

bool UcxNetwork::arm_events() { return expected_.empty() && broken_.empty() && ucp_.worker_arm(worker_) == UCS_OK; }

// --- out ---

void UcxNetwork::post(WireOp& op) {
  Peer& peer = connect(op.peer);
  if (peer.failed) return finished(op);
  op.transport = this;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_sent;
  param.user_data = &op;
  const ucs_status_ptr_t r = ucp_.am_send(peer.endpoint, kActiveMessage, &op.header, sizeof op.header, op.payload, op.header.bytes, &param);
  UCS_PTR_IS_PTR(r) ? static_cast<void>(++peer.under_way) : sent(op, UCS_PTR_STATUS(r));
}

void UcxNetwork::sent(WireOp& op, ucs_status_t status) noexcept {
  if (status != UCS_OK) give_up(op.peer, text_of(status));
  finished(op);
}

void UcxNetwork::on_sent(void* request, ucs_status_t status, void* op) {
  auto& o = *static_cast<WireOp*>(op);
  auto& self = *static_cast<UcxNetwork*>(o.transport);
  self.ucp_.request_free(request);
  --self.peers_[static_cast<size_t>(o.peer)]->under_way;
  self.sent(o, status);
}

// --- in ---

UcxNetwork::Receive& UcxNetwork::new_receive() {
  if (free_receives_.empty()) {
    receives_.emplace_back();
    free_receives_.push_back(&receives_.back());
  }
  Receive& r = *free_receives_.back();
  free_receives_.pop_back();
  return r;
}

ucs_status_t UcxNetwork::on_message(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                    const ucp_am_recv_param_t* param) {
  auto& net = *static_cast<UcxNetwork*>(self);
  WireHeader h{};
  if (header_bytes == sizeof h) std::memcpy(&h, header, sizeof h);  // else a stranger's
  if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
    net.arrived(h, data, bytes);
    return UCS_OK;
  }
  const Landing landing = net.land(h);
  if (!landing.known) return UCS_OK;
  if (!landing.at || bytes != h.bytes) {
    net.give_up(static_cast<int>(h.from), fmt::format("{} bytes came of a message that has {}", bytes, h.bytes));
    net.lost(landing);
    return UCS_OK;
  }
  Receive& receive = net.new_receive();
  receive.network = &net;
  receive.header = h;
  receive.landing = landing;
  ucp_request_param_t p{};
  p.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  p.cb.recv_am = on_received;
  p.user_data = &receive;
  const ucs_status_ptr_t r = net.ucp_.am_recv_data(net.worker_, data, landing.at, bytes, &p);
  auto& from = net.peers_[h.from];
  receive.peer = from.get();
  if (UCS_PTR_IS_PTR(r) && from) ++from->under_way;
  if (!UCS_PTR_IS_PTR(r)) on_received(nullptr, UCS_PTR_STATUS(r), bytes, &receive);
  return UCS_INPROGRESS;
}

void UcxNetwork::on_received(void* request, ucs_status_t status, size_t, void* receive) {
  auto& r = *static_cast<Receive*>(receive);
  UcxNetwork& net = *r.network;
  if (request) {
    net.ucp_.request_free(request);
    if (r.peer) --r.peer->under_way;
  }
  if (status == UCS_OK) {
    net.landed(r.header, r.landing);
  } else {
    net.lost(r.landing);
    net.give_up(static_cast<int>(r.header.from), net.text_of(status));
  }
  net.free_receives_.push_back(&r);
}

}  // namespace

std::unique_ptr<Network> make_ucx_network(const NetworkSetup& setup) { return std::make_unique<UcxNetwork>(setup); }

}  // namespace muster
