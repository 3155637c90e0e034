// Running calls: from a call to its plan's steps, with waiting, mismatches and late ranks looked after.
#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/math.h"
#include "base/process.h"
#include "comm/state.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

// Point-to-point fingerprints say what the message is; those of collectives have the top bit clear.
constexpr uint64_t kMessageBit = uint64_t{1} << 63;
constexpr int kTypeShift = 58;
uint64_t message_fingerprint(const MessageSize& m) { return kMessageBit | static_cast<uint64_t>(m.type) << kTypeShift | m.count; }
std::string describe_message(uint64_t fingerprint) {
  return fmt::format("{} elements of {}", fingerprint & ((uint64_t{1} << kTypeShift) - 1),
                     name_of(static_cast<DataType>((fingerprint >> kTypeShift) & 31)));
}

CallShape shape_of(const LedgerEntry& e) {
  const uint64_t s = e.shape.load(std::memory_order_relaxed);
  CallShape shape;
  shape.coll = static_cast<Coll>(s & 255);
  shape.type = static_cast<DataType>(s >> 8 & 255);
  shape.op = static_cast<RedOp>(s >> 16 & 255);
  shape.root = static_cast<int32_t>(s >> 32);
  shape.count = e.count.load(std::memory_order_relaxed);
  return shape;
}

// What a rank tells the others about its buffers before a call that could use windows.
struct BufferDescriptor {
  uint64_t input = 0, output = 0;  // arena offsets, or addresses when all ranks share an address space
  uint64_t is_window = 0;
};
static_assert(sizeof(BufferDescriptor) <= kInlineBytes);

// Marks the communicator as running a call; two threads at once are an error of the program.
class Exclusive {
 public:
  explicit Exclusive(Impl& comm) : comm_(comm) {
    if (comm.running.exchange(true, std::memory_order_acquire)) [[unlikely]] {
      // The others would wait for the call that is refused here: whose calls are whose can't be told any more.
      const std::string why = fmt::format("communicator {}: two threads are making calls on {} at once. Give each thread a communicator of its own",
                                          comm.name, comm.rank_name(comm.rank));
      comm.set_error(Result::invalid_usage, why, true);
      throw Error(Result::invalid_usage, why);
    }
  }
  ~Exclusive() { comm_.running.store(false, std::memory_order_release); }
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

 private:
  Impl& comm_;
};

// One collective under way: an exchange of buffer descriptors where windows may serve, then the plan itself.
class CollectiveRun {
 public:
  CollectiveRun(Impl& comm, const Call& call) : comm_(comm), call_(call) {
    plan_ = comm.plan_for(call);
    ++comm.sequence;
    fingerprint_ = (plan_->shape_hash ^ comm.sequence * 0x9e3779b97f4a7c15ULL) & ~kMessageBit;
    if (comm.segment) comm.publish(call.shape, fingerprint_);
    if (call.shape.count == 0) return;
    if (plan_->windows && plan_->skip == 0) {
      start_exchange();
    } else {
      if (plan_->skip) --plan_->skip;
      start_slots();
    }
  }
  // Left unfinished, the call has failed, and its buffers may go as soon as it returns: not before the others let go of them.
  ~CollectiveRun() {
    leave_windows();
    if (run_ && mine_.is_window && comm_.failed()) await_others_leaving();
  }
  CollectiveRun(const CollectiveRun&) = delete;
  CollectiveRun& operator=(const CollectiveRun&) = delete;

  // This rank uses the others' buffers no more.
  void leave_windows() noexcept {
    if (std::exchange(in_windows_, false)) comm_.segment->control(comm_.rank).in_windows.store(0, std::memory_order_release);
  }

  bool advance() {
    const bool moved = run_->advance();
    if (run_->done()) {
      if (exchanging_)
        finish_exchange();
      else
        finish();
    }
    return moved;
  }
  bool done() const { return !run_; }
  uint64_t fingerprint() const { return fingerprint_; }
  uint64_t sequence() const { return comm_.sequence; }
  int waiting_for() const { return run_ ? run_->waiting_for() : -1; }
  const Call& call() const { return call_; }

