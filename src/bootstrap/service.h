// The part of the bootstrap that a process has once: a thread that listens for all ids and communicators of
// the process, greets who connects, and hands authenticated connections to whoever waits for them.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "bootstrap/address.h"
#include "bootstrap/handshake.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/event_loop.h"

namespace muster {

struct Arrival {
  ProcessFd fd;
  uint32_t rank = 0;  // of the client
  Digest secret{};    // of this connection
};

// What clients can ask for.
struct EndpointName {
  Purpose purpose = Purpose::join;
  PublicId id{};
  uint64_t token = 0;
  friend auto operator<=>(const EndpointName&, const EndpointName&) = default;
};

class Service {
 public:
  // Starts it on first use; it lives as long as the process. Throws invalid_usage in a forked child.
  static Service& get();
  static Service* existing();  // null if never started here

  EventLoop& loop() { return loop_; }

  // Throws system_error when this process hasn't been able to accept connections for a second, so that whoever waits for
  // one need not wait for its deadline. Any thread.
  void require_accepting() const;

  // Any thread. Listeners are shared by all who ask for the same and stay open.
  struct Listening {
    Address address;
    Source source;
  };
  // port_range: as in MUSTER_PORT_RANGE; empty: the kernel's choice.
  Listening listen(std::span<const Source> sources, const std::string& port_range);
  Address listen_local();  // a UNIX socket with a random abstract name

  // Loop thread only from here on.
  // A listener at an address that was agreed on; closed again by its user.
  void listen_fixed(const Address& at, SocketError& error);
  void close_fixed(const Address& at);

  using Accept = std::function<void(Arrival)>;
  void open(const EndpointName& name, const Key& key, Accept accept);
  void close(const EndpointName& name);
  // An endpoint that answers every client with this message, for those who come too late. The oldest are
  // forgotten.
  void retire(const EndpointName& name, const Key& key, std::string message);
  bool is_retired(const EndpointName& name) const { return retired_.contains(name); }

 private:
  struct Endpoint {
    Key key;
    Accept accept;
  };
  struct Listener {
    ProcessFd fd;
    EventLoop::Handle watch = 0;
    Address address;
    Source source;
  };
  // A connection that hasn't proved anything yet.
  struct Guest {
    ProcessFd fd;
    EventLoop::Handle watch = 0, timer = 0;
    std::string in, hello, reply;
    Key key{};
    EndpointName wanted;
    uint32_t rank = 0;
  };
  using GuestAt = std::list<Guest>::iterator;

  Service() = default;
  Listener& add_listener(ProcessFd fd, const Source& source, const Address& address);
  void on_connection(Listener& listener);
  void on_guest(GuestAt g);
  bool read_guest(Guest& g, size_t bytes);
  bool answer_hello(Guest& g);
  void dismiss(GuestAt g);
  bool may_complain();
  const Key* key_of(const EndpointName& name) const;

  EventLoop loop_;
  std::map<std::pair<Address, std::string>, std::unique_ptr<Listener>>
      listeners_;  // by source address and port range
  std::map<Address, std::unique_ptr<Listener>> fixed_;
  std::map<EndpointName, Endpoint> endpoints_;
  struct Retired {
    Key key;
    std::string message;
  };
  std::map<EndpointName, Retired> retired_;
  std::deque<EndpointName> retired_order_;
  std::list<Guest> guests_;
  EventLoop::Clock::time_point last_complaint_{};
  std::atomic<int> refusals_{0};      // accept() failed so many times in a row, 100 ms apart
  std::atomic<int> refusal_error_{0};  // errno of the last one
};

}  // namespace muster
