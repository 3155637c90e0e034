// A communicator's inside: what it knows of its ranks, its plans, and its health.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fork.h"
#include "base/options.h"
#include "comm/background.h"
#include "comm/bytes_sent_counter.h"
#include "comm/call_report.h"
#include "comm/family.h"
#include "comm/gpu_rank.h"
#include "comm/gpu_windows.h"
#include "comm/hosts_transport.h"
#include "comm/one_sided.h"
#include "comm/published.h"
#include "comm/signals.h"
#include "comm/tuner.h"
#include "comm/uneven.h"
#include "device/host/arena.h"
#include "exec/host/compiled_plan.h"
#include "exec/host/executor.h"
#include "exec/host/store_trial.h"
#include "exec/host/waiter.h"
#include "muster/muster.h"
#include "plan/planner.h"
#include "transports/shm/segment.h"

namespace muster {

// One call as the user made it.
struct Call {
  CallShape shape;
  const void* send = nullptr;
  void* recv = nullptr;
  uint64_t weight_bits = 0;
  const void* weight_at = nullptr;  // not null: a call that is queued takes its weight from here when it runs
  const Uneven* uneven = nullptr;   // of a V-variant; a call that is queued has it in its batch
  int peer = -1;         // send_recv
  bool is_send = false;  // send_recv
  bool on_gpu = false;   // the buffers are GPU memory, and the call is for this stream
  CUstream_st* gpu_stream = nullptr;
  const GpuGroup* gpu_group = nullptr;  // of a send_recv that stands for all those of a group on GPU memory
};

// Bytes that the widest processors can address.
inline constexpr uint64_t kAddressSpace = uint64_t{1} << 57;

// "all_reduce(count 1024, float32, sum)"; of a V-variant "all_gather_v(float32)", with counts "all_gather_v(counts 3 0 5, float32)".
std::string to_string(const CallShape& shape, std::span<const uint64_t> counts = {});
std::string to_string(const Call& call);

// All of a shape but its count, as it stands in a ledger. Roots have 24 bits: ranks are fewer.
uint64_t packed(const CallShape& shape);
CallShape unpacked(uint64_t bits);

struct CallShapeHash {
  size_t operator()(const CallShape& s) const;
};

struct Communicator::Impl : std::enable_shared_from_this<Communicator::Impl> {
  struct Rank {
    std::string host;
    int pid = 0;
    std::string start;  // of its process, see ProcessStatus; empty: this process can't look at that one
    bool here = false;  // on this rank's host, whose memory they share
    bool same_process = false;
    std::shared_ptr<PeerArena> arena;  // other processes' of this host
    std::byte* arena_base = nullptr;   // where that rank's arena is mapped here
  };
  struct Plan {
    CompiledPlan slots;
    std::unique_ptr<CompiledPlan> windows;  // null: slots are as good
    // Calls of this shape for which no exchange of buffers is made, because the last ones found no windows. All ranks see
    // the same answers, so they count alike.
    uint32_t misses = 0, skip = 0;
    StoreTrial trial;  // of `slots`
    CallShape published;  // as others see it: with what was chosen for it on this rank
    uint64_t shape_hash = 0;
    CallReport::Row* row = nullptr;  // null: nobody asked what these calls take
  };

  // A communicator's life, apart from errors.
  enum class Stage : int { making, ready, suspended, finalized, destroyed };

  // --- known from the start, but for what split makes ---
  const bool blocking;
  bool numbered = false;  // rank and size are known
  int rank = -1, size = 0;