 private:
  void start_slots() {
    trying_ = (plan_->slots.streams & kStreamSlot) != 0;
    start(plan_->slots, {}, trying_ && plan_->trial.begin());
  }

  void finish() {
    if (trying_) plan_->trial.end();
    leave_windows();
    run_.reset();
  }

  void start(const CompiledPlan& plan, WindowTable windows, bool stream_slots) {
    buffers_[kInput] = static_cast<std::byte*>(const_cast<void*>(call_.send));
    buffers_[kOutput] = static_cast<std::byte*>(call_.recv);
    if (plan.scratch_bytes) {
      if (comm_.scratch.size() < plan.scratch_bytes) comm_.scratch.resize(plan.scratch_bytes);
      buffers_[kScratch] = comm_.scratch.data();
    }
    run_.emplace(plan, buffers_, &fingerprint_, call_.weight_bits, windows, stream_slots);
    if (run_->done()) finish();
  }

  // After a failure elsewhere nobody enters: who fails looks who is in, and who enters looks for failures, each after it has
  // shown itself.
  void enter_windows() {
    comm_.segment->control(comm_.rank).in_windows.store(1, std::memory_order_relaxed);
    in_windows_ = true;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (comm_.failed()) comm_.throw_error();
  }

  void await_others_leaving() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    // A thread of this process is out within a tile. Another process may be stopped: what it does later to memory of
    // mem_alloc harms nothing else.
    constexpr auto kPatience = std::chrono::seconds(1);
    const auto start = std::chrono::steady_clock::now();
    for (int r = 0; r < comm_.size; ++r)
      while (comm_.segment->control(r).in_windows.load(std::memory_order_acquire) != 0 &&
             (comm_.ranks[static_cast<size_t>(r)].same_process || std::chrono::steady_clock::now() - start < kPatience))
        std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  void start_exchange() {
    describe_buffers();
    comm_.descriptors.resize(static_cast<size_t>(comm_.size) * sizeof(BufferDescriptor));
    buffers_[kInput] = reinterpret_cast<std::byte*>(&mine_);
    buffers_[kOutput] = comm_.descriptors.data();
    exchanging_ = true;
    run_.emplace(*comm_.exchange, buffers_, &fingerprint_);
  }

  void describe_buffers() {
    const CallShape& s = call_.shape;
    if (const Uneven* u = call_.uneven) return describe_buffers(u->input_end * size_of(s.type), u->output_end * size_of(s.type));
    const uint64_t chunk = s.count * size_of(s.type);
    const auto n = static_cast<uint64_t>(comm_.size);
    const bool root = !rooted(s.coll) || s.root == comm_.rank;
    // Bytes of each buffer that peers may touch; 0 where this rank has none.
    uint64_t in = chunk, out = chunk;
    if (s.coll == Coll::reduce_scatter || s.coll == Coll::all_to_all || s.coll == Coll::scatter) in *= n;
    if (s.coll == Coll::all_gather || s.coll == Coll::all_to_all || s.coll == Coll::gather) out *= n;
    if (!root && (s.coll == Coll::broadcast || s.coll == Coll::scatter)) in = 0;
    if (!root && (s.coll == Coll::reduce || s.coll == Coll::gather)) out = 0;
    describe_buffers(in, out);
  }

  void describe_buffers(uint64_t in, uint64_t out) {
    const CallShape& s = call_.shape;
    mine_ = {};
    if (s.coll == Coll::all_to_all && call_.send == call_.recv) return;  // peers would read what was overwritten
    if (comm_.inputs.same_process) {
      mine_ = {reinterpret_cast<uint64_t>(call_.send), reinterpret_cast<uint64_t>(call_.recv), 1};
      return;
    }
    const Arena& arena = Arena::of_process();
    const auto a = in ? arena.offset_of(call_.send, in) : 0;
    const auto b = out ? arena.offset_of(call_.recv, out) : 0;
    if (a && b) mine_ = {*a, *b, 1};
  }

