// What each rank of a communicator publishes beside its messages, as this rank sees it: in the memory that its host
// shares, and, of ranks of other hosts, in private memory of the same layout, which holds what they told (told.h). So
// whoever reads need not care where a rank is.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transports/shm/segment.h"

namespace muster {

class Published {
 public:
  // `places`: by rank, its number in the segment; kElsewhere: on another host.
  static constexpr int kElsewhere = -1;
  Published(std::shared_ptr<Segment> segment, std::vector<int> places);
  ~Published();
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

  RankControl& control(int rank) const { return *controls_[static_cast<size_t>(rank)]; }
  // Those of this host are reserved before the first use (Segment::reserve_boards).
  Board& board(int rank, BoardKind kind) const;

  int place(int rank) const { return places_[static_cast<size_t>(rank)]; }
  bool is_here(int rank) const { return place(rank) != kElsewhere; }
  bool spans_hosts() const { return copies_ != nullptr; }
  // Every rank of this host: if it sleeps, or whatever it does.
  void ring_all() const;
  void wake_all() const;

 private:
  struct Copy {
    RankControl control;
    Board boards[2];  // by BoardKind
  };
  size_t bytes() const { return places_.size() * sizeof(Copy); }

  const std::shared_ptr<Segment> segment_;
  const std::vector<int> places_;
  std::vector<RankControl*> controls_;  // by rank
  Copy* copies_ = nullptr;              // by rank; pages are taken when somebody tells something. Null: all ranks are here
};

}  // namespace muster
