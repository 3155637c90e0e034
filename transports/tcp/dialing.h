// One stream of a connection while it is being made: all addresses of the peer's rail are tried at once, and the first that
// answers as a rank of the job does counts. Where routes don't say which of this host's interfaces to use the one meant is tried alone for a
// second. Nothing here blocks, and nothing here is late: a peer answers when it looks.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transports/tcp/door.h"

namespace muster::tcp {

class Dialing {
 public:
  // Stream `number` of `streams`, from `source`, where that has an address of the same family (null: whichever the kernel takes).
  Dialing(const Rail& to, const Rail* source, uint32_t from, uint16_t number, uint16_t streams, const PairKey& key, const Settings& settings, int epoll);

  enum class State : uint8_t { waiting, connected, crossed, failed };
  State advance();
  Fd take() { return std::move(attempts_[static_cast<size_t>(chosen_)].fd); }  // once connected
  const Place& place() const { return attempts_[static_cast<size_t>(chosen_)].place; }
  bool introduced() const { return introduced_; }  // the peer may have heard its number
  std::string problem() const;  // why it failed, address by address
  uint16_t number() const { return number_; }
  uint16_t streams() const { return streams_; }

 private:
  struct Attempt {
    Place place;
    std::string device{};  // by which it goes, where one is to be named
    std::chrono::steady_clock::time_point begun{};
    Fd fd{};
    bool connected = false;
    std::string problem{};
    Challenge challenge{};
    size_t heard = 0;  // of the challenge
  };
  void begin(Attempt& a, bool by_device);
  void advance(Attempt& a);
  State await_answer(Attempt& a);

  const Rail* const source_;
  const uint32_t from_;
  const uint16_t number_, streams_;
  const PairKey key_;
  const Settings settings_;
  const int epoll_;
  std::vector<Attempt> attempts_;
  int chosen_ = -1;
  bool introduced_ = false;
  Hello hello_{};
  Answer answer_{};
  size_t heard_ = 0;  // of the answer
};

}  // namespace muster::tcp