  void finish_exchange() {
    exchanging_ = false;
    const auto* all = reinterpret_cast<const BufferDescriptor*>(comm_.descriptors.data());
    bool windows = true;
    for (int r = 0; r < comm_.size; ++r) windows = windows && all[r].is_window;
    if (!windows) {
      // Ask less and less often while the answer stays no; once in 64 calls costs nothing that can be measured.
      plan_->misses = std::min(plan_->misses + 1, 6u);
      plan_->skip = (1u << plan_->misses) - 1;
      start_slots();
      return;
    }
    plan_->misses = 0;
    comm_.window_input.resize(static_cast<size_t>(comm_.size));
    comm_.window_output.resize(static_cast<size_t>(comm_.size));
    for (int r = 0; r < comm_.size; ++r) {
      std::byte* base = comm_.inputs.same_process ? nullptr : comm_.ranks[static_cast<size_t>(r)].arena_base;
      comm_.window_input[static_cast<size_t>(r)] = base + all[r].input;
      comm_.window_output[static_cast<size_t>(r)] = base + all[r].output;
    }
    enter_windows();
    start(*plan_->windows, {comm_.window_input.data(), comm_.window_output.data()}, false);
  }

  Impl& comm_;
  const Call& call_;
  Impl::Plan* plan_ = nullptr;
  uint64_t fingerprint_ = 0;
  std::byte* buffers_[3] = {};
  BufferDescriptor mine_;
  bool exchanging_ = false;
  bool in_windows_ = false;
  bool trying_ = false;  // the plan's StoreTrial watches this call
  std::optional<Run> run_;
};

[[noreturn]] void raise(Impl& comm, Result code, const std::string& message) {
  comm.set_error(code, message, true);
  comm.throw_error();  // another rank may have been first; then everybody reports what that one found
}

[[noreturn]] void raise_no_memory(Impl& comm, const Call& call) {
  raise(comm, Result::system_error,
        fmt::format("communicator {}: {} has no memory left for what {} needs beside its buffers", comm.name, comm.rank_name(comm.rank),
                    to_string(call)));
}

[[noreturn]] void raise_call_mismatch(Impl& comm, const std::string& mine, int peer, const std::string& theirs) {
  raise(comm, Result::invalid_usage,
        fmt::format("communicator {}: calls don't match. {} called {}; {} called {}. Every rank must make the same calls, in the "
                    "same order, with equal counts, types, operations and roots",
                    comm.name, comm.rank_name(comm.rank), mine, comm.rank_name(peer), theirs));
}

struct PublishedCall {
  CallShape shape;
  uint64_t sequence = 0;
  uint64_t fingerprint = 0;
  std::string text() const { return fmt::format("{} as call {}", to_string(shape), sequence); }
};

// What `rank` called as its call `sequence`, as far as its ledger reaches.
std::optional<PublishedCall> published_call(const Impl& comm, int rank, uint64_t sequence) {
  const LedgerEntry& e = comm.segment->control(rank).ledger[sequence % kLedgerEntries];
  if (e.sequence.load(std::memory_order_acquire) != sequence) return {};
  const PublishedCall call{shape_of(e), sequence, e.fingerprint.load(std::memory_order_relaxed)};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (e.sequence.load(std::memory_order_relaxed) != sequence) return {};  // overwritten meanwhile
  return call;
}

// `theirs` beside this rank's call of the same number. Of counts that differ only a signature is published.
std::string text_beside(const Call& mine, const PublishedCall& theirs) {
  CallShape shape = theirs.shape;
  shape.count = mine.shape.count;
  if (!mine.uneven || is_pairwise(shape.coll) || shape != mine.shape) return theirs.text();
  const auto counts = counts_of(theirs.shape.count, mine.uneven->agreed_counts(shape.coll));
  return fmt::format("{}{} as call {}", to_string(shape, counts ? *counts : std::vector<uint64_t>()), counts ? "" : " with other counts", theirs.sequence);
}

