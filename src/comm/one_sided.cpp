#include "comm/one_sided.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "comm/collective_run.h"
#include "comm/mismatch.h"
#include "comm/part_watch.h"
#include "comm/state.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;
using Kind = OneSided::Kind;

// Between two looks at errors: an abort ends a long copy within a fraction of a millisecond.
constexpr size_t kMostCopied = size_t{1} << 20;

const char* name_of(Kind kind) {
  return kind == Kind::put_signal ? "put_signal" : kind == Kind::signal ? "signal" : "wait_signal";
}

void require_peer(const Impl& comm, Kind kind, int peer) {
  if (peer < 0 || peer >= comm.size)
    fail(Result::invalid_argument, "{} on rank {}: peer {} is not in 0..{}", name_of(kind), comm.rank, peer,
         comm.size - 1);
}

void require_signal(const Impl& comm, Kind kind, Signal s) {
  if (s.index < 0 || s.index >= kSignalsPerContext)
    fail(Result::invalid_argument, "{} on rank {}: signal {} is not in 0..{}", name_of(kind), comm.rank,
         s.index, kSignalsPerContext - 1);
  if (s.context < 0 || s.context >= kSignalContexts)
    fail(Result::invalid_argument, "{} on rank {}: context {} is not in 0..{}", name_of(kind), comm.rank,
         s.context, kSignalContexts - 1);
}

void require_room(const Impl& comm, const OneSided& call) {
  if (!call.window)
    fail(Result::invalid_argument,
         "put_signal on rank {}: an empty Window was passed. Make one with register_window", comm.rank);
  const Window::Impl& w = *call.window;
  if (w.comm.get() != &comm)
    fail(Result::invalid_argument, "put_signal on rank {}: the window is of communicator {}, not of {}",
         comm.rank, w.comm->name, comm.name);
  if (!w.registered.load(std::memory_order_acquire))
    fail(Result::invalid_argument,
         "put_signal on rank {}: the window isn't registered. End the group in which register_window was "
         "called; of a non-blocking communicator, wait until "
         "async_error() says success",
         comm.rank);
  const size_t room = w.ranges[static_cast<size_t>(call.peer)].bytes;
  if (call.offset > room || call.bytes > room - call.offset)
    fail(
        Result::invalid_argument,
        "put_signal on rank {}: {} bytes at offset {} leave rank {}'s part of the window, which has {} bytes",
        comm.rank, call.bytes, call.offset, call.peer, room);
  if (call.bytes && !call.source)
    fail(Result::invalid_argument, "put_signal on rank {}: source is null", comm.rank);
}

void submit(const std::shared_ptr<Impl>& impl, const OneSided& call, HostStream* stream) {
  submit_one_sided(require(impl), call, stream);
}

}  // namespace

void validate(const Impl& comm, const OneSided& call) {
  if (call.kind != Kind::wait_signal) {
    require_peer(comm, call.kind, call.peer);
    require_signal(comm, call.kind, call.signal);
  }
  if (call.kind == Kind::put_signal) require_room(comm, call);
  for (const SignalWait& w : call.waits) {
    require_peer(comm, call.kind, w.peer);
    require_signal(comm, call.kind, w.signal);
    if (w.count < 0)
      fail(Result::invalid_argument, "wait_signal on rank {}: count {} of signals from rank {} is negative",
           comm.rank, w.count, w.peer);
  }
}

void Communicator::put_signal(const void* source, size_t bytes, int peer, const Window& window, size_t offset,
                              Signal signal, HostStream* stream) {
  submit(impl_,
         {.kind = Kind::put_signal,
          .peer = peer,
          .signal = signal,
          .source = static_cast<const std::byte*>(source),
          .bytes = bytes,
          .offset = offset,
          .window = window.impl(),
          .waits = {}},
         stream);
}
void Communicator::signal(int peer, Signal signal, HostStream* stream) {
  submit(impl_, {.kind = Kind::signal, .peer = peer, .signal = signal, .window = {}, .waits = {}}, stream);
}
void Communicator::wait_signal(std::span<const SignalWait> waits, HostStream* stream) {
  submit(impl_,
         {.kind = Kind::wait_signal, .signal = {}, .window = {}, .waits = {waits.begin(), waits.end()}},
         stream);
}

