// Finds out which of some ranks, the nearest first, is still there, and connects to it. Loop thread only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/dialing.h"

namespace muster {

class Search : public std::enable_shared_from_this<Search> {
 public:
  struct Candidate {
    int rank = 0;
    Address target;
    uint64_t token = 0;  // of its endpoint
  };
  struct Gone {
    bool unreachable = false;  // nobody says that it is gone, nor anything else
    std::string reason;
  };
  struct Events {  // `found` and `none` are the last; each may delete the search
    std::function<void(int rank, ProcessFd fd)> found;  // no connection when it was only asked for
    std::function<void(int rank, const Gone&)> gone;    // in the order of the candidates
    std::function<void()> none;
  };
  // credentials: this rank's, its token is each candidate's. patience: how long a candidate may be unreachable;
  // those behind one that seems to be are asked meanwhile.
  Search(EventLoop& loop, Credentials credentials, Source source, std::vector<Candidate> candidates, bool ask,
         std::chrono::milliseconds patience, std::chrono::milliseconds silence, Events events);
  ~Search();
  void start();
  void leave_out(int rank);  // it is known to be gone

 private:
  enum class State { untried, dialing, alive, gone, left_out };
  struct Try {
    Candidate candidate;
    State state = State::untried;
    EventLoop::Clock::time_point limit{};
    std::unique_ptr<Dialing> dialing;
    EventLoop::Handle retry = 0;
    Gone why;
  };
  void step();
  void dial(size_t i);
  void on_outcome(size_t i, bool asked, Dialing::Outcome outcome);
  void look_farther();

  EventLoop& loop_;
  const Credentials credentials_;
  const Source source_;
  std::vector<Try> tries_;
  const bool ask_;
  const std::chrono::milliseconds patience_, silence_;
  const Events events_;
  size_t front_ = 0, tried_ = 0;  // tried_: so many from the beginning have been dialed
  EventLoop::Handle farther_ = 0;
  bool over_ = false;
};

}  // namespace muster