// Only the two ends of a message know its length, and they differ; the calls are the same otherwise.
[[noreturn]] void raise_count_mismatch(Impl& comm, const FingerprintMismatch& m, const CollectiveRun& collective) {
  raise(comm, Result::invalid_usage,
        fmt::format("communicator {}: counts don't match in {} as call {}: {} sends {} elements to {}, which expects {}. What one rank sends "
                    "to another and what that one expects from it must be equal",
                    comm.name, to_string(collective.call()), collective.sequence(), comm.rank_name(m.peer), m.found ^ collective.fingerprint(),
                    comm.rank_name(comm.rank), m.expected ^ collective.fingerprint()));
}

[[noreturn]] void raise_mismatch(Impl& comm, const FingerprintMismatch& m, const CollectiveRun* collective) {
  if ((m.expected & kMessageBit) || !collective)
    raise(comm, Result::invalid_usage,
          fmt::format("communicator {}: a message from {} to {} doesn't match: sent were {}, the receive is for {}. Counts and types of a send "
                      "and its receive must be equal",
                      comm.name, comm.rank_name(m.peer), comm.rank_name(comm.rank), describe_message(m.found), describe_message(m.expected)));
  // Where nobody waited for anybody, calls parted earlier than it shows.
  const uint64_t now = collective->sequence();
  for (uint64_t s = now > kLedgerEntries ? now - kLedgerEntries + 1 : 1; s <= now; ++s) {
    const auto mine = published_call(comm, comm.rank, s), theirs = published_call(comm, m.peer, s);
    if (!mine || !theirs) continue;
    if (mine->fingerprint != theirs->fingerprint)
      raise_call_mismatch(comm, s == now ? fmt::format("{} as call {}", to_string(collective->call()), now) : mine->text(), m.peer,
                          s == now ? text_beside(collective->call(), *theirs) : theirs->text());
    if (s == now && is_uneven(theirs->shape.coll) && is_pairwise(theirs->shape.coll)) raise_count_mismatch(comm, m, *collective);
  }
  raise_call_mismatch(comm, fmt::format("{} as call {}", to_string(collective->call()), now), m.peer,
                      "something else (already too far ahead to tell)");
}

// What is looked at while one communicator's calls wait.
class PartWatch {
 public:
  PartWatch(Impl& comm, std::optional<CollectiveRun>* collective, const std::optional<Run>* messages)
      : comm_(comm), collective_(collective), messages_(messages) {}

  bool tripped() const { return comm_.failed(); }