// --- running them ---

OneSidedRun::OneSidedRun(Impl& comm, std::span<OneSided> calls) : comm_(comm), calls_(calls) {
  std::stable_partition(calls.begin(), calls.end(), [](const OneSided& c) { return c.kind != Kind::wait_signal; });
}

void OneSidedRun::next() {
  ++next_;
  copied_ = waited_ = 0;
  next_warning_ = std::chrono::nanoseconds(0);
}

bool OneSidedRun::advance() {
  if (comm_.failed()) comm_.throw_error();
  return call().kind == Kind::wait_signal ? advance_wait() : advance_signal();
}

bool OneSidedRun::advance_signal() {
  const int peer = call().peer;
  Segment* segment = comm_.segment.get();
  if (segment && segment->control(peer).left.load(std::memory_order_acquire))
    raise(comm_, Result::remote_error,
          fmt::format("communicator {}: {} has destroyed its communicator, and {} calls {}", comm_.name,
                      comm_.rank_name(peer), comm_.rank_name(comm_.rank), what()));
  if (copied_ < call().bytes) copy_part();
  if (copied_ < call().bytes) return true;
  counter_of(comm_.rank, peer, call().signal).fetch_add(1, std::memory_order_release);
  if (segment) segment->control(peer).doorbell.ring();
  next();
  return true;
}

// Within an InWindows, as window programs are, since the peer may fail and free its memory.
void OneSidedRun::copy_part() {
  const OneSided& c = call();
  const size_t bytes = std::min(kMostCopied, c.bytes - copied_);
  std::byte* to = c.window->ranges[static_cast<size_t>(c.peer)].base + c.offset + copied_;
  const InWindows in(comm_);
  std::memmove(to, c.source + copied_, bytes);
  copied_ += bytes;
}

std::atomic<uint64_t>& OneSidedRun::counter_of(int from, int to, Signal s) {
  return comm_.signals.counter(comm_.segment.get(), comm_.rank, from, to, s);
}

bool OneSidedRun::has_come(const SignalWait& w) {
  return counter_of(w.peer, comm_.rank, w.signal).load(std::memory_order_acquire) >=
         static_cast<uint64_t>(w.count);
}

bool OneSidedRun::advance_wait() {
  const std::vector<SignalWait>& waits = call().waits;
  const size_t before = waited_;
  for (; waited_ < waits.size(); ++waited_) {
    const SignalWait& w = waits[waited_];
    if (w.count == 0) continue;
    if (!has_come(w)) {
      if (w.peer == comm_.rank)
        fail(Result::invalid_usage,
             "communicator {}: {} waits for signals from itself that it hasn't sent, in {}. Calls run in "
             "order: send them first, or in the same group",
             comm_.name, comm_.rank_name(comm_.rank), what());
      return waited_ != before;
    }
    counter_of(w.peer, comm_.rank, w.signal)
        .fetch_sub(static_cast<uint64_t>(w.count), std::memory_order_relaxed);
  }
  next();
  return true;
}

void OneSidedRun::check(std::chrono::nanoseconds waited) {
  if (call().kind != Kind::wait_signal) return;
  const SignalWait& w = call().waits[waited_];
  note_wait(comm_, RankWait::signals, w.peer, waited);
  require_present(comm_, w.peer, what(), [&] { return !has_come(w); });
  check_time(comm_, what(), fmt::format(", waiting for {}", comm_.rank_name(w.peer)), waited, &next_warning_);
}

std::string OneSidedRun::what() {
  const OneSided& c = call();
  if (c.kind != Kind::wait_signal)
    return fmt::format("{}({}peer {}, signal {}, context {})", name_of(c.kind),
                       c.kind == Kind::put_signal ? fmt::format("{} bytes, ", c.bytes) : "", c.peer,
                       c.signal.index, c.signal.context);
  const SignalWait& w = c.waits[waited_];
  const uint64_t here = counter_of(w.peer, comm_.rank, w.signal).load(std::memory_order_relaxed);
  return fmt::format("wait_signal({} of signal {}, context {}, from rank {}; {} {} come)", w.count,
                     w.signal.index, w.signal.context, w.peer, here, here == 1 ? "has" : "have");
}

}  // namespace muster
