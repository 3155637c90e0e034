#include "comm/signals.h"

namespace muster {

std::atomic<uint64_t>& Signals::counter(Segment* segment, int own, int from, int to, Signal s) {
  const auto index = static_cast<size_t>(s.context) * kSignalsPerContext + static_cast<size_t>(s.index);
  if (!segment) {
    if (!own_) own_ = std::make_unique<std::atomic<uint64_t>[]>(kSignals);
    return own_[index];
  }
  const int n = segment->geometry().nranks;
  const size_t pages = kSignals / Segment::kSignalsPerPage;
  reserved_.resize(static_cast<size_t>(n) * n * pages);
  const size_t page = (static_cast<size_t>(from) * n + to) * pages + index / Segment::kSignalsPerPage;
  if (!reserved_[page]) {
    segment->reserve_signal(from, to, index);
    reserved_[page] = true;
    if (from == own) bytes_ += Segment::kSignalsPerPage * sizeof(uint64_t);
  }
  return segment->signals(from, to)[index];
}

}  // namespace muster