  void check(std::chrono::nanoseconds waited) {
    if (comm_.failed()) comm_.throw_error();
    const bool in_collective = collective_ && *collective_ && !(*collective_)->done();
    int late = -1;
    if (in_collective) {
      compare_ledgers();
      late = (*collective_)->waiting_for();
    } else if (messages_ && *messages_ && !(*messages_)->done()) {
      late = (*messages_)->waiting_for();
    } else {
      return;
    }
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

 private:
  // A rank that has left, or whose process has ended, sends nothing more. Those who watch its connections may have left.
  void require_present(int late) const {
    const Impl::Rank& peer = comm_.ranks[static_cast<size_t>(late)];
    const bool ended = !peer.start.empty() && has_ended(peer.pid, peer.start);
    const bool left = comm_.segment && comm_.segment->control(late).left.load(std::memory_order_acquire);
    if (!ended && !left) return;
    if (!still_waiting(late)) return;  // what it had sent before
    raise(comm_, Result::remote_error,
          fmt::format("communicator {}: {} has {} while {} waits for it in {}", comm_.name, comm_.rank_name(late),
                      left ? "destroyed its communicator" : "ended without leaving the communicator", comm_.rank_name(comm_.rank), what()));
  }

  bool still_waiting(int late) const {
    return (collective_ && *collective_ && !(*collective_)->done() ? (*collective_)->waiting_for() : (*messages_)->waiting_for()) == late;
  }

  std::string what() const {
    if (collective_ && *collective_ && !(*collective_)->done())
      return fmt::format("call {}, {}", (*collective_)->sequence(), to_string((*collective_)->call()));
    return "a group of sends and receives";
  }

  // The ranks behind, not those ahead: the ones that haven't entered this call.
  std::string who_is_late(int late) const {
    if (!comm_.segment) return "";
    std::string text;
    if (collective_ && *collective_ && !(*collective_)->done()) {
      for (int r = 0; r < comm_.size; ++r) {
        const uint64_t entered = comm_.segment->control(r).entered.load(std::memory_order_relaxed);
        if (entered < (*collective_)->sequence())
          text += fmt::format("{}{}, last in call {}", text.empty() ? ", waiting for " : "; ", comm_.rank_name(r), entered);
      }
    }
    if (text.empty() && late >= 0) text = fmt::format(", waiting for {}", comm_.rank_name(late));
    return text;
  }

  void compare_ledgers() {
    if (!comm_.segment) return;
    const uint64_t sequence = (*collective_)->sequence();
    for (int r = 0; r < comm_.size; ++r) {
      const auto theirs = published_call(comm_, r, sequence);
      if (!theirs || theirs->fingerprint == (*collective_)->fingerprint()) continue;
      raise_call_mismatch(comm_, fmt::format("{} as call {}", to_string((*collective_)->call()), sequence), r, text_beside((*collective_)->call(), *theirs));
    }
  }

  Impl& comm_;
  std::optional<CollectiveRun>* collective_;
  const std::optional<Run>* messages_;
  std::chrono::nanoseconds next_warning_{0};
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

}  // namespace

void run_call(Impl& comm, const Call& call) {
  const Exclusive exclusive(comm);
  std::optional<CollectiveRun> run;
  try {
    run.emplace(comm, call);
  } catch (const std::bad_alloc&) {
    raise_no_memory(comm, call);
  }
  if (run->done()) return;
  SingleWatch watch(comm, &run);
  Doorbell* bell = comm.segment ? &comm.segment->control(comm.rank).doorbell : nullptr;
  Waiter waiter(comm.wait, {&bell, bell ? 1u : 0u}, &watch);
  try {
    do {
      if (run->advance())
        waiter.reset();
      else
        waiter.pause();
    } while (!run->done());
  } catch (const FingerprintMismatch& m) {
    raise_mismatch(comm, m, &*run);
  } catch (const std::bad_alloc&) {
    raise_no_memory(comm, call);
  }
}

namespace {

// One communicator's part of a batch under way.
class PartRun {
 public:
  explicit PartRun(Batch::Part& part)
      : part_(part), comm_(*part.comm), exclusive_(comm_), watch_(comm_, &collective_, &messages_) {
    if (!part.messages.empty()) start_messages();
    next_collective();
  }

  bool done() const { return !collective_ && !messages_; }
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
    } catch (const FingerprintMismatch& m) {
      raise_mismatch(comm_, m, collective_ ? &*collective_ : nullptr);
    }
    return moved;
  }
  void leave_windows() noexcept {
    if (collective_) collective_->leave_windows();
  }
  Impl& comm() { return comm_; }
  PartWatch& watch() { return watch_; }

 private:
  void next_collective() {
    while (next_ < part_.collectives.size()) {
      Call& call = part_.collectives[next_++];
      if (call.weight_at) std::memcpy(&call.weight_bits, call.weight_at, size_of(call.shape.type));
      collective_.emplace(comm_, call);
      if (!collective_->done()) return;
      collective_.reset();
    }
  }

  void start_messages() {
    std::vector<Message> messages;
    std::vector<MessageSize> sizes;
    uint64_t hash = 0;
    for (const Call& c : part_.messages) {
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
      messages_.emplace(fresh->plan, addresses_.data(), fingerprints_.data());
    } else {
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
  }

  Batch::Part& part_;
  Impl& comm_;
  Exclusive exclusive_;
  std::optional<CollectiveRun> collective_;
  std::optional<Run> messages_;
  std::vector<std::byte*> addresses_;
  std::vector<uint64_t> fingerprints_;
  size_t next_ = 0;
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
      if (!p->done()) p->watch().check(waited);
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
      if (p.comm->segment) bells.push_back(&p.comm->segment->control(p.comm->rank).doorbell);
    }
    BatchWatch watch(parts);
    Waiter waiter(parts.size() == 1 ? parts[0]->comm().wait : batch.parts[0].comm->wait, bells, &watch);
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
