// A connection that carries messages, served by the loop: both ends have proved who they are. Loop thread
// only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "bootstrap/event_loop.h"
#include "bootstrap/process_fd.h"

namespace muster {

class SecureChannel {
 public:
  struct Events {
    std::function<void(std::string_view message)> message;
    // The peer's end or host is gone, or it sent nonsense; error 0: an orderly end of the stream. The last
    // event.
    std::function<void(int error)> end;
  };
  static constexpr size_t kMaxMessage = 64 << 20;

  SecureChannel(EventLoop& loop, ProcessFd fd, Events events);
  SecureChannel(const SecureChannel&) = delete;
  SecureChannel& operator=(const SecureChannel&) = delete;
  ~SecureChannel();  // closes at once; not from inside one of its own events (use retire)

  void send(std::string_view message);  // queued; never blocks
  void limit_silence(std::chrono::milliseconds most);  // see socket.h

  // Lets what is queued go out and the peer read it, then closes; events are over.
  static void finish(std::unique_ptr<SecureChannel> channel);
  // Closes it as soon as no event of it is running.
  static void retire(std::unique_ptr<SecureChannel> channel);

 private:
  void on_ready();
  void flush();
  static constexpr int kMore = -1;
  int read_some();  // kMore, or the end's error
  void parse();
  void end(int error);

  EventLoop& loop_;
  ProcessFd fd_;
  Events events_;
  EventLoop::Handle watch_ = 0;
  std::string in_, out_;
  size_t sent_ = 0;       // of out_
  EventLoop::Handle soon_ = 0;  // it is flushed when what is ready now has been served: many messages, one system call
  bool writable_ = true;  // false after a failed write: what is left to read still counts
  bool finishing_ = false;
  bool ended_ = false;
};

}  // namespace muster
