#include "comm/part_watch.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/mismatch.h"
#include "comm/told.h"

namespace muster {
namespace {

// What a rank sent before it died is in this host's buffers, mostly, when its death is heard of: read within one pass, which takes
// microseconds, or as long as another thread looks after the network.
constexpr std::chrono::milliseconds kLastLook{2};

}  // namespace

// What one that has died, or failed, had sent counts: whoever needs nothing more ends its call.
bool PartWatch::may_still_come() {
  if (!comm_.shown || !comm_.shown->spans_hosts()) return false;
  const auto now = std::chrono::steady_clock::now();
  if (!failed_at_) failed_at_ = now;
  return now - *failed_at_ < kLastLook;
}

void PartWatch::check(std::chrono::nanoseconds waited) {
  if (comm_.failed()) {
    if (may_still_come()) return;
    comm_.throw_error();
  }
  if (in_collective())
    compare_ledgers();
  else if (!in_messages())
    return;
  const int late = waiting_for();
  note_wait(comm_, in_collective() ? RankWait::collective : RankWait::messages, late, waited);
  if (late >= 0) require_present(comm_, late, what(), &absent_);
  check_time(comm_, what(), who_is_late(late, waited), waited, &next_warning_);
}

// Those who watch its connections may have left.
void require_present(Communicator::Impl& comm, int late, const std::string& what, int* absent) {
  const bool left = comm.shown && comm.control(late).left.load(std::memory_order_acquire);
  const bool gone = left || comm.has_ended(late);
  if (std::exchange(*absent, gone ? late : -1) != late || !gone) return;
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
  if (in_collective() && !(*collective_)->call().gpu_group)
    return fmt::format("call {}, {}", (*collective_)->sequence(), to_string((*collective_)->call()));
  return "a group of sends and receives";
}

// Who waits asks ranks of other hosts where they are (whereabouts.h); their helper threads answer at once.
bool PartWatch::answers(int rank, std::chrono::nanoseconds waited) const {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return comm_.shown->is_here(rank) || comm_.control(rank).times.seen_at.load(std::memory_order_relaxed) >= (now - waited - 2 * kTellAgain).count();
}

// The ranks behind, not those ahead: the ones that haven't entered this call.
std::string PartWatch::who_is_late(int late, std::chrono::nanoseconds waited) const {
  if (!comm_.shown) return "";
  std::string text;
  if (in_collective()) {
    for (int r = 0; r < comm_.size; ++r) {
      const uint64_t entered = comm_.control(r).entered.load(std::memory_order_relaxed);
      if (entered < (*collective_)->sequence())
        text += fmt::format("{}{}, {}", text.empty() ? ", waiting for " : "; ", comm_.rank_name(r),
                            answers(r, waited) ? fmt::format("last in call {}", entered) : "whose process doesn't answer (stopped, or its host cut off)");
    }
  }
  if (text.empty() && late >= 0) text = fmt::format(", waiting for {}", comm_.rank_name(late));
  return text;
}

void PartWatch::compare_ledgers() {
  if (!comm_.shown || (*collective_)->call().gpu_group) return;  // a group of messages has no number
  const uint64_t sequence = (*collective_)->sequence();
  for (int r = 0; r < comm_.size; ++r) {
    const auto theirs = published_call(comm_, r, sequence);
    if (!theirs || theirs->fingerprint == (*collective_)->fingerprint()) continue;
    raise_call_mismatch(comm_, text_of(comm_, (*collective_)->call(), sequence), r,
                        text_beside((*collective_)->call(), *theirs));
  }
}

}  // namespace muster