  // --- fixed when it is made ---
  std::string name;
  uint64_t id = 0;  // equal on all ranks
  Config config;    // as given; what is made of it takes it over
  Options options;
  std::shared_ptr<Family> family;
  std::vector<int> family_ranks;            // by rank: the rank in the family's first communicator
  std::shared_ptr<Segment> segment;         // of this rank's host; null for one rank
  std::unique_ptr<Published> shown;         // null for one rank
  RankControl* own_control = nullptr;       // this rank's in it
  std::unique_ptr<HostsTransport> transport;  // null for one rank
  std::vector<Rank> ranks;
  PlanInputs inputs;
  // What a rank told of its memory, as it is reached here: ranks of one process tell addresses, others offsets in their arenas.
  std::byte* address_here(size_t of_rank, uint64_t told) const {
    return reinterpret_cast<std::byte*>((inputs.same_process ? 0 : reinterpret_cast<uintptr_t>(ranks[of_rank].arena_base)) + told);
  }
  WaitPolicy wait;
  std::chrono::nanoseconds timeout{0}, stall_warning{0};
  const int fork_generation = muster::fork_generation();
  std::unique_ptr<Tuner> tuner;        // null: no plugin
  std::shared_ptr<CallReport> report;  // null: nobody asked

  // --- changed by the thread that runs calls ---
  std::atomic<bool> running{false};
  uint64_t sequence = 0;
  BytesSentCounter sent_bytes;
  uint64_t rounds = 0;    // of exchanges of all ranks
  std::optional<UniqueId> grow_id;  // made, and not yet used
  uint64_t attempts = 0;  // the last exchange of some ranks that this one was in
  std::unordered_map<CallShape, std::unique_ptr<Plan>, CallShapeHash> plans;
  const CallShape* last_shape = nullptr;
  Plan* last_plan = nullptr;
  std::unique_ptr<CompiledPlan> exchange;  // all-gather of buffer descriptors
  std::unique_ptr<CompiledPlan> host_exchange;  // the same inside each host
  struct MessagePlan {
    std::vector<Message> messages;
    std::vector<MessageSize> sizes;
    CompiledPlan plan;
  };
  std::unordered_map<uint64_t, std::unique_ptr<MessagePlan>> message_plans;
  struct UnevenPlan {
    CallShape shape;
    ChunkTable table;
    Plan plan;
  };
  // V-variants whose counts all ranks know, and those whose counts only the ends of each message know. All ranks remember
  // and forget the former alike, since they count alike when to look for windows.
  std::unordered_map<uint64_t, std::unique_ptr<UnevenPlan>> uneven_plans[2];
  std::vector<std::byte> scratch;
  std::vector<std::byte> input_copy;                        // of calls in place whose program is for two buffers
  std::vector<std::byte> descriptors;                       // of all ranks' buffers, as exchanged
  std::vector<std::byte*> window_input, window_output;      // by rank
  Signals signals;
  std::unique_ptr<GpuRank> gpu_owner;                       // of a rank that has been called on GPU memory
  std::unique_ptr<CompiledPlan> gpu_exchange;               // all-gather of its cards
  std::vector<std::byte> gpu_card;                          // as exchanged
  std::atomic<GpuRank*> gpu{nullptr};                       // the same, for every thread
  GpuWindows gpu_windows;
  std::optional<bool> copy_engines_wanted;                  // as options and config say; known from the first call on GPU memory on
  std::set<Coll> copies_refused;                            // that this has been said of
  std::atomic<int> gpu_device{-1};                          // decided by the first call on GPU memory; below 0: there was none (gpu_calls.h)
  bool wait_noted = false;  // others can see what this rank waits for
  std::chrono::nanoseconds next_telling{0};  // when the wait under way is told of again to other hosts

  // --- order of calls made on different streams ---
  std::mutex order_mutex;
  std::condition_variable order_changed;
  std::atomic<uint64_t> last_ticket{0};  // given
  std::atomic<uint64_t> served{0};       // finished

  // --- health ---
  std::unique_ptr<ErrorRecord> own_error = std::make_unique<ErrorRecord>();  // why it couldn't be made, or without a segment
  std::atomic<Stage> stage{Stage::making};
  std::atomic<bool> cancelled{false};  // aborted while it was being made
  std::atomic<bool> in_group{false};   // waits for the group_end that makes it
  std::atomic<bool> left{false}, has_boards{false};
  std::atomic<uint64_t> told_entered{0};  // the last call that other hosts were told of
  std::atomic<int64_t> told_at{INT64_MIN / 2};  // when, in std::chrono::steady_clock's nanoseconds
  bool finalizing = false;

