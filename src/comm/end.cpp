// How a communicator ends, or rests: finalize, destroy, abort, revoke, suspend and resume.
#include "base/error.h"
#include "comm/exchange.h"
#include "comm/gpu_watch.h"
#include "comm/problem.h"
#include "comm/told.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;
using Stage = Impl::Stage;

Deadline deadline_for_calls(const Impl& comm) {
  return comm.timeout.count() > 0 ? Deadline::after(comm.timeout) : Deadline::never();
}

}  // namespace

Impl::~Impl() {
  if (fork_generation != muster::fork_generation()) (void)gpu_owner.release();  // the runtime stayed in the parent
  leave();
  if (gpu_owner) GpuWatch::of_process().remove(*this);
  gpu_owner.reset();  // after leave(), for others wait until this rank has left
  if (fork_generation != muster::fork_generation()) (void)transport.release();  // its locks stayed in the parent
  if (!segment || stage.load() == Stage::making || fork_generation != muster::fork_generation()) return;
  segment->leave();
}

void Impl::leave() noexcept {
  if (!family || fork_generation != muster::fork_generation() || left.exchange(true)) return;
  if (gpu_owner) {
    if (failed()) gpu_owner->abort();
    gpu_owner->leave();
  }
  if (segment && stage.load() != Stage::making) {
    // After finalize all calls are done on all ranks; after an error nobody waits for what was sent.
    if (transport && stage.load() != Stage::finalized && !failed()) transport->drain();
    own_control->left.store(1, std::memory_order_release);
    shown->ring_all();
    tell_left(*this);
  }
  family->leave(*this);
  if (report) report->finish();
  if (tuner) tuner->end();
}

void Communicator::finalize() {
  const std::shared_ptr<Impl>& comm = require(impl_);
  check_call([&] {
    if (comm->stage.load() == Stage::finalized || comm->finalizing)
      fail(Result::invalid_argument, "communicator {}: finalized before", comm->name);
    comm->require_usable();
  });
  comm->finalizing = true;
  perform({.of = comm, .made = nullptr, .run = [comm] {
             comm->require_usable();
             CollectiveExchange(*comm, LifeCall::finalize, deadline_for_calls(*comm)).all_gather({});
             comm->stage.store(Stage::finalized);
           }});
}

void Communicator::destroy() {
  if (!impl_) fail(Result::invalid_argument, "destroy of an empty Communicator");
  if (impl_->stage.load() == Stage::destroyed)
    fail(Result::invalid_argument, "communicator {}: destroyed before", impl_->name);
  impl_->require_own_process();
  if (impl_->in_group.load())
    fail(Result::invalid_usage,
         "a communicator was destroyed in the group in which it is being made. End the group first");
  impl_->await_all();
  impl_->leave();
  impl_->stage.store(Stage::destroyed);
}

void Communicator::abort() noexcept {
  if (!impl_ || impl_->stage.load() == Stage::destroyed || impl_->fork_generation != fork_generation())
    return;
  impl_->cancelled.store(true, std::memory_order_seq_cst);
  if (impl_->stage.load(std::memory_order_seq_cst) == Stage::making)
    impl_->give_up(
        Error(Result::remote_error, "the communicator was aborted while it was being made, by this rank"));
  else
    impl_->set_error(
        Result::remote_error,
        fmt::format("communicator {}: aborted by {}", impl_->name, impl_->rank_name(impl_->rank)), true);
}

void Communicator::revoke() {
  const Impl& comm = *require(impl_);
  if (comm.stage.load() != Stage::finalized) comm.require_alive();
  impl_->set_error(
      Result::invalid_usage,
      fmt::format("communicator {}: revoked by {}. Only split, shrink, abort and destroy are possible now",
                  comm.name, comm.rank_name(comm.rank)),
      true, true);
}

void Communicator::suspend() {
  const std::shared_ptr<Impl>& comm = require(impl_);
  check_call([&] { comm->require_usable(); });
  perform({.of = comm, .made = nullptr, .run = [comm] {
             comm->require_usable();
             // When all have come nothing is under way any more.
             CollectiveExchange(*comm, LifeCall::suspend, deadline_for_calls(*comm)).all_gather({});
             if (comm->transport) comm->transport->release_data();
             comm->stage.store(Stage::suspended);
           }});
}

void Communicator::resume() {
  const std::shared_ptr<Impl>& comm = require(impl_);
  check_call([&] {
    if (comm->stage.load() != Stage::suspended) {
      comm->require_alive();
      if (comm->pending.load() == 0)
        fail(Result::invalid_usage, "communicator {}: resumed, but it is not suspended", comm->name);
    }
    if (comm->failed()) comm->throw_error();
  });
  perform({.of = comm, .made = nullptr, .run = [comm] {
             if (comm->stage.load() != Stage::suspended)
               fail(Result::invalid_usage, "communicator {}: resumed, but it is not suspended", comm->name);
             const std::string problem = problem_in([&] {
               if (comm->transport) comm->transport->near().reserve_data();
             });
             try {
               throw_first(
                   CollectiveExchange(*comm, LifeCall::resume, deadline_for_calls(*comm)).all_gather(problem));
             } catch (...) {
               if (comm->transport && problem.empty()) comm->transport->near().release_data();
               throw;
             }
             if (comm->transport) comm->transport->reuse();
             comm->stage.store(Stage::ready);
           }});
}

MemoryUse Communicator::memory_use() const {
  const Impl& comm = *require(impl_);
  MemoryUse use;
  if (comm.stage.load(std::memory_order_acquire) == Stage::making || !comm.transport) return use;
  const ShmTransport::Reserved reserved = comm.transport->near().reserved();
  use.persistent = reserved.lines + comm.signals.bytes();
  if (comm.shown->place(comm.rank) == 0)
    use.persistent +=
        comm.segment->control_bytes() + (comm.has_boards.load() ? comm.segment->boards_bytes() : 0);
  (comm.stage.load() == Stage::suspended ? use.suspended : use.suspendable) = reserved.data;
  if (comm.puts()) {  // of several hosts
    const Network::Memory far = comm.family->network->memory(comm.id);
    use.persistent += far.kept;
    use.suspendable += far.rings;
    use.suspended += far.released;
  }
  use.total = use.persistent + use.suspendable;
  return use;
}

BytesSent bytes_sent(const Communicator& communicator) { return require(communicator.impl())->sent_bytes.read(); }

}  // namespace muster
