// Who comes to where a rank can be reached.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/rails.h"
#include "transports/tcp/settings.h"

namespace muster::tcp {

// Listens, and finds out who comes. Nothing here blocks.
class Door {
 public:
  // Throws system_error where there is no address or port to listen at. What it has to wait for is watched by `epoll`.
  // `ranks`: how many may come at once.
  Door(const std::vector<std::string>& interfaces, const Settings& settings, size_t ranks, int epoll);

  const std::vector<Rail>& rails() const { return rails_; }
  bool busy() const { return !guests_.empty(); }

  // Lets in whoever has come. `key_of`: of a pair of ranks, null for no such rank. `judge` says what becomes of one who has proved to
  // be that rank; who is welcome is handed to `enter`, at the end of what it said. True if anything moved.
  struct Host {
    std::function<std::optional<PairKey>(uint32_t rank)> key_of;
    std::function<Verdict(const Hello&)> judge;
    std::function<void(const Hello&, Fd)> enter;
    std::function<void()> stranger;
  };
  bool serve(const Host& host);

 private:
  struct Guest {
    Fd fd;
    Challenge challenge;
    Hello hello{};
    size_t heard = 0;
  };
  bool listen(Place* place);
  void listen_by_device(int fd, const Place& place);
  bool advance(Guest& g, const Host& host);  // false: done with it

  const Settings settings_;
  const size_t most_guests_;  // who have proved nothing: the oldest of more must go
  const int epoll_;
  int error_ = 0;
  std::vector<Rail> rails_;
  std::vector<Fd> listeners_;
  std::list<Guest> guests_;
};

void watch(int epoll, int fd, uint32_t events, void* who);
void rewatch(int epoll, int fd, uint32_t events, void* who);

}  // namespace muster::tcp