  // --- in the background ---
  std::atomic<int> pending{0};  // jobs that aren't finished
  uint8_t barrier_bytes[2] = {1, 0};
  const std::shared_ptr<Background> background = std::make_shared<Background>();

  explicit Impl(bool is_blocking) : blocking(is_blocking) {}
  ~Impl();

  // What rank r publishes; where there is more than one rank.
  RankControl& control(int r) const { return shown->control(r); }
  Board& board(int r, BoardKind kind) const { return shown->board(r, kind); }
  // Its process is no more, whether it had left or not. False where that can't be told.
  bool has_ended(int r) const;

  ErrorRecord& error() const { return segment ? segment->error() : *own_error; }
  bool failed() const { return error().state.load(std::memory_order_relaxed) != 0; }
  bool revoked() const { return error().state.load(std::memory_order_acquire) == 2 && error().revoked != 0; }
  // It will never be ready, and this is why.
  void give_up(const std::exception& why) noexcept;
  bool given_up() const { return stage.load(std::memory_order_acquire) == Stage::making && own_error->state.load(std::memory_order_acquire) != 0; }
  bool made() const { return stage.load(std::memory_order_acquire) != Stage::making; }
  // All is there: from now on calls may be made, unless it was aborted meanwhile.
  void complete();
  // Throws the communicator's error. failed() or given_up() first.
  [[noreturn]] void throw_error() const;
  // Makes this the communicator's error unless it has one, wakes everybody and, if `announce`, tells other hosts.
  void set_error(Result code, const std::string& message, bool announce, bool revoke = false) noexcept;
  std::string rank_name(int r) const;  // "rank 3 (host a, pid 17)"

  void require_own_process() const;  // throws invalid_usage in a forked child
  // Throws unless calls may be made: being made, suspended, destroyed, failed, forked child.
  void require_usable() const {
    const bool usable = stage.load(std::memory_order_acquire) == Stage::ready && fork_generation == muster::fork_generation() && !failed();
    if (!usable) [[unlikely]]
      refuse();
  }
  // The same, whether it is in error or not.
  void require_alive() const;
  // One call at a time: another thread's is an error of the program.
  void begin_call() {
    if (running.exchange(true, std::memory_order_acquire)) [[unlikely]]
      refuse_second_thread();
  }
  [[noreturn]] void refuse_second_thread();
  void reserve_boards();
  // Validates arguments; throws invalid_argument naming the argument.
  void validate(const Call& call) {
    validate_shape(call);
    validate_buffers(call);
  }
  void validate_shape(const Call& call) const;
  void validate_buffers(const Call& call) {
    validate_ranges(call);
    if (call.on_gpu) [[unlikely]]
      require_one_gpu(call);
  }
  void validate_ranges(const Call& call) const;
  // Throws unless all of the call's buffers are memory that the communicator's GPU reaches.
  void require_one_gpu(const Call& call);
  // Whether the last call had this shape, so that it has been validated. For the thread that runs calls.
  bool repeats(const CallShape& shape) const { return last_plan && *last_shape == shape; }

  // That of the last call, or looked up, or made.
  Plan& plan_for(const Call& call) {
    if (repeats(call.shape)) [[likely]] return *last_plan;
    return call.uneven ? uneven_plan_for(call) : even_plan_for(call);
  }
  Plan& even_plan_for(const Call& call);
  Plan& uneven_plan_for(const Call& call);
  // `table`: of an uneven call, `shape` is then that of the even one.
  CompiledPlan build(const CallShape& shape, const Choice& choice, const ChunkTable* table) const;
  std::unique_ptr<CompiledPlan> build_windows(const CallShape& shape, const Choice& choice, const ChunkTable* table);
  // How calls of a shape run that isn't a V-variant's. Throws what choose() throws.
  struct Choices {
    CallShape shape;  // with what a tuner plugin chose
    Choice slots, windows;
  };
  Choices choose_ways(const CallShape& shape) const;
  // How the call that is spelled so runs, and why, for people.
  std::string describe(const std::string& call, const Choice& slots, const Choice& windows) const;
  // The report's row of `call`, which is planned as `shape`; null without a report.
  CallReport::Row* explain(const Call& call, const CallShape& shape, const Choice& slots, const Choice& windows) const;
  void publish(const CallShape& shape, uint64_t fingerprint);
  // What kernels met becomes the communicator's error, and its error ends kernels.
  void check_gpu() noexcept;
  // The call of the number `sequence` has come to its end.
  void publish_end() const {
    if (own_control) own_control->finished.store(sequence, std::memory_order_relaxed);
  }

