// A graph's nodes, as capture and the graph calls make them.
#pragma once

#include "runtime.h"

namespace cuda_sim {

struct UserObject {  // kept while a graph that retains it, or what was made of it, lives
  void* object;
  cudaHostFn_t destroy;
  std::atomic<unsigned> references;
};

struct Node {
  NodeKind kind;
  std::function<void()> run;
  std::vector<Node*> after;
  int device = 0;
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  std::map<UserObject*, unsigned> objects;

  Node* add(NodeKind kind, std::function<void()> run, std::vector<Node*> after, int device);
};

}  // namespace cuda_sim
