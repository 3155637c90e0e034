// Events.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "runtime.h"

namespace cuda_sim {

cudaError_t make_event_page(Event* e);  // ipc.cpp

namespace {

Event* as_event(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }

// Whether it was recorded in a capture that hasn't ended. api_mutex is held.
bool captured(const Event& e) { return e.capture && !e.capture->ended; }

void wait_for_page(const IpcEventPage* page, uint64_t recorded) {
  while (page->done.load(std::memory_order_acquire) < recorded) usleep(20);
}

}  // namespace

CUDA_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  CUDA_SIM_ENTER();
  if (!event) return set_error(cudaErrorInvalidValue);
  if ((flags & cudaEventInterprocess) && !(flags & cudaEventDisableTiming))
    return set_error(cudaErrorInvalidValue);
  CUDA_SIM_CHECK_DEVICE();
  auto e = std::make_unique<Event>();
  e->device = current_device;
  e->flags = flags;
  if (flags & cudaEventInterprocess)
    if (cudaError_t failed = make_event_page(e.get())) return set_error(failed);
  *event = reinterpret_cast<cudaEvent_t>(e.release());
  return cudaSuccess;
}
CUDA_API cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
CUDA_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  CUDA_SIM_ENTER();
  Event* e = as_event(event);
  if (!e) return set_error(cudaErrorInvalidResourceHandle);
  if (e->operation && e->page) e->operation->wait();  // which writes to the page
  if (e->page) munmap(e->page, 4096);
  if (e->page_fd >= 0) close(e->page_fd);
  delete e;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  CUDA_SIM_ENTER();
  Event* e = as_event(event);
  if (!e) return set_error(cudaErrorInvalidResourceHandle);
  CUDA_SIM_STREAM(s, stream);
  if (e->device != s->device) return set_error(cudaErrorInvalidResourceHandle);
  std::lock_guard lock(api_mutex);
  if (s->capture) {
    if (flags & cudaEventRecordExternal) return set_error(cudaErrorNotSupported);
    e->capture = s->capture;
    e->capture_nodes = s->capture_tail;
    return cudaSuccess;
  }
  e->capture = nullptr;
  std::function<void()> publish;
  if (IpcEventPage* page = e->page) {
    uint64_t number = page->recorded.fetch_add(1) + 1;
    publish = [page, number] { page->done.store(number, std::memory_order_release); };
  }
  e->operation = enqueue_locked(s, publish);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}
CUDA_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  CUDA_SIM_ENTER();
  Event* e = as_event(event);
  if (!e) return set_error(cudaErrorInvalidResourceHandle);
  CUDA_SIM_STREAM(s, stream);
  std::lock_guard lock(api_mutex);
  if (captured(*e)) {
    if (s->legacy) return set_error(cudaErrorStreamCaptureImplicit);
    if (s->capture && s->capture != e->capture) {
      s->capture->invalid = true;
      return set_error(cudaErrorStreamCaptureIsolation);
    }
    s->capture = e->capture;  // it joins the capture
    for (Node* n : e->capture_nodes)
      if (std::find(s->capture_tail.begin(), s->capture_tail.end(), n) == s->capture_tail.end())
        s->capture_tail.push_back(n);
    return cudaSuccess;
  }
  if (s->capture) {
    if (!e->operation && !e->page) return cudaSuccess;
    s->capture->invalid = true;
    return set_error(cudaErrorStreamCaptureIsolation);
  }
  if (const IpcEventPage* page = e->page)
    enqueue_locked(s, [page, number = page->recorded.load()] { wait_for_page(page, number); });
  else if (e->operation && !e->operation->is_done())
    enqueue_locked(s, nullptr, {e->operation});
  return cudaSuccess;
}
CUDA_API cudaError_t cudaEventQuery(cudaEvent_t event) {
  CUDA_SIM_ENTER();
  Event* e = as_event(event);
  if (!e) return set_error(cudaErrorInvalidResourceHandle);
  std::lock_guard lock(api_mutex);
  if (captured(*e)) {
    e->capture->invalid = true;
    return set_error(cudaErrorStreamCaptureUnsupported);
  }
  if (const IpcEventPage* page = e->page)
    return page->done.load(std::memory_order_acquire) < page->recorded.load() ? cudaErrorNotReady
                                                                              : cudaSuccess;
  if (int sticky = device(e->device).sticky.load()) return set_error(static_cast<cudaError_t>(sticky));
  return e->operation && !e->operation->is_done() ? cudaErrorNotReady : cudaSuccess;
}
CUDA_API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  CUDA_SIM_ENTER();
  Event* e = as_event(event);
  if (!e) return set_error(cudaErrorInvalidResourceHandle);
  OperationPtr op;
  {
    std::lock_guard lock(api_mutex);
    if (captured(*e)) {
      e->capture->invalid = true;
      return set_error(cudaErrorStreamCaptureUnsupported);
    }
    op = e->operation;
  }
  if (const IpcEventPage* page = e->page) {
    wait_for_page(page, page->recorded.load());
    return cudaSuccess;
  }
  if (op) op->wait();
  return set_error(static_cast<cudaError_t>(device(e->device).sticky.load()));
}
CUDA_API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  CUDA_SIM_ENTER();
  Event *from = as_event(begin), *to = as_event(end);
  if (!from || !to) return set_error(cudaErrorInvalidResourceHandle);
  std::lock_guard lock(api_mutex);
  if (((from->flags | to->flags) & cudaEventDisableTiming) || !from->operation || !to->operation)
    return set_error(cudaErrorInvalidResourceHandle);
  if (!from->operation->is_done() || !to->operation->is_done()) return cudaErrorNotReady;
  *ms = static_cast<float>(to->operation->completed_ms - from->operation->completed_ms);
  return cudaSuccess;
}

}  // namespace cuda_sim
