// One attempt to connect to an endpoint and to greet it, served by the loop. Loop thread only.
#pragma once

#include <functional>
#include <string>

#include "bootstrap/event_loop.h"
#include "bootstrap/handshake.h"

namespace muster {

class Dialing {
 public:
  struct Outcome {
    int error = 0;  // errno of the connection; 0: there was one, and `greeting` says how it went on
    Greeting greeting;
    ProcessFd fd;  // when it is welcome
  };
  // ask: only whether the endpoint is there; it isn't told that anybody came. The connection must be there by
  // `limit`; then only its end ends the waiting for an answer, since a stopped process gives none. `done` may
  // delete this object.
  Dialing(EventLoop& loop, const Address& target, const Source& source, const Credentials& credentials, bool ask,
          EventLoop::Clock::time_point limit, std::chrono::milliseconds silence, std::function<void(Outcome)> done);
  ~Dialing();  // breaks it off
  Dialing(const Dialing&) = delete;
  Dialing& operator=(const Dialing&) = delete;

  bool connected() const { return connected_; }

 private:
  void on_ready();
  void on_connected();
  void end(int error, Greeting greeting);

  EventLoop& loop_;
  const Address target_;
  const Credentials credentials_;
  const bool ask_;
  const std::chrono::milliseconds silence_;
  std::function<void(Outcome)> done_;
  ProcessFd fd_;
  EventLoop::Handle watch_ = 0, timer_ = 0;
  bool connected_ = false;
  std::string hello_, reply_;
};

}  // namespace muster
