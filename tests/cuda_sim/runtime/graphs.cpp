// Graphs: made node by node or by capture, and launched.
#include "graph.h"

#include <thread>

namespace cuda_sim {
namespace {

struct ExecutableGraph {
  struct Step {
    std::function<void()> run;
    std::vector<size_t> after;  // earlier steps
    int device;
  };
  std::vector<Step> steps;  // in an order that fits their dependencies
  std::map<UserObject*, unsigned> objects;
  OperationPtr last;  // of its latest launch
};

Graph* as_graph(cudaGraph_t graph) { return reinterpret_cast<Graph*>(graph); }
Node* as_node(cudaGraphNode_t node) { return reinterpret_cast<Node*>(node); }
UserObject* as_object(cudaUserObject_t object) { return reinterpret_cast<UserObject*>(object); }
ExecutableGraph* as_executable(cudaGraphExec_t graph) { return reinterpret_cast<ExecutableGraph*>(graph); }

void drop(UserObject* object, unsigned references) {
  if (object->references.fetch_sub(references) > references) return;
  object->destroy(object->object);
  delete object;
}

void drop_all(const std::map<UserObject*, unsigned>& objects) {
  for (const auto& [object, references] : objects) drop(object, references);
}

cudaGraphNode_t add_node(cudaGraph_t graph, NodeKind kind, std::function<void()> run,
                         const cudaGraphNode_t* after, size_t count) {
  std::vector<Node*> nodes;
  for (size_t i = 0; i < count; i++) nodes.push_back(as_node(after[i]));
  return reinterpret_cast<cudaGraphNode_t>(
      as_graph(graph)->add(kind, std::move(run), std::move(nodes), current_device));
}

size_t add_step(ExecutableGraph& e, const Node* n, std::map<const Node*, size_t>& placed) {
  if (auto found = placed.find(n); found != placed.end()) return found->second;
  ExecutableGraph::Step step{n->run, {}, n->device};
  for (const Node* earlier : n->after) step.after.push_back(add_step(e, earlier, placed));
  e.steps.push_back(std::move(step));
  return placed[n] = e.steps.size() - 1;
}

}  // namespace

Node* Graph::add(NodeKind kind, std::function<void()> run, std::vector<Node*> after, int device) {
  nodes.push_back(std::make_unique<Node>(Node{kind, std::move(run), std::move(after), device}));
  return nodes.back().get();
}

CUDA_API cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  *graph = reinterpret_cast<cudaGraph_t>(new Graph);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  drop_all(as_graph(graph)->objects);
  delete as_graph(graph);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                           const cudaGraphNode_t* after, size_t count) {
  *node = add_node(graph, NodeKind::kEmpty, nullptr, after, count);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                          const cudaGraphNode_t* after, size_t count,
                                          const cudaHostNodeParams* p) {
  auto call = [fn = p->fn, argument = p->userData] { run_callback([&] { fn(argument); }); };
  *node = add_node(graph, NodeKind::kHost, call, after, count);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                              const cudaGraphNode_t* after, size_t count, void* to,
                                              const void* from, size_t size, cudaMemcpyKind) {
  *node = add_node(
      graph, NodeKind::kCopy, [=] { memmove(mapped(to), mapped(from), size); }, after, count);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t* from,
                                              const cudaGraphNode_t* to, const cudaGraphEdgeData*,
                                              size_t count) {
  for (size_t i = 0; i < count; i++) as_node(to[i])->after.push_back(as_node(from[i]));
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  const Graph& g = *as_graph(graph);
  if (nodes)
    for (size_t i = 0; i < *count && i < g.nodes.size(); i++)
      nodes[i] = reinterpret_cast<cudaGraphNode_t>(g.nodes[i].get());
  *count = g.nodes.size();
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  constexpr cudaGraphNodeType kTypes[] = {cudaGraphNodeTypeKernel, cudaGraphNodeTypeMemcpy,
                                          cudaGraphNodeTypeMemset, cudaGraphNodeTypeHost,
                                          cudaGraphNodeTypeEmpty};
  *type = kTypes[static_cast<int>(as_node(node)->kind)];
  return cudaSuccess;
}

CUDA_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  const Graph& g = *as_graph(graph);
  auto* e = new ExecutableGraph;
  std::map<const Node*, size_t> placed;
  for (const auto& n : g.nodes) add_step(*e, n.get(), placed);
  e->objects = g.objects;
  for (const auto& [object, references] : e->objects) object->references += references;
  *executable = reinterpret_cast<cudaGraphExec_t>(e);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                                   unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}
CUDA_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  ExecutableGraph* e = as_executable(executable);
  auto finish = [e] {
    if (e->last) e->last->wait();
    drop_all(e->objects);
    delete e;
  };
  if (e->last && !e->last->is_done())
    std::thread(finish).detach();
  else
    finish();
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

// Each chain of steps runs in an internal stream of its own, after what was before it in the stream.
CUDA_API cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  CUDA_SIM_ENTER();
  CUDA_SIM_CHECK_DEVICE();
  CUDA_SIM_STREAM(s, stream);
  ExecutableGraph& e = *as_executable(executable);
  std::lock_guard lock(api_mutex);
  if (s->capture) {
    fprintf(stderr, "cuda_sim: a graph launched in a captured stream, a child graph, is not simulated\n");
    return set_error(cudaErrorStreamCaptureUnsupported);
  }
  OperationPtr begin = enqueue_locked(s, nullptr, e.last ? std::vector{e.last} : std::vector<OperationPtr>{});
  std::vector<OperationPtr> operations;
  std::vector<Stream*> ran_on, made;
  std::vector<bool> continued(e.steps.size(), false), followed(e.steps.size(), false);
  for (const auto& step : e.steps) {
    std::vector<OperationPtr> after{begin};
    Stream* on = nullptr;
    for (size_t earlier : step.after) {
      after.push_back(operations[earlier]);
      followed[earlier] = true;
      if (on || continued[earlier] || e.steps[earlier].device != step.device) continue;
      continued[earlier] = true;
      on = ran_on[earlier];
    }
    if (!on) {
      made.push_back(on = new Stream);
      on->device = step.device;
      on->flags = cudaStreamNonBlocking;
    }
    ran_on.push_back(on);
    operations.push_back(enqueue_locked(on, step.run, after));
  }
  std::vector<OperationPtr> ends;
  for (size_t i = 0; i < operations.size(); i++)
    if (!followed[i]) ends.push_back(operations[i]);
  e.last = enqueue_locked(s, nullptr, ends);
  for (Stream* internal : made) {
    std::lock_guard own(internal->mutex);
    internal->quit = true;
    internal->changed.notify_one();
  }
  return cudaSuccess;
}

CUDA_API cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* pointer, cudaHostFn_t destroy,
                                          unsigned references, unsigned) {
  *object = reinterpret_cast<cudaUserObject_t>(new UserObject{pointer, destroy, {references}});
  return cudaSuccess;
}
CUDA_API cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned references) {
  as_object(object)->references += references;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned references) {
  drop(as_object(object), references);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                               unsigned references, unsigned flags) {
  if (!(flags & cudaGraphUserObjectMove)) as_object(object)->references += references;
  as_graph(graph)->objects[as_object(object)] += references;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                                unsigned references) {
  as_graph(graph)->objects[as_object(object)] -= references;
  drop(as_object(object), references);
  return cudaSuccess;
}

}  // namespace cuda_sim
