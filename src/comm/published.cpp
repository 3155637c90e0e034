#include "comm/published.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace muster {

Published::Published(std::shared_ptr<Segment> segment, std::vector<int> places)
    : segment_(std::move(segment)), places_(std::move(places)) {
  if (std::ranges::find(places_, kElsewhere) != places_.end()) {
    void* const p = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
      fail_errno(errno, fmt::format("mapping {} bytes for what {} ranks tell of themselves", bytes(), places_.size()),
                 "Check the limit on address space (ulimit -v)");
    copies_ = static_cast<Copy*>(p);
  }
  for (size_t r = 0; r < places_.size(); ++r)
    controls_.push_back(places_[r] == kElsewhere ? &copies_[r].control : &segment_->control(places_[r]));
}

Published::~Published() {
  if (copies_) munmap(copies_, bytes());
}

Board& Published::board(int rank, BoardKind kind) const {
  return is_here(rank) ? segment_->board(place(rank), kind) : copies_[rank].boards[static_cast<size_t>(kind)];
}

void Published::ring_all() const {
  for (size_t r = 0; r < places_.size(); ++r)
    if (places_[r] != kElsewhere) controls_[r]->doorbell.ring();
}

void Published::wake_all() const {
  for (size_t r = 0; r < places_.size(); ++r)
    if (places_[r] != kElsewhere) controls_[r]->doorbell.wake();
}

}  // namespace muster
