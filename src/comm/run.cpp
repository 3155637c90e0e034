// Running calls: from a call to its plan's steps, with waiting, mismatches and late ranks looked after.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/math.h"
#include "comm/collective_run.h"
#include "comm/gpu_calls.h"
#include "comm/mismatch.h"
#include "comm/part_watch.h"
#include "comm/state.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

// Marks the communicator as running a call; two threads at once are an error of the program.
class Exclusive {
 public:
  explicit Exclusive(Impl& comm) : comm_(comm) { comm.begin_call(); }
  ~Exclusive() { comm_.running.store(false, std::memory_order_release); }
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

 private:
  Impl& comm_;
};

class SingleWatch final : public Waiter::Watch {
 public:
  SingleWatch(Impl& comm, std::optional<CollectiveRun>* run) : comm_(comm), part_(comm, run, nullptr) {}
  bool tripped() const override { return comm_.failed(); }
  void check(std::chrono::nanoseconds waited) override { part_.check(waited); }

 private:
  Impl& comm_;
  PartWatch part_;
};

void await(Impl& comm, std::optional<CollectiveRun>& run) {
  SingleWatch watch(comm, &run);
  Doorbell* bell = comm.own_control ? &comm.own_control->doorbell : nullptr;
  Waiter waiter(comm.wait, {&bell, bell ? 1u : 0u}, &watch, comm.alarm());
  do {
    if (run->advance())
      waiter.reset();
    else
      waiter.pause();
  } while (!run->done());
}

}  // namespace

void run_call(Impl& comm, const Call& call) {
  const Exclusive exclusive(comm);
  std::optional<CollectiveRun> run;
  try {
    run.emplace(comm, call);
  } catch (const std::bad_alloc&) {
    raise_no_memory(comm, call);
  }
  if (run->done()) {
    if (call.on_gpu) [[unlikely]]
      launch_added(comm);
    return;
  }
  try {
    run->advance();
    if (!run->done()) await(comm, run);
    if (call.on_gpu) [[unlikely]]
      launch_added(comm);
  } catch (const FingerprintMismatch& m) {
    raise_mismatch(comm, m, &run->call(), run->sequence());
  } catch (const Error& e) {
    raise_broken(comm, e);
  } catch (const std::bad_alloc&) {
    raise_no_memory(comm, call);
  }
}

namespace {

// One communicator's part of a batch under way.
class PartRun {
 public:
  explicit PartRun(Batch::Part& part)
      : part_(part), comm_(*part.comm), exclusive_(comm_), one_sided_(comm_, part.one_sided), watch_(comm_, &collective_, &messages_) {
    for (const Call& c : part.messages) (c.on_gpu ? any_on_gpu_ : any_on_host_) = true;
    if (any_on_gpu_) check_self_messages();
    if (any_on_host_) start_messages();
    next_collective();
  }

  bool done() const { return !collective_ && !messages_ && one_sided_.done(); }
  bool advance() {
    bool moved = false;
    try {
      if (messages_) {
        moved |= messages_->advance();
        if (messages_->done()) messages_.reset();
      }
      if (collective_) {
        moved |= collective_->advance();
        if (collective_->done()) {
          collective_.reset();
          next_collective();
        }
      }
      if (!one_sided_.done()) moved |= one_sided_.advance();
    } catch (const FingerprintMismatch& m) {
      raise_mismatch(comm_, m, collective_ ? &collective_->call() : nullptr, comm_.sequence);
    } catch (const Error& e) {
      raise_broken(comm_, e);
    }
    return moved;
  }
  void leave_windows() noexcept {
    if (collective_) collective_->leave_windows();
  }
  Impl& comm() { return comm_; }
  void check(std::chrono::nanoseconds waited) {
    watch_.check(waited);
    if (!one_sided_.done()) one_sided_.check(waited);
  }

 private:
  void next_collective() {
    try {
      start_collectives();
    } catch (...) {
      // Calls before the one that was refused; if they failed, too, that is the communicator's error.
      try {
        launch_added(comm_);
      } catch (const Error&) {
      }
      throw;
    }
  }

