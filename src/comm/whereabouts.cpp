#include "comm/whereabouts.h"

#include <unistd.h>

#include <charconv>

#include "base/process.h"

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
  if (!comm.segment) return;
  if (comm.rank == 0) comm.segment->describe(comm.id, parent ? parent->id : 0, comm.size, comm.name);
  RankControl& c = comm.segment->control(comm.rank);
  const bool known = parent && parent->segment;
  c.start.store(known ? parent->segment->control(parent->rank).start.load(std::memory_order_relaxed)
                      : start_of_process(),
                std::memory_order_relaxed);
  c.rank.store(comm.rank, std::memory_order_relaxed);
  c.times.seen_at.store(now(), std::memory_order_relaxed);
  c.pid.store(getpid(), std::memory_order_release);
}

void note_wait(Impl& comm, RankWait::Kind kind, int peer, std::chrono::nanoseconds waited) {
  if (!comm.segment) return;
  RankWait& w = comm.segment->control(comm.rank).wait;
  const int64_t at = now();
  w.peer.store(peer, std::memory_order_relaxed);
  w.since.store(at - waited.count(), std::memory_order_relaxed);
  w.seen_at.store(at, std::memory_order_relaxed);
  w.kind.store(kind, std::memory_order_release);
  comm.wait_noted = true;
}

void forget_wait(Impl& comm) {
  if (!comm.wait_noted) return;
  comm.wait_noted = false;
  comm.segment->control(comm.rank).wait.kind.store(RankWait::none, std::memory_order_relaxed);
}

}  // namespace muster
