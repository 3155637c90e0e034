// What the sources of the simulated runtime share: devices, memory, streams, events, graphs, kernels.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "execution.h"
#include "options.h"

#define CUDA_API extern "C" __attribute__((visibility("default")))

namespace cuda_sim {

inline size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// ---- kernels
struct Module;
struct Parameter {
  uint32_t offset, size;
};
struct Kernel {
  Module* module;
  std::string name;      // mangled
  EntryFn fn = nullptr;  // null until it is first used: it is translated then
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes = 0;
  uint32_t static_shared = 0;
  uint32_t max_dynamic_shared = 49152;
  int max_threads = 1024;
  int registers = 0;  // of a thread; 0 until somebody asks
};
Kernel* find_kernel(
    const void* function);  // a host stub, or a handle (a Kernel*) of another API; null: unknown
void register_kernel(const void* host_function, Module* m, const char* name);
bool resolve_kernel(Kernel* k);   // false: it can't be translated
bool describe_kernel(Kernel* k);  // what can be asked of it, without translating it; false: it isn't there
cudaError_t launch(Kernel* k, dim3 grid, dim3 block, void** arguments, size_t dynamic_shared,
                   cudaStream_t stream);

char* module_globals(Module* m, int device);
bool find_symbol(const void* host_variable, int device, void** address, size_t* size);

// ---- operations, streams, events
struct Operation {
  std::function<void()> run;
  std::vector<std::shared_ptr<Operation>> after;
  std::atomic<int> done{0};
  double completed_ms = 0;

  bool is_done() const { return done.load(std::memory_order_acquire); }
  void wait() const {
    while (!is_done()) done.wait(0);
  }
};
using OperationPtr = std::shared_ptr<Operation>;

struct Node;
struct Graph;
struct Stream;
struct Capture {
  cudaStreamCaptureMode mode;
  Graph* graph;
  unsigned long long id;
  Stream* origin;
  bool invalid = false, ended = false;
  std::vector<Node*> nodes;
};
struct Stream {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  unsigned long long id = 1;  // 1: the legacy stream
  bool legacy = false;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<OperationPtr> queue;
  bool started = false, quit = false;  // its thread
  // Guarded by api_mutex:
  OperationPtr last;
  std::shared_ptr<Capture> capture;
  std::vector<Node*> capture_tail;  // what the next captured node comes after

  bool blocking() const { return !(flags & cudaStreamNonBlocking); }
};
struct IpcEventPage {
  std::atomic<uint64_t> recorded, done;
};
struct Event {
  int device = 0;
  unsigned flags = 0;
  OperationPtr operation;
  std::shared_ptr<Capture> capture;  // recorded inside of one
  std::vector<Node*> capture_nodes;
  IpcEventPage* page = nullptr;
  int page_fd = -1;
};

extern std::mutex api_mutex;             // guards streams' membership and last, events, captures
extern thread_local int callback_depth;  // in a host callback, where no call of the API is allowed
extern thread_local cudaStreamCaptureMode capture_mode;  // of this thread
std::set<Stream*>& live_streams();
Stream* find_stream(cudaStream_t stream);  // null: there is none
OperationPtr enqueue(Stream* s, std::function<void()> run, const std::vector<OperationPtr>& after = {});
OperationPtr enqueue_locked(Stream* s, std::function<void()> run,
                            const std::vector<OperationPtr>& after = {});
void wait_for_device(int device);
void run_callback(const std::function<void()>& callback);

enum class NodeKind { kKernel, kCopy, kSet, kHost, kEmpty };
// Runs it on the stream, or records it where the stream is being captured.
cudaError_t submit(Stream* s, NodeKind kind, std::function<void()> run, OperationPtr* operation = nullptr);
// Whether a call that may be unsafe during a capture is forbidden now; then the captures are invalid.
bool capture_forbids();

// ---- devices and memory
struct Device {
  int id = 0;  // before CUDA_VISIBLE_DEVICES
  char* arena = nullptr;
  size_t total = 0, used = 0, next_fit = 0;
  int fd = -1;
  std::map<size_t, size_t> free_ranges;  // offset -> size
  std::atomic<int> sticky{0};            // the error that all later calls return
  std::vector<bool> peers;               // whether this device may touch that one's memory
  Stream* legacy = nullptr;
  std::vector<Stream*> streams;  // blocking and non-blocking ones
};
const std::vector<Device*>& devices();
inline int device_count() { return static_cast<int>(devices().size()); }
Device& device(int index);  // its memory is made on first use
extern thread_local int current_device;
int device_attribute(int attribute, int device);  // CUdevice_attribute's numbers are cudaDeviceAttr's
constexpr const char* kDeviceName = "cuda_sim H100-like";
constexpr int kDriverVersion = 13000;
constexpr int kMaxShared = 232448;  // bytes of a block, opted in
constexpr uint32_t kThreadsPerSm = 2048;
constexpr int kRegistersPerSm = 65536;
inline long multiprocessors() { return option("CUDASIM_SMS", 132); }
inline bool p2p_supported() { return option("CUDASIM_P2P", 1) != 0; }
inline bool vmm_supported() { return option("CUDASIM_VMM", 1) != 0; }
enum Fabric : long { kNoFabric, kFabric, kFabricForbidden };  // forbidden: the device has it, the system doesn't let processes use it
inline long fabric() { return vmm_supported() ? option("CUDASIM_FABRIC", kNoFabric) : kNoFabric; }

enum class MemoryKind { kDevice, kHost, kRegistered, kManaged, kIpc, kVirtual };
struct Allocation {
  uintptr_t base = 0;
  size_t size = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  unsigned flags = 0;
  unsigned long long id = 0;
  uint64_t access = 0;  // kVirtual: the devices that may touch it, a bit each

