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

uint32_t number_of(Signal s) { return static_cast<uint32_t>(s.context * kSignalsPerContext + s.index); }

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
  const bool here = !comm.shown || comm.shown->is_here(call.peer);
  if (call.bytes && here && !w.ranges[static_cast<size_t>(call.peer)].base && !comm.ranks[static_cast<size_t>(call.peer)].arena_base)
    fail(Result::invalid_usage,
         "put_signal on rank {}: {} is another process of this host, and ranks don't map each other's memory. At most {} ranks do, with MUSTER_WINDOWS=1 and "
         "a limit on address space (ulimit -v) that allows it",
         comm.rank, comm.rank_name(call.peer), kMostDirect);
  if (call.bytes && here && !w.ranges[static_cast<size_t>(call.peer)].base)
    fail(Result::invalid_usage,
         "put_signal on rank {}: {}'s part of the window is not in one allocation of mem_alloc (ncclMemAlloc), so other processes can't reach it. "
         "Allocate it with it",
         comm.rank, comm.rank_name(call.peer));
  if (call.bytes && !call.source)
    fail(Result::invalid_argument, "put_signal on rank {}: source is null", comm.rank);
  const GpuLibrary* const gpus = gpu_library();
  if (gpus && (gpus->holds(call.source) || gpus->holds(w.ranges[static_cast<size_t>(call.peer)].base)))
    fail(Result::invalid_usage, "put_signal on rank {}: the source or the window of rank {} is GPU memory; one-sided calls are for host memory. "
         "Send and receive it (ncclSend, ncclRecv)", comm.rank, call.peer);
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
  bool moved = false;
  if (FarPuts* const puts = comm_.puts()) {
    puts->open();
    moved = comm_.progress();
  }
  return (call().kind == Kind::wait_signal ? advance_wait() : advance_signal()) || moved;
}

bool OneSidedRun::advance_signal() {
  const int peer = call().peer;
  if (comm_.shown && comm_.control(peer).left.load(std::memory_order_acquire))
    raise(comm_, Result::remote_error,
          fmt::format("communicator {}: {} has destroyed its communicator, and {} calls {}", comm_.name,
                      comm_.rank_name(peer), comm_.rank_name(comm_.rank), what()));
  if (is_far(peer)) {
    const OneSided& c = call();
    const FarPuts::Put put{peer, number_of(c.signal), c.window ? c.window->number : 0, c.offset, c.bytes, c.source};
    const bool moved = comm_.puts()->send(put, &copied_);
    if (copied_ > c.bytes + 1) {
      comm_.sent_bytes.add({.network = c.bytes});
      next();
    }
    return moved;
  }
  if (copied_ < call().bytes) copy_part();
  if (copied_ < call().bytes) return true;
  counter_of(comm_.rank, peer, call().signal).fetch_add(1, std::memory_order_release);
  if (comm_.shown) comm_.control(peer).doorbell.ring();
  if (peer != comm_.rank) comm_.sent_bytes.add({.direct = call().bytes});
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
  const auto place = [&](int r) { return comm_.shown ? comm_.shown->place(r) : 0; };
  return comm_.signals.counter(comm_.segment.get(), place(comm_.rank), place(from), place(to), s);
}

// On another host.
bool OneSidedRun::is_far(int rank) const { return comm_.puts() && !comm_.shown->is_here(rank); }

uint64_t OneSidedRun::come(const SignalWait& w) {
  if (is_far(w.peer)) return comm_.puts()->signals(w.peer, number_of(w.signal));
  return counter_of(w.peer, comm_.rank, w.signal).load(std::memory_order_acquire);
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
    if (is_far(w.peer))
      comm_.puts()->take_signals(w.peer, number_of(w.signal), static_cast<uint64_t>(w.count));
    else
      counter_of(w.peer, comm_.rank, w.signal).fetch_sub(static_cast<uint64_t>(w.count), std::memory_order_relaxed);
  }
  next();
  return true;
}

void OneSidedRun::check(std::chrono::nanoseconds waited) {
  const SignalWait* const w = call().kind == Kind::wait_signal ? &call().waits[waited_] : nullptr;
  const int peer = w ? w->peer : call().peer;
  if (!w && !is_far(peer)) return;  // that waits for nobody
  note_wait(comm_, RankWait::signals, peer, waited);
  require_present(comm_, peer, what(), &absent_);
  check_time(comm_, what(), fmt::format(", waiting for {}", comm_.rank_name(peer)), waited, &next_warning_);
}

std::string OneSidedRun::what() {
  const OneSided& c = call();
  if (c.kind != Kind::wait_signal)
    return fmt::format("{}({}peer {}, signal {}, context {})", name_of(c.kind),
                       c.kind == Kind::put_signal ? fmt::format("{} bytes, ", c.bytes) : "", c.peer,
                       c.signal.index, c.signal.context);
  const SignalWait& w = c.waits[waited_];
  const uint64_t here = come(w);
  return fmt::format("wait_signal({} of signal {}, context {}, from rank {}; {} {} come)", w.count,
                     w.signal.index, w.signal.context, w.peer, here, here == 1 ? "has" : "have");
}

}  // namespace muster
