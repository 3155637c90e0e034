#include "comm/whereabouts.h"

#include <unistd.h>

#include <charconv>

#include "base/process.h"
#include "comm/told.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

// Of std::chrono::steady_clock, which is CLOCK_MONOTONIC.
int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
static_assert(std::chrono::steady_clock::period::den == 1'000'000'000);

uint64_t start_of_process() {
  const std::string text = read_process(getpid()).start;
  uint64_t start = 0;
  std::from_chars(text.data(), text.data() + text.size(), start);
  return start;
}

}  // namespace

void introduce_rank(Impl& comm, const Impl* parent) {
  if (!comm.shown) return;
  if (comm.shown->place(comm.rank) == 0) comm.segment->describe(comm.id, parent ? parent->id : 0, comm.size, comm.name);
  RankControl& c = *comm.own_control;
  const bool known = parent && parent->own_control;
  c.start.store(known ? parent->own_control->start.load(std::memory_order_relaxed) : start_of_process(),
                std::memory_order_relaxed);
  c.rank.store(comm.rank, std::memory_order_relaxed);
  c.times.seen_at.store(now(), std::memory_order_relaxed);
  c.pid.store(getpid(), std::memory_order_release);
}

void note_wait(Impl& comm, RankWait::Kind kind, int peer, std::chrono::nanoseconds waited) {
  if (!comm.own_control) return;
  RankWait& w = comm.own_control->wait;
  const int64_t at = now();
  w.peer.store(peer, std::memory_order_relaxed);
  w.since.store(at - waited.count(), std::memory_order_relaxed);
  w.seen_at.store(at, std::memory_order_relaxed);
  w.kind.store(kind, std::memory_order_release);
  comm.wait_noted = true;
  if (waited < comm.next_telling) return;
  comm.next_telling = 2 * waited;
  tell_calls(comm, true);
}

void forget_wait(Impl& comm) {
  if (!comm.wait_noted) return;
  comm.wait_noted = false;
  comm.next_telling = std::chrono::nanoseconds(0);
  comm.own_control->wait.kind.store(RankWait::none, std::memory_order_relaxed);
}

}  // namespace muster
