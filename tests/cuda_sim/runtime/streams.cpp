// Streams: each has an OS thread that runs its operations in order.
#include <time.h>

#include <algorithm>
#include <thread>

#include "runtime.h"

namespace cuda_sim {

std::mutex api_mutex;
thread_local int callback_depth = 0;

std::set<Stream*>& live_streams() {
  static auto* streams = new std::set<Stream*>;
  return *streams;
}

namespace {

double now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

void run_stream(Stream* s) {
  current_device = s->device;
  for (;;) {
    OperationPtr op;
    {
      std::unique_lock lock(s->mutex);
      s->changed.wait(lock, [&] { return !s->queue.empty() || s->quit; });
      if (s->queue.empty()) break;
      op = s->queue.front();
      s->queue.pop_front();
    }
    for (const OperationPtr& earlier : op->after) earlier->wait();
    op->after.clear();
    if (op->run && !device(s->device).sticky.load()) op->run();
    op->run = nullptr;
    op->completed_ms = now_ms();
    op->done.store(1, std::memory_order_release);
    op->done.notify_all();
  }
  delete s;
}

Stream* new_stream(int index, unsigned flags, int priority) {
  static std::atomic<unsigned long long> next_id{10};
  auto* s = new Stream;
  s->device = index;
  s->flags = flags;
  s->priority = priority;
  s->id = next_id++;
  Device& d = device(index);
  std::lock_guard lock(api_mutex);
  d.streams.push_back(s);
  live_streams().insert(s);
  return s;
}

void wait_for_all(const std::vector<OperationPtr>& operations) {
  for (const OperationPtr& op : operations) op->wait();
}

// The last operations of the device's streams. api_mutex is held.
std::vector<OperationPtr> last_operations(const Device& d, bool blocking_only) {
  std::vector<OperationPtr> last;
  for (const Stream* s : d.streams)
    if (s->last && (s->blocking() || !blocking_only)) last.push_back(s->last);
  if (d.legacy->last) last.push_back(d.legacy->last);
  return last;
}

cudaError_t sticky_error(int index) { return static_cast<cudaError_t>(device(index).sticky.load()); }

}  // namespace

OperationPtr enqueue_locked(Stream* s, std::function<void()> run, const std::vector<OperationPtr>& after) {
  auto op = std::make_shared<Operation>();
  op->run = std::move(run);
  op->after = after;
  const Device& d = device(s->device);
  if (s->legacy)  // the legacy stream and the blocking ones wait for each other
    for (const OperationPtr& other : last_operations(d, true)) op->after.push_back(other);
  else if (s->blocking() && d.legacy->last)
    op->after.push_back(d.legacy->last);
  std::erase_if(op->after, [](const OperationPtr& other) { return other->is_done(); });
  std::lock_guard lock(s->mutex);
  s->queue.push_back(op);
  s->last = op;
  if (!s->started) {
    s->started = true;
    std::thread(run_stream, s).detach();
  }
  s->changed.notify_one();
  return op;
}

OperationPtr enqueue(Stream* s, std::function<void()> run, const std::vector<OperationPtr>& after) {
  std::lock_guard lock(api_mutex);
  return enqueue_locked(s, std::move(run), after);
}

Stream* find_stream(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) return device(current_device).legacy;
  if (stream == cudaStreamPerThread) {
    static thread_local std::map<int, Stream*> mine;
    Stream*& s = mine[current_device];
    if (!s) s = new_stream(current_device, cudaStreamDefault, 0);
    return s;
  }
  auto* s = reinterpret_cast<Stream*>(stream);
  std::lock_guard lock(api_mutex);
  return live_streams().contains(s) ? s : nullptr;
}

void wait_for_device(int index) {
  std::vector<OperationPtr> last;
  {
    const Device& d = device(index);
    std::lock_guard lock(api_mutex);
    last = last_operations(d, false);
  }
  wait_for_all(last);
}

void run_callback(const std::function<void()>& callback) {
  callback_depth++;
  callback();
  callback_depth--;
}

CUDA_API cudaError_t cudaDeviceSynchronize() {
  CUDA_SIM_ENTER();
  CUDA_SIM_NOT_IN_CAPTURE();
  wait_for_device(current_device);
  CUDA_SIM_CHECK_DEVICE();
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceReset() {
  CUDA_SIM_ENTER();
  wait_for_device(current_device);
  device(current_device).sticky = 0;
  cudaGetLastError();
  return cudaSuccess;
}

CUDA_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  CUDA_SIM_ENTER();
  if (!stream || (flags & ~static_cast<unsigned>(cudaStreamNonBlocking)))
    return set_error(cudaErrorInvalidValue);
  CUDA_SIM_CHECK_DEVICE();
  *stream = reinterpret_cast<cudaStream_t>(new_stream(current_device, flags, priority));
  return cudaSuccess;
}
CUDA_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
CUDA_API cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, 0, 0);
}
CUDA_API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  CUDA_SIM_ENTER();
  if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
    return set_error(cudaErrorInvalidResourceHandle);
  CUDA_SIM_STREAM(s, stream);
  std::lock_guard lock(api_mutex);
  std::erase(device(s->device).streams, s);
  live_streams().erase(s);
  bool started;
  {
    std::lock_guard own(s->mutex);
    started = s->started;
    s->quit = true;  // what is pending still runs, then the stream's thread deletes it
    s->changed.notify_one();
  }
  if (!started) delete s;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  int index = s->device;
  std::vector<OperationPtr> last;
  {
    std::lock_guard lock(api_mutex);
    if (s->capture) {
      s->capture->invalid = true;
      return set_error(cudaErrorStreamCaptureUnsupported);
    }
    if (s->legacy) last = last_operations(device(index), true);
    if (s->last) last.push_back(s->last);
  }
  wait_for_all(last);
  return set_error(sticky_error(index));
}
CUDA_API cudaError_t cudaStreamQuery(cudaStream_t stream) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  std::lock_guard lock(api_mutex);
  if (s->capture) {
    s->capture->invalid = true;
    return set_error(cudaErrorStreamCaptureUnsupported);
  }
  if (cudaError_t e = sticky_error(s->device)) return set_error(e);
  return s->last && !s->last->is_done() ? cudaErrorNotReady : cudaSuccess;
}
CUDA_API cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  *flags = s->flags;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  *priority = s->priority;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* index) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  *index = s->device;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  *id = s->id;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* argument) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  return set_error(submit(s, NodeKind::kHost, [fn, argument] { run_callback([&] { fn(argument); }); }));
}
CUDA_API cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t fn, void* argument,
                                           unsigned) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  std::lock_guard lock(api_mutex);
  if (s->capture) return set_error(cudaErrorStreamCaptureUnsupported);
  enqueue_locked(s, [fn, argument, stream, index = s->device] {
    run_callback([&] { fn(stream, sticky_error(index), argument); });
  });
  return cudaSuccess;
}

}  // namespace cuda_sim