  bool on_host() const { return kind == MemoryKind::kHost || kind == MemoryKind::kRegistered; }
};
extern std::mutex memory_mutex;  // of devices' ranges and of the allocations
bool find_allocation(const void* address, Allocation* found);
void add_allocation(void* base, size_t size, MemoryKind kind, int device, unsigned flags = 0);
void remove_allocation(const void* base);
void set_access(uintptr_t from, size_t size, int device, bool may);  // of the allocations in this range
unsigned long long allocation_generation();  // another one whenever an allocation is made or ends
cudaError_t allocate(void** address, size_t size);
cudaError_t release(void* address);
void release_range(const Allocation& a);
int open_fd_of(int pid, int fd);  // of another process, what it has open
int index_of(int device_id);      // here; where this process doesn't see the device: the current one
constexpr size_t kPatternLimit = 64 << 20;  // larger allocations aren't filled with a pattern
constexpr int kPattern = 0xA5;

// Strict mode (CUDASIM_STRICT): device addresses lie in a window that the host can't touch; their bytes are
// mapped `delta` higher, where only translated kernels and the copy engine look.
extern "C" {
extern uint64_t csim_window, csim_window_size, csim_window_delta;
}
template <class T>
T* mapped(T* address) {
  auto a = reinterpret_cast<uint64_t>(address);
  return a - csim_window < csim_window_size ? reinterpret_cast<T*>(a + csim_window_delta) : address;
}
char* reserve_window(size_t size, size_t alignment);  // null where mode isn't strict

cudaError_t copy(void* to, const void* from, size_t size, Stream* s, bool synchronous);
cudaError_t fill(void* to, int value, size_t count, int width, Stream* s);

// ---- errors
cudaError_t set_error(cudaError_t e);  // returns it, and keeps it for cudaGetLastError

// What most calls begin with: returns from the calling function where there is no device, or in a host
// callback.
#define CUDA_SIM_ENTER()                                          \
  do {                                                            \
    if (device_count() == 0) return set_error(cudaErrorNoDevice); \
    if (callback_depth) return set_error(cudaErrorNotPermitted);  \
  } while (0)
#define CUDA_SIM_CHECK_DEVICE() /* for an earlier fault */ \
  do {                                                     \
    if (int sticky = device(current_device).sticky.load()) \
      return set_error(static_cast<cudaError_t>(sticky));  \
  } while (0)
#define CUDA_SIM_NOT_IN_CAPTURE()                                               \
  do {                                                                          \
    if (capture_forbids()) return set_error(cudaErrorStreamCaptureUnsupported); \
  } while (0)
#define CUDA_SIM_STREAM(variable, handle) \
  Stream* variable = find_stream(handle); \
  if (!(variable)) return set_error(cudaErrorInvalidResourceHandle)

}  // namespace cuda_sim