  // Until one takes time.
  void start_collectives() {
    while (next_ < part_.collectives.size()) {
      Call& call = part_.collectives[next_++];
      if (!call.on_gpu) launch_added(comm_);
      if (call.weight_at && !call.on_gpu) std::memcpy(&call.weight_bits, call.weight_at, size_of(call.shape.type));
      collective_.emplace(comm_, call);
      if (!collective_->done()) return;
      collective_.reset();
    }
    launch_added(comm_);
    if (!std::exchange(any_on_gpu_, false)) return;
    // Behind the collectives, on all ranks alike: then what is between two of them in one rank's group may be behind both in
    // another's.
    gpu_group_ = group_of(part_.messages);
    gpu_call_.shape.coll = Coll::send_recv;
    gpu_call_.on_gpu = true;
    gpu_call_.gpu_group = &gpu_group_;
    collective_.emplace(comm_, gpu_call_);
    if (collective_->done()) collective_.reset();
  }

  void start_messages() {
    std::vector<Message> messages;
    std::vector<MessageSize> sizes;
    uint64_t hash = 0;
    for (const Call& c : part_.messages) {
      if (c.on_gpu) continue;
      messages.push_back({c.is_send, c.peer});
      sizes.push_back({c.shape.count, c.shape.type});
      hash = hash_combine(hash, static_cast<uint64_t>(c.is_send) | static_cast<uint64_t>(c.shape.type) << 1 | static_cast<uint64_t>(c.peer) << 8);
      hash = hash_combine(hash, c.shape.count);
      addresses_.push_back(static_cast<std::byte*>(c.is_send ? const_cast<void*>(c.send) : c.recv));
      fingerprints_.push_back(message_fingerprint(sizes.back()));
    }
    auto& plan = comm_.message_plans[hash];
    const auto same = [&] {
      return std::equal(messages.begin(), messages.end(), plan->messages.begin(), plan->messages.end(),
                        [](const Message& a, const Message& b) { return a.is_send == b.is_send && a.peer == b.peer; }) &&
             std::equal(sizes.begin(), sizes.end(), plan->sizes.begin(), plan->sizes.end(),
                        [](const MessageSize& a, const MessageSize& b) { return a.count == b.count && a.type == b.type; });
    };
    if (!plan || !same()) {
      check_self_messages();
      Program program = send_recv(comm_.size, comm_.rank, messages);
      // Point-to-point messages have the last lane, so that they pass by the collectives of the same group.
      for (Channel& c : program.channels)
        for (Loop& l : c.loops)
          for (Step& s : l.steps) {
            const auto set_lane = [&](Ref& r) { r.lane = static_cast<uint16_t>(comm_.inputs.lanes); };
            for (Ref& r : s.sources) set_lane(r);
            for (Ref& r : s.destinations) set_lane(r);
          }
      constexpr size_t kMostPlans = 256;
      if (comm_.message_plans.size() > kMostPlans) comm_.message_plans.clear();
      CompiledPlan compiled;
      try {
        compiled = compile_messages(program, sizes, choose_messages(comm_.inputs), comm_.transport.get());
      } catch (const Error& e) {
        comm_.set_error(e.code(), e.what(), true);  // memory is short on this rank only, and the others must not wait
        throw;
      }
      auto& fresh = comm_.message_plans[hash];
      fresh = std::make_unique<Impl::MessagePlan>(Impl::MessagePlan{messages, sizes, std::move(compiled)});
      comm_.sent_bytes.add(fresh->plan.bytes_sent);
      messages_.emplace(fresh->plan, addresses_.data(), fingerprints_.data());
    } else {
      comm_.sent_bytes.add(plan->plan.bytes_sent);
      messages_.emplace(plan->plan, addresses_.data(), fingerprints_.data());
    }
    if (messages_->done()) messages_.reset();
  }