  // While no call is under way: moves what the network has for this communicator; true if anything was. What breaks
  // becomes its error. For the thread that runs calls.
  bool progress() noexcept { return shown && shown->spans_hosts() && progress_network(); }
  bool progress_network() noexcept;
  FarPuts* puts() const { return transport ? transport->puts() : nullptr; }  // null: all ranks are on one host
  // For its waits; null: all that it waits for rings.
  Waiter::Alarm* alarm() { return shown && shown->spans_hosts() ? family->bell() : nullptr; }

  uint64_t take_ticket() { return ++last_ticket; }
  void refuse() const;
  bool all_served() const { return served.load(std::memory_order_acquire) == last_ticket.load(std::memory_order_relaxed); }
  void await_all();  // also until it is made
  // Around a job that is given to the background.
  void begin_job() { ++pending; }
  void end_job();
  // Tells peers and the helper thread that this rank is gone; once.
  void leave() noexcept;
  void await_turn(uint64_t ticket);
  void end_turn(uint64_t ticket);
};

// Runs what one thread was asked to run at once: each communicator's collectives in order, its messages together,
// communicators side by side. Throws the first error.
struct Batch {
  struct Part {
    std::shared_ptr<Communicator::Impl> comm;
    uint64_t ticket = 0;
    std::vector<Call> collectives;
    std::vector<Call> messages;
    std::vector<std::shared_ptr<const Uneven>> uneven;  // of the collectives
    std::vector<OneSided> one_sided;
  };
  std::vector<Part> parts;
};
void run_batch(Batch& batch);
// The same for the one call that a thread makes outside groups; nothing is allocated.
void run_call(Communicator::Impl& comm, const Call& call);

[[noreturn]] void refuse_empty();
inline const std::shared_ptr<Communicator::Impl>& require(const std::shared_ptr<Communicator::Impl>& impl) {
  if (!impl) [[unlikely]]
    refuse_empty();
  return impl;
}

// An error inside a group loses the whole group: its calls don't run, and the thread's next plain call works.
void abandon_group() noexcept;
// Ends the thread's group, all levels, without running it; what it held, stream by stream.
std::vector<Batch> take_group();
// Throws invalid_argument for a factor of another type than the elements.
Call call_of(Coll coll, const void* send, void* recv, size_t count, DataType type, const ReduceOp& op = {}, int root = 0);
// Validates a call, then runs it, queues it on its stream, or keeps it for the thread's group_end.
void submit(const std::shared_ptr<Communicator::Impl>& comm, const Call& call, HostStream* stream);
void submit_one_sided(const std::shared_ptr<Communicator::Impl>& comm, const OneSided& call, HostStream* stream);

// Runs `check`; what it throws ends the thread's group.
template <class F>
void check_call(F check) {
  try {
    check();
  } catch (...) {
    abandon_group();
    throw;
  }
}

// A call that makes, ends or changes a communicator.
struct LifeStep {
  std::shared_ptr<Communicator::Impl> of;    // whose call it is, in whose order it runs; null: none's
  std::shared_ptr<Communicator::Impl> made;  // what it makes; null: nothing
  std::function<void()> run;
  uint64_t ticket = 0;
};
// Runs it now, in the background of a communicator that isn't blocking, or, inside a group, at group_end.
void perform(LifeStep step);

}  // namespace muster
