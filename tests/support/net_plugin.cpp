// A network plugin over TCP sockets as others write them, declared from NCCL's public headers alone: one library per version
// of the interface (NET_VERSION). It holds those who use it to the contract: one connection per listener, memory that was
// registered for its connection, no more requests than are allowed, all of it given back.
//
// What tests ask of it: plugin_devices(n), plugin_fail(function, after, code), plugin_objects(), plugin_complaint(). With
// MUSTER_TEST_PLUGIN_GPU=1 it says that it reads simulated GPUs' memory, which is the host's; plugin_gpu_sends() counts that.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace {

constexpr int kInternalError = 3, kRemoteError = 6, kSystemError = 2;
constexpr size_t kMostRequests = 32;
using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
using Profiler = int (*)(void** handle, int type, void* parent, int64_t plugin, void* data);

std::mutex g_mutex;
int g_devices = 1, g_objects = 0;
[[maybe_unused]] int g_contexts = 0;
std::string g_complaint, g_fails;
int g_fails_after = 0, g_fails_with = 0;
long g_gpu_sends = 0;
bool reads_gpus() { return getenv("MUSTER_TEST_PLUGIN_GPU") != nullptr; }

int complain(const std::string& what) {
  if (g_complaint.empty()) g_complaint = what;
  return kInternalError;
}
// The code of an injected failure.
int failure_of(const char* function) {
  if (g_fails != function || g_fails_after-- > 0) return 0;
  g_fails.clear();
  return g_fails_with;
}

struct Request;
struct Comm {
  Comm() { ++g_objects; }
  ~Comm() {
    if (fd >= 0) close(fd);
    --g_objects;
  }
  int fd = -1;
  int calls = 0;
  std::map<void*, std::pair<char*, size_t>> memory;  // by handle
  std::set<void*> of_gpus;                           // handles
  std::deque<Request*> sends, receives;
  size_t requests = 0;
  uintptr_t last_memory = 0;
};
struct Request {
  Comm* comm;
  char* data;
  size_t bytes, moved = 0, head_moved = 0;
  uint64_t head = 0;  // bytes of the message
  bool done = false, receives = false;
};
struct Listener {
  Listener() { ++g_objects; }
  ~Listener() {
    close(fd);
    --g_objects;
  }
  int fd;
  bool accepted = false;
};
struct Handle {
  sockaddr_in address;
  int tries;  // the state of who connects
  int fd;
};
static_assert(sizeof(Handle) <= 128);

int make_listener(void* handle, void** out) {
  if (const int e = failure_of("listen")) return e;
  auto* l = new Listener;
  l->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  Handle h{};
  h.address.sin_family = AF_INET;
  h.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof h.address;
  if (bind(l->fd, reinterpret_cast<sockaddr*>(&h.address), size) || ::listen(l->fd, 1) ||
      getsockname(l->fd, reinterpret_cast<sockaddr*>(&h.address), &size)) {
    delete l;
    return kSystemError;
  }
  memcpy(handle, &h, sizeof h);
  *out = l;
  return 0;
}

int make_connection(void* handle, void** out) {
  *out = nullptr;
  if (const int e = failure_of("connect")) return e;
  auto* h = static_cast<Handle*>(handle);
  if (h->tries++ == 0) {
    h->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connect(h->fd, reinterpret_cast<sockaddr*>(&h->address), sizeof h->address) && errno != EINPROGRESS) return kSystemError;
    return 0;
  }
  pollfd p{h->fd, POLLOUT, 0};
  if (poll(&p, 1, 0) <= 0) return 0;
  auto* c = new Comm;
  c->fd = h->fd;
  *out = c;
  return 0;
}

