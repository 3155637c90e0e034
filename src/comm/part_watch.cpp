#include "comm/part_watch.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "comm/mismatch.h"

namespace muster {

void PartWatch::check(std::chrono::nanoseconds waited) {
  if (comm_.failed()) comm_.throw_error();
  if (in_collective())
    compare_ledgers();
  else if (!in_messages())
    return;
  const int late = waiting_for();
  note_wait(comm_, in_collective() ? RankWait::collective : RankWait::messages, late, waited);
  if (late >= 0) require_present(comm_, late, what(), [&] { return waiting_for() == late; });
  check_time(comm_, what(), who_is_late(late), waited, &next_warning_);
}

// Those who watch its connections may have left.
void require_present(Communicator::Impl& comm, int late, const std::string& what, const std::function<bool()>& still_waiting) {
  const Communicator::Impl::Rank& peer = comm.ranks[static_cast<size_t>(late)];
  const bool ended = !peer.start.empty() && has_ended(peer.pid, peer.start);
  const bool left = comm.segment && comm.segment->control(late).left.load(std::memory_order_acquire);
  if ((!ended && !left) || !still_waiting()) return;
  raise(comm, Result::remote_error,
        fmt::format("communicator {}: {} has {} while {} waits for it in {}", comm.name, comm.rank_name(late),
                    left ? "destroyed its communicator" : "ended without leaving the communicator", comm.rank_name(comm.rank), what));
}

void check_time(Communicator::Impl& comm, const std::string& what, const std::string& who, std::chrono::nanoseconds waited,
                std::chrono::nanoseconds* next_warning) {
  const double seconds = static_cast<double>(waited.count()) * 1e-9;
  if (comm.timeout.count() > 0 && waited >= comm.timeout)
    raise(comm, Result::timeout, fmt::format("communicator {}: {} timed out after {:.3g} s in {}{}. MUSTER_TIMEOUT sets the limit", comm.name,
                                             comm.rank_name(comm.rank), seconds, what, who));
  warn_when_late(comm, what, who, waited, next_warning);
}

void warn_when_late(const Communicator::Impl& comm, const std::string& what, const std::string& who, std::chrono::nanoseconds waited,
                    std::chrono::nanoseconds* next_warning) {
  if (comm.stall_warning.count() == 0 || waited < std::max(comm.stall_warning, *next_warning)) return;
  *next_warning = 2 * waited;
  log_warn("communicator {}: rank {} has waited {:.3g} s in {}{}. `muster status` shows where every rank is", comm.name, comm.rank, static_cast<double>(waited.count()) * 1e-9, what, who);
}

std::string PartWatch::what() const {
  if (in_collective())
    return fmt::format("call {}, {}", (*collective_)->sequence(), to_string((*collective_)->call()));
  return "a group of sends and receives";
}

// The ranks behind, not those ahead: the ones that haven't entered this call.
std::string PartWatch::who_is_late(int late) const {
  if (!comm_.segment) return "";
  std::string text;
  if (in_collective()) {
    for (int r = 0; r < comm_.size; ++r) {
      const uint64_t entered = comm_.segment->control(r).entered.load(std::memory_order_relaxed);
      if (entered < (*collective_)->sequence())
        text += fmt::format("{}{}, last in call {}", text.empty() ? ", waiting for " : "; ", comm_.rank_name(r), entered);
    }
  }
  if (text.empty() && late >= 0) text = fmt::format(", waiting for {}", comm_.rank_name(late));
  return text;
}

void PartWatch::compare_ledgers() {
  if (!comm_.segment) return;
  const uint64_t sequence = (*collective_)->sequence();
  for (int r = 0; r < comm_.size; ++r) {
    const auto theirs = published_call(comm_, r, sequence);
    if (!theirs || theirs->fingerprint == (*collective_)->fingerprint()) continue;
    raise_call_mismatch(comm_, text_of(comm_, (*collective_)->call(), sequence), r,
                        text_beside((*collective_)->call(), *theirs));
  }
}

}  // namespace muster
