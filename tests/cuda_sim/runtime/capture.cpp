// Stream capture: operations of a stream become nodes of a graph.
#include <algorithm>

#include "graph.h"

namespace cuda_sim {

thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

namespace {

std::atomic<int> global_captures{0};  // under way, of all threads
thread_local int own_captures = 0;    // of this thread that aren't relaxed

void count_capture(const Capture& c, int change) {
  if (c.mode == cudaStreamCaptureModeGlobal) global_captures += change;
  if (c.mode != cudaStreamCaptureModeRelaxed) own_captures += change;
}

cudaStreamCaptureStatus status_of(const Stream& s) {
  if (!s.capture) return cudaStreamCaptureStatusNone;
  return s.capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

// Whether some node isn't among those that the origin's next operation would come after.
bool unjoined(const Capture& c, const std::vector<Node*>& tail) {
  std::set<const Node*> reached;
  std::vector<const Node*> open(tail.begin(), tail.end());
  while (!open.empty()) {
    const Node* n = open.back();
    open.pop_back();
    if (!reached.insert(n).second) continue;
    open.insert(open.end(), n->after.begin(), n->after.end());
  }
  return std::any_of(c.nodes.begin(), c.nodes.end(), [&](const Node* n) { return !reached.contains(n); });
}

}  // namespace

cudaError_t submit(Stream* s, NodeKind kind, std::function<void()> run, OperationPtr* operation) {
  std::lock_guard lock(api_mutex);
  if (Capture* c = s->capture.get()) {
    if (c->invalid) return cudaErrorStreamCaptureInvalidated;
    Node* n = c->graph->add(kind, std::move(run), s->capture_tail, s->device);
    c->nodes.push_back(n);
    s->capture_tail.assign(1, n);
    return cudaSuccess;
  }
  if (s->legacy)
    for (const Stream* other : device(s->device).streams)
      if (other->capture && other->blocking()) {
        other->capture->invalid = true;
        return cudaErrorStreamCaptureImplicit;
      }
  OperationPtr op = enqueue_locked(s, std::move(run));
  if (operation) *operation = op;
  return cudaSuccess;
}

bool capture_forbids() {
  if (capture_mode == cudaStreamCaptureModeRelaxed) return false;
  if (!own_captures && (capture_mode != cudaStreamCaptureModeGlobal || !global_captures)) return false;
  std::lock_guard lock(api_mutex);
  for (const Stream* s : live_streams())
    if (s->capture && s->capture->mode != cudaStreamCaptureModeRelaxed) s->capture->invalid = true;
  return true;
}

CUDA_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  static unsigned long long last_id = 0;  // guarded by api_mutex
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  if (s->legacy) return set_error(cudaErrorStreamCaptureUnsupported);
  std::lock_guard lock(api_mutex);
  if (s->capture) return set_error(cudaErrorIllegalState);
  s->capture = std::make_shared<Capture>(
      Capture{.mode = mode, .graph = new Graph, .id = ++last_id, .origin = s, .nodes = {}});
  s->capture_tail.clear();
  count_capture(*s->capture, 1);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  std::lock_guard lock(api_mutex);
  std::shared_ptr<Capture> c = s->capture;
  if (!c) return set_error(cudaErrorIllegalState);
  if (c->origin != s) return set_error(cudaErrorStreamCaptureUnmatched);
  count_capture(*c, -1);
  bool left = unjoined(*c, s->capture_tail);
  c->ended = true;
  for (Stream* other : live_streams())
    if (other->capture == c) {
      other->capture = nullptr;
      other->capture_tail.clear();
    }
  *graph = nullptr;
  if (c->invalid || left) {
    delete c->graph;
    return set_error(c->invalid ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined);
  }
  *graph = reinterpret_cast<cudaGraph_t>(c->graph);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  std::lock_guard lock(api_mutex);
  *status = status_of(*s);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                              unsigned long long* id, cudaGraph_t* graph,
                                              const cudaGraphNode_t** after, const cudaGraphEdgeData** edges,
                                              size_t* count) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  std::lock_guard lock(api_mutex);
  *status = status_of(*s);
  if (!s->capture) return cudaSuccess;
  if (id) *id = s->capture->id;
  if (graph) *graph = reinterpret_cast<cudaGraph_t>(s->capture->graph);
  if (after) *after = reinterpret_cast<const cudaGraphNode_t*>(s->capture_tail.data());
  if (edges) *edges = nullptr;
  if (count) *count = s->capture_tail.size();
  return cudaSuccess;
}
CUDA_API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* nodes,
                                                         const cudaGraphEdgeData*, size_t count,
                                                         unsigned flags) {
  CUDA_SIM_ENTER();
  CUDA_SIM_STREAM(s, stream);
  std::lock_guard lock(api_mutex);
  if (!s->capture) return set_error(cudaErrorIllegalState);
  if (flags == cudaStreamSetCaptureDependencies) s->capture_tail.clear();
  for (size_t i = 0; i < count; i++) s->capture_tail.push_back(reinterpret_cast<Node*>(nodes[i]));
  return cudaSuccess;
}

}  // namespace cuda_sim