int accept_connection(void* listener, void** out) {
  *out = nullptr;
  if (const int e = failure_of("accept")) return e;
  auto* l = static_cast<Listener*>(listener);
  if (l->accepted) return complain("a listener was asked for a second connection");
  const int fd = accept4(l->fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return 0;
  l->accepted = true;
  auto* c = new Comm;
  c->fd = fd;
  *out = c;
  return 0;
}

bool known(Comm* c, void* handle, const void* data, size_t bytes) {
  const auto m = c->memory.find(handle);
  return m != c->memory.end() && data >= m->second.first && static_cast<const char*>(data) + bytes <= m->second.first + m->second.second;
}

int post(Comm* c, std::deque<Request*>& queue, void* data, size_t bytes, void* memory, bool receives, void** out) {
  *out = nullptr;
  if (!known(c, memory, data, bytes)) return complain("memory that isn't registered for this connection");
  if (c->requests == kMostRequests) return complain("too many requests");
  if (++c->calls % 5 == 0) return 0;  // not now
  if (c->of_gpus.contains(memory)) {
    if (receives) return complain("a receive into GPU memory, which nobody flushes");
    ++g_gpu_sends;
  }
  ++c->requests;
  ++g_objects;
  auto* r = new Request{c, static_cast<char*>(data), bytes};
  r->receives = receives;
  r->head = bytes;
  queue.push_back(r);
  *out = r;
  return 0;
}

int move_sends(Comm* c) {
  while (!c->sends.empty()) {
    Request* r = c->sends.front();
    const bool head = r->head_moved < sizeof r->head;
    const char* from = head ? reinterpret_cast<char*>(&r->head) + r->head_moved : r->data + r->moved;
    const size_t left = head ? sizeof r->head - r->head_moved : r->bytes - r->moved;
    if (left) {
      const ssize_t n = send(c->fd, from, left, MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : kRemoteError;
      (head ? r->head_moved : r->moved) += static_cast<size_t>(n);
      continue;
    }
    r->done = true;
    c->sends.pop_front();
  }
  return 0;
}

int move_receives(Comm* c) {
  while (!c->receives.empty()) {
    Request* r = c->receives.front();
    const bool head = r->head_moved < sizeof r->head;
    char* to = head ? reinterpret_cast<char*>(&r->head) + r->head_moved : r->data + r->moved;
    const size_t left = head ? sizeof r->head - r->head_moved : r->head - r->moved;
    if (!head && r->head > r->bytes) return complain("a message longer than what was posted for it");
    if (left) {
      const ssize_t n = recv(c->fd, to, left, 0);
      if (n == 0) return kRemoteError;
      if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : kRemoteError;
      (head ? r->head_moved : r->moved) += static_cast<size_t>(n);
      continue;
    }
    r->done = true;
    c->receives.pop_front();
  }
  return 0;
}

int net_test(void* request, int* done, int* sizes) {
  const std::lock_guard lock(g_mutex);
  if (const int e = failure_of("test")) return e;
  auto* r = static_cast<Request*>(request);
  *done = 0;
  if (!r->done) {
    const int e = r->receives ? move_receives(r->comm) : move_sends(r->comm);
    if (e && !r->done) return e;
  }
  if (!r->done) return 0;
  *done = 1;
  if (sizes) *sizes = static_cast<int>(r->head);
  --r->comm->requests;
  --g_objects;
  delete r;
  return 0;
}

int net_reg(void* comm, void* data, size_t size, int type, void** handle) {
  const std::lock_guard lock(g_mutex);
  if (const int e = failure_of("regMr")) return e;
  if (type != 1 && !(type == 2 && reads_gpus())) return complain("memory that isn't the host's");
  auto* c = static_cast<Comm*>(comm);
  *handle = reinterpret_cast<void*>(++c->last_memory);
  c->memory[*handle] = {static_cast<char*>(data), size};
  if (type == 2) c->of_gpus.insert(*handle);
  ++g_objects;
  return 0;
}
int net_reg_dma_buf(void*, void*, size_t, int, uint64_t, int, void**) { return complain("no dma-buf was offered"); }
int net_dereg(void* comm, void* handle) {
  const std::lock_guard lock(g_mutex);
  if (!static_cast<Comm*>(comm)->memory.erase(handle)) return complain("memory was given back twice");
  static_cast<Comm*>(comm)->of_gpus.erase(handle);
  --g_objects;
  return 0;
}
int net_flush(void*, int, void**, int*, void**, void**) { return complain("a flush, where there is no GPU"); }

int net_close_comm(void* comm) {
  const std::lock_guard lock(g_mutex);
  auto* c = static_cast<Comm*>(comm);
  if (!c->memory.empty()) complain("a connection was closed with memory registered");
  for (auto* queue : {&c->sends, &c->receives})
    for (Request* r : *queue) delete r, --g_objects, --c->requests;
  g_objects -= static_cast<int>(c->requests);  // done, and not asked about
  delete c;
  return 0;
}
int net_close_listen(void* listener) {
  const std::lock_guard lock(g_mutex);
  delete static_cast<Listener*>(listener);
  return 0;
}
int net_device_memory(void*, void*, void**) { return complain("no device memory was offered"); }
int net_consumed(void*, int, void*) { return complain("no device was offered"); }

int net_devices(int* n) {
  *n = g_devices;
  return failure_of("devices");
}

// --- the interface, as NCCL's headers have it ---

#if NET_VERSION >= 9
using Bytes = size_t;
#else
using Bytes = int;
#endif

struct Properties {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
#if NET_VERSION >= 9
  int forceFlush;
#endif
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
#if NET_VERSION >= 9
  struct {
    int ndevs;
    int devs[4];
  } vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
#endif
#if NET_VERSION >= 11
  int maxMultiRequestSize;
#endif
};

int net_properties(int device, Properties* p) {
  static char name[] = "sock0";
  *p = {};
  p->name = name;
  p->ptrSupport = reads_gpus() ? 3 : 1;
  p->speed = device < 8 ? 10000 : 1000;
  p->maxComms = 65536;
  p->maxRecvs = 1;
#if NET_VERSION >= 9
  p->maxP2pBytes = size_t{1} << 30;
#endif
  return failure_of("getProperties");
}

[[maybe_unused]] int start(Logger log) {
  if (const int e = failure_of("init")) return e;
  log(3, 16, __FILE__, __LINE__, "plugin for tests begins, version %d", NET_VERSION);
  return 0;
}

#if NET_VERSION >= 11
int net_init(void** context, uint64_t, void*, Logger log, Profiler) {
  if (const int e = start(log)) return e;
  ++g_contexts;
  ++g_objects;
  *context = &g_contexts;
  return 0;
}
int net_finalize(void*) {
  --g_objects;
  return --g_contexts < 0 ? complain("ended too often") : 0;
}
int net_set_attributes(void*, void*) { return 0; }
#elif NET_VERSION >= 10
int net_init(Logger log, Profiler) { return start(log); }
#else
int net_init(Logger log) { return start(log); }
#endif

#if NET_VERSION >= 11
int net_listen(void* context, int, void* handle, void** listener) {
  const std::lock_guard lock(g_mutex);
  return context == &g_contexts ? make_listener(handle, listener) : complain("another context");
}
int net_connect(void* context, int, void* handle, void** comm, void**) {
  const std::lock_guard lock(g_mutex);
  return context == &g_contexts ? make_connection(handle, comm) : complain("another context");
}
#else
int net_listen(int, void* handle, void** listener) {
  const std::lock_guard lock(g_mutex);
  return make_listener(handle, listener);
}
#if NET_VERSION >= 10
int net_connect(int, void* config, void* handle, void** comm, void**) {
  const std::lock_guard lock(g_mutex);
  return *static_cast<int*>(config) == -1 ? make_connection(handle, comm) : complain("a traffic class nobody set");
}
#else
int net_connect(int, void* handle, void** comm, void**) {
  const std::lock_guard lock(g_mutex);
  return make_connection(handle, comm);
}
#endif
#endif
int net_accept(void* listener, void** comm, void**) {
  const std::lock_guard lock(g_mutex);
  return accept_connection(listener, comm);
}

int post_send(void* comm, void* data, Bytes bytes, void* memory, void** request) {
  const std::lock_guard lock(g_mutex);
  if (const int e = failure_of("isend")) return e;
  auto* c = static_cast<Comm*>(comm);
  return post(c, c->sends, data, static_cast<size_t>(bytes), memory, false, request);
}
int post_receive(void* comm, int n, void** data, Bytes* bytes, void** memory, void** request) {
  const std::lock_guard lock(g_mutex);
  if (const int e = failure_of("irecv")) return e;
  if (n != 1) return complain("receives in groups, of which there are none");
  auto* c = static_cast<Comm*>(comm);
  return post(c, c->receives, data[0], static_cast<size_t>(bytes[0]), memory[0], true, request);
}
#if NET_VERSION >= 10
int net_isend(void* comm, void* data, size_t bytes, int, void* memory, void*, void** request) { return post_send(comm, data, bytes, memory, request); }
int net_irecv(void* comm, int n, void** data, size_t* bytes, int*, void** memory, void**, void** request) {
  return post_receive(comm, n, data, bytes, memory, request);
}
#else
int net_isend(void* comm, void* data, Bytes bytes, int, void* memory, void** request) { return post_send(comm, data, bytes, memory, request); }
int net_irecv(void* comm, int n, void** data, Bytes* bytes, int*, void** memory, void** request) {
  return post_receive(comm, n, data, bytes, memory, request);
}
#endif
#if NET_VERSION >= 9
int net_make_virtual(int*, void*) { return complain("no virtual devices were offered"); }
#endif

struct Plugin {
  const char* name = "test sockets";
  decltype(&net_init) init_ = net_init;
  decltype(&net_devices) devices_ = net_devices;
  decltype(&net_properties) properties_ = net_properties;
  decltype(&net_listen) listen_ = net_listen;
  decltype(&net_connect) connect_ = net_connect;
  decltype(&net_accept) accept_ = net_accept;
  decltype(&net_reg) reg_ = net_reg;
  decltype(&net_reg_dma_buf) reg_dma_buf_ = net_reg_dma_buf;
  decltype(&net_dereg) dereg_ = net_dereg;
  decltype(&net_isend) isend_ = net_isend;
  decltype(&net_irecv) irecv_ = net_irecv;
  decltype(&net_flush) flush_ = net_flush;
  decltype(&net_test) test_ = net_test;
  decltype(&net_close_comm) close_send_ = net_close_comm;
  decltype(&net_close_comm) close_receive_ = net_close_comm;
  decltype(&net_close_listen) close_listen_ = net_close_listen;
  decltype(&net_device_memory) device_memory_ = net_device_memory;
  decltype(&net_consumed) consumed_ = net_consumed;
#if NET_VERSION >= 9
  decltype(&net_make_virtual) make_virtual_ = net_make_virtual;
#endif
#if NET_VERSION >= 11
  decltype(&net_finalize) finalize_ = net_finalize;
  decltype(&net_set_attributes) set_attributes_ = net_set_attributes;
#endif
};

}  // namespace

#define PASTE(a, b) a##b
#define NAME(version) PASTE(ncclNetPlugin_v, version)
extern "C" {
[[gnu::visibility("default")]] Plugin NAME(NET_VERSION);

[[gnu::visibility("default")]] void plugin_devices(int n) { g_devices = n; }
// The call of `function` after so many others returns `code`.
[[gnu::visibility("default")]] void plugin_fail(const char* function, int after, int code) {
  const std::lock_guard lock(g_mutex);
  g_fails = function;
  g_fails_after = after;
  g_fails_with = code;
}
// Connections, listeners, registrations, requests and contexts that weren't given back.
[[gnu::visibility("default")]] int plugin_objects() {
  const std::lock_guard lock(g_mutex);
  return g_objects;
}
// Sends from memory that was registered as a GPU's.
[[gnu::visibility("default")]] long plugin_gpu_sends() {
  const std::lock_guard lock(g_mutex);
  return g_gpu_sends;
}
// What was done to it that the contract forbids, the first time; empty: nothing.
[[gnu::visibility("default")]] const char* plugin_complaint() { return g_complaint.c_str(); }
}
