// How every rank gets every rank's text: up a tree of connections to rank 0, and from there down to all, many
// texts in a message. With n ranks it takes 2 n messages and a handful of steps, where a ring takes n steps.
//
// The ranks that a root brings together are a tree of their own, whose head is a child of the head before it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/channel.h"

namespace muster {

// Where a rank gets the texts from; -1: rank 0 collects them.
int tree_parent(int rank, int roots, int nranks);

// Loop thread only.
class GatherTree {
 public:
  struct Events {
    std::function<void(uint32_t sequence, int origin, std::string_view text)> text;  // this rank's own, too
    std::function<void(int rank, int error)> lost;  // the connection to it ended
  };
  GatherTree(EventLoop& loop, int rank, int roots, int nranks, Events events);
  GatherTree(const GatherTree&) = delete;
  GatherTree& operator=(const GatherTree&) = delete;

  int parent() const { return parent_; }
  void connect(int rank, ProcessFd fd);  // to the parent or a child; each once, the first counts
  void limit_silence(std::chrono::milliseconds most);
  void give(uint32_t sequence, std::string_view text);
  void close(bool orderly);  // orderly: after what is under way

 private:
  struct Branch {
    std::unique_ptr<SecureChannel> channel;
    bool attached = false;
    std::vector<std::string> waiting;  // for it to be connected
    void send(std::string message);
  };
  struct Exchange {
    int count = 0;      // of the texts from here and below
    std::string batch;  // of those, not sent on yet
  };
  Branch* branch(int rank);
  void on_message(int from, std::string_view message);
  void on_end(int from, int error);
  void collect(uint32_t sequence, int origin, std::string_view text);

  EventLoop& loop_;
  const int rank_, nranks_, parent_;
  const Events events_;
  int below_ = 1;  // ranks from this one down
  Branch above_;
  std::map<int, Branch> children_;
  std::map<uint32_t, Exchange> exchanges_;
};

}  // namespace muster
