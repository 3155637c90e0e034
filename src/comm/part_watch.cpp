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
  if (late >= 0) require_present(late);
  if (comm_.timeout.count() > 0 && waited >= comm_.timeout)
    raise(comm_, Result::timeout,
          fmt::format("communicator {}: {} timed out after {:.3g} s in {}{}. MUSTER_TIMEOUT sets the limit", comm_.name,
                      comm_.rank_name(comm_.rank), static_cast<double>(waited.count()) * 1e-9, what(), who_is_late(late)));
  if (comm_.stall_warning.count() > 0 && waited >= next_warning_) {
    if (next_warning_.count() == 0 && waited < comm_.stall_warning) return;
    next_warning_ = std::max(comm_.stall_warning, 2 * waited);
    log_warn("communicator {}: rank {} has waited {:.3g} s in {}{}", comm_.name, comm_.rank, static_cast<double>(waited.count()) * 1e-9, what(),
             who_is_late(late));
  }
}

// A rank that has left, or whose process has ended, sends nothing more. Those who watch its connections may have left.
void PartWatch::require_present(int late) const {
  const Communicator::Impl::Rank& peer = comm_.ranks[static_cast<size_t>(late)];
  const bool ended = !peer.start.empty() && has_ended(peer.pid, peer.start);
  const bool left = comm_.segment && comm_.segment->control(late).left.load(std::memory_order_acquire);
  if (!ended && !left) return;
  if (waiting_for() != late) return;  // what it had sent before
  raise(comm_, Result::remote_error,
        fmt::format("communicator {}: {} has {} while {} waits for it in {}", comm_.name, comm_.rank_name(late),
                    left ? "destroyed its communicator" : "ended without leaving the communicator", comm_.rank_name(comm_.rank), what()));
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
    raise_call_mismatch(comm_, fmt::format("{} as call {}", to_string((*collective_)->call()), sequence), r, text_beside((*collective_)->call(), *theirs));
  }
}

}  // namespace muster
