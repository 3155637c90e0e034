// How texts reach all ranks of a ring, whoever of them dies. Only what to send and what was heard; no sockets.
//
// The origin numbers its texts and sends each both ways round the ring; each rank passes a text on, away from
// where it came from, until it is back at its origin. What came from one side all ranks have between there and
// here, on that side; so a text that came from both sides all ranks have, and it is forgotten. Until then it is
// kept for neighbours to come: a new one is sent all that the former may not have passed on. The neighbours of
// an origin that is gone stand in for it: each sends its texts the other way, as the origin did or would have.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/wire.h"

namespace muster {

enum class Side : uint8_t { prev = 0, next = 1 };
constexpr Side other(Side s) { return s == Side::prev ? Side::next : Side::prev; }
inline constexpr std::array kSides{Side::prev, Side::next};

class Flood {
 public:
  using Send = std::function<void(Side to, std::string_view message)>;
  using Heard = std::function<void(int origin, std::string_view text)>;  // it may call any member

  Flood(int rank, int size, Send send, Heard heard);

  void tell(std::string_view text);
  // What another rank's Send was called with. Anything else is ignored.
  void take(Side from, Reader message);
  // From now on this is the neighbour on that side, by a connection that has carried nothing yet.
  void linked(Side side, int neighbour);
  // There is none at present; the ranks up to `neighbour`, where this rank itself means all, are gone.
  void unlinked(Side side, int neighbour);

  size_t kept() const { return kept_; }  // texts that may be missing somewhere

 private:
  struct Origin {
    uint64_t had = 0;                     // how many of its texts came here
    std::array<uint64_t, 2> came{};       // up to which number from either side (or was so by standing in)
    std::vector<std::string> texts;       // the last of those
  };
  Origin& of(int origin) { return origins_[static_cast<size_t>(origin)]; }
  uint64_t& came(Origin& o, Side s) { return o.came[static_cast<size_t>(s)]; }
  int& neighbour(Side s) { return neighbours_[static_cast<size_t>(s)]; }
  bool beyond(int origin, Side side);  // gone: between this rank and its neighbour
  void arrive(int origin, Side from, uint64_t number);
  void stand_in(int origin);
  void pass_on(int origin, Side to, uint64_t after, uint64_t upto, bool whole);
  void forget(int origin);

  const int rank_, size_;
  const Send send_;
  const Heard heard_;
  std::array<int, 2> neighbours_;
  std::array<bool, 2> linked_{};
  std::vector<Origin> origins_;
  size_t kept_ = 0;
};

}  // namespace muster