  // The k-th send to self meets the k-th receive from self here, in one rank: nothing else would notice a difference.
  void check_self_messages() {
    std::vector<const Call*> sends, receives;
    for (const Call& c : part_.messages)
      if (c.peer == comm_.rank) (c.is_send ? sends : receives).push_back(&c);
    if (sends.size() != receives.size())
      fail(Result::invalid_usage,
           "rank {} sends {} messages to itself and receives {} from itself in one group. Put each send to self and its receive into one group",
           comm_.rank, sends.size(), receives.size());
    for (size_t i = 0; i < sends.size(); ++i)
      if (sends[i]->shape.count != receives[i]->shape.count || sends[i]->shape.type != receives[i]->shape.type)
        fail(Result::invalid_usage, "rank {}: {} to itself is received by {}. Counts and types must be equal", comm_.rank,
             to_string(*sends[i]), to_string(*receives[i]));
      else if (sends[i]->on_gpu != receives[i]->on_gpu)
        fail(Result::invalid_usage, "rank {}: {} to itself has one buffer in GPU memory and the other in host memory. Put both into one", comm_.rank,
             to_string(*sends[i]));
  }

  Batch::Part& part_;
  Impl& comm_;
  Exclusive exclusive_;
  std::optional<CollectiveRun> collective_;
  std::optional<Run> messages_;
  OneSidedRun one_sided_;
  std::vector<std::byte*> addresses_;
  std::vector<uint64_t> fingerprints_;
  size_t next_ = 0;
  bool any_on_gpu_ = false, any_on_host_ = false;  // of the messages
  GpuGroup gpu_group_;
  Call gpu_call_;  // all messages on GPU memory
  PartWatch watch_;
};

class BatchWatch final : public Waiter::Watch {
 public:
  explicit BatchWatch(std::vector<std::unique_ptr<PartRun>>& parts) : parts_(parts) {}
  bool tripped() const override {
    return std::any_of(parts_.begin(), parts_.end(), [](const auto& p) { return !p->done() && p->comm().failed(); });
  }
  void check(std::chrono::nanoseconds waited) override {
    for (auto& p : parts_)
      if (!p->done()) p->check(waited);
  }

 private:
  std::vector<std::unique_ptr<PartRun>>& parts_;
};

}  // namespace

void run_batch(Batch& batch) {
  std::vector<std::unique_ptr<PartRun>> parts;
  std::vector<Doorbell*> bells;
  try {
    for (Batch::Part& p : batch.parts) {
      p.comm->require_usable();
      parts.push_back(std::make_unique<PartRun>(p));
      if (p.comm->own_control) bells.push_back(&p.comm->own_control->doorbell);
    }
    BatchWatch watch(parts);
    // With several it doesn't sleep, so needs no alarm.
    Waiter waiter(batch.parts[0].comm->wait, bells, &watch, parts.size() == 1 ? parts[0]->comm().alarm() : nullptr);
    for (;;) {
      bool moved = false, all_done = true;
      for (auto& p : parts) {
        if (p->done()) continue;
        moved |= p->advance();
        all_done = all_done && p->done();
      }
      if (all_done) return;
      if (moved)
        waiter.reset();
      else
        waiter.pause();
    }
  } catch (const std::exception& e) {
    // The other communicators of the group stopped midway with this one; their peers must not wait for them.
    const auto* error = dynamic_cast<const Error*>(&e);
    for (auto& p : parts) p->leave_windows();  // all of this thread's ranks before one waits for others
    for (auto& p : parts)
      if (!p->done()) p->comm().set_error(error ? error->code() : Result::system_error, e.what(), true);
    // Those that never started: the one that failed to start, unless its call was refused, and all behind it.
    const bool refused = error && (error->code() == Result::invalid_argument || error->code() == Result::invalid_usage);
    for (size_t i = parts.size() + (refused ? 1 : 0); i < batch.parts.size(); ++i)
      batch.parts[i].comm->set_error(error ? error->code() : Result::system_error, e.what(), true);
    throw;
  }
}

}  // namespace muster
