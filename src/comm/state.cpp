#include "comm/state.h"

#include <sched.h>

#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/math.h"
#include "base/process.h"
#include "comm/life_call.h"
#include "comm/mismatch.h"
#include "comm/places.h"
#include "comm/told.h"
#include "plan/estimate.h"
#include "plan/selection.h"
#include "program/checker.h"

namespace muster {

using Impl = Communicator::Impl;

std::string to_string(const CallShape& s, std::span<const uint64_t> counts) {
  if (const char* life = life_call_in(s)) return life;
  std::string text = fmt::format("{}(", name_of(s.coll));
  if (!is_uneven(s.coll)) text += fmt::format("count {}, ", s.count);
  if (!counts.empty()) text += fmt::format("counts {}, ", to_string(counts));
  text += name_of(s.type);
  if (reduces(s.coll)) text += fmt::format(", {}", name_of(s.op));
  if (rooted(s.coll)) text += fmt::format(", root {}", s.root);
  if (s.allowed) text += ", by " + names_of_allowed(s);
  if (s.channels) text += fmt::format(", {} channel{}", s.channels, s.channels == 1 ? "" : "s");
  return text + ")";
}

std::string to_string(const Call& c) {
  if (c.gpu_group) return "sends and receives on GPU memory";
  if (c.uneven) return to_string(c.shape, c.uneven->agreed_counts(c.shape.coll));
  if (c.shape.coll != Coll::send_recv) return to_string(c.shape);
  return fmt::format("{}(count {}, {}, peer {})", c.is_send ? "send" : "recv", c.shape.count, name_of(c.shape.type), c.peer);
}

// coll 8 bits, type 5, op 5, channels 5, allowed 16, root 24
uint64_t packed(const CallShape& s) {
  static_assert(kDataTypes <= 32 && kRedOps <= 32 && kMostChannels < 32);
  return static_cast<uint64_t>(s.coll) | static_cast<uint64_t>(s.type) << 8 |
         static_cast<uint64_t>(s.op) << 13 | static_cast<uint64_t>(s.channels) << 18 |
         static_cast<uint64_t>(s.allowed) << 24 | static_cast<uint64_t>(static_cast<uint32_t>(s.root)) << 40;
}

CallShape unpacked(uint64_t bits) {
  CallShape s;
  s.coll = static_cast<Coll>(bits & 255);
  s.type = static_cast<DataType>(bits >> 8 & 31);
  s.op = static_cast<RedOp>(bits >> 13 & 31);
  s.channels = static_cast<uint8_t>(bits >> 18 & 31);
  s.allowed = static_cast<decltype(s.allowed)>(bits >> 24 & 0xffff);
  s.root = static_cast<int32_t>(bits >> 40);
  return s;
}

size_t CallShapeHash::operator()(const CallShape& s) const {
  return hash_combine(hash_combine(0, packed(s)), s.count);
}

std::string Impl::rank_name(int r) const {
  const Rank& k = ranks[static_cast<size_t>(r)];
  return fmt::format("rank {} (host {}, pid {})", r, k.host, k.pid);
}

bool Impl::has_ended(int r) const {
  const Rank& k = ranks[static_cast<size_t>(r)];
  if (k.here && !k.start.empty()) return muster::has_ended(k.pid, k.start);
  // Of ranks elsewhere, though their processes may be seen: what they told before they ended comes before this.
  return family->is_dead(family_ranks[static_cast<size_t>(r)]);
}

namespace {

// False: there was an error before.
bool record(ErrorRecord& e, Result code, std::string_view message, bool revoke = false) {
  uint32_t none = 0;
  if (!e.state.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) return false;
  e.code = static_cast<int>(code);
  e.revoked = revoke ? 1 : 0;
  const size_t n = std::min(message.size(), sizeof e.message - 1);
  std::memcpy(e.message, message.data(), n);
  e.message[n] = 0;
  e.state.store(2, std::memory_order_release);
  return true;
}

}  // namespace

void Impl::throw_error() const {
  const ErrorRecord& e = stage.load(std::memory_order_acquire) == Stage::making ? *own_error : error();
  // Another rank may be writing it just now; if that rank died while doing so, the text is lost but not the fact.
  for (int i = 0; i < 100'000 && e.state.load(std::memory_order_acquire) != 2; ++i) sched_yield();
  if (e.state.load(std::memory_order_acquire) != 2)
    throw Error(Result::remote_error, "communicator " + name + ": another rank failed before it could say why");
  throw Error(static_cast<Result>(e.code), e.message);
}

void Impl::give_up(const std::exception& why) noexcept {
  const auto* error = dynamic_cast<const Error*>(&why);
  record(*own_error, error ? error->code() : Result::system_error, why.what());
  {
    const std::lock_guard lock(order_mutex);
  }
  order_changed.notify_all();
}

void Impl::complete() {
  if (wants_report(options, rank)) report = CallReport::make(name, rank);
  stage.store(Stage::ready, std::memory_order_seq_cst);
  {
    const std::lock_guard lock(order_mutex);  // for who waits until it is made
  }
  order_changed.notify_all();
  if (cancelled.load(std::memory_order_seq_cst))
    set_error(Result::remote_error, fmt::format("communicator {}: aborted by {}", name, rank_name(rank)), true);
}

void Impl::set_error(Result code, const std::string& message, bool announce, bool revoke) noexcept {
  if (record(error(), code, message, revoke) && announce) tell_error(*this, code, message, revoke);
  if (GpuRank* const g = gpu.load()) g->abort();
  if (shown) shown->wake_all();
}

void Impl::check_gpu() noexcept {
  GpuRank* const g = gpu.load();
  if (!g) return;
  if (failed()) return g->abort();
  if (const auto m = g->mismatch())
    set_error(Result::invalid_usage,
              m->expected & kMessageBit
                  ? message_mismatch(*this, *m)
                  : fmt::format("communicator {}: calls on GPU memory don't match. {} met a message of another call by {}. Every rank must make "
                                "the same calls, in the same order, with equal counts, types, operations and roots",
                                name, rank_name(rank), rank_name(m->peer)),
              true);
}

bool Impl::progress_network() noexcept {
  try {
    return transport->progress();
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    if (!failed()) set_error(error ? error->code() : Result::system_error, fmt::format("communicator {}: {}", name, e.what()), true);
    return false;
  }
}

void refuse_empty() {
  abandon_group();
  fail(Result::invalid_argument, "an empty Communicator was used. Make one with init, from_environment or init_all");
}

void Impl::require_alive() const {
  if (given_up()) throw_error();
  switch (stage.load(std::memory_order_acquire)) {
    case Stage::making:
      fail(Result::invalid_argument,
           "a communicator was used while it was being made. End the group in which it is being made, or, if it isn't blocking, wait until async_error() "
           "says success");
    case Stage::suspended: fail(Result::invalid_usage, "communicator {}: used while it is suspended. Call resume first, on all ranks", name);
    case Stage::finalized: fail(Result::invalid_usage, "communicator {}: used after it was finalized", name);
    case Stage::destroyed: fail(Result::invalid_argument, "communicator {}: used after it was destroyed", name);
    case Stage::ready: break;
  }
  require_own_process();
}

void Impl::refuse() const {
  require_alive();
  if (failed()) throw_error();
}

void Impl::refuse_second_thread() {
  // The others would wait for the call that is refused here: whose calls are whose can't be told any more.
  const std::string why =
      fmt::format("communicator {}: two threads are making calls on {} at once. Give each thread a communicator of its own", name, rank_name(rank));
  set_error(Result::invalid_usage, why, true);
  throw Error(Result::invalid_usage, why);
}

void Impl::reserve_boards() {
  if (has_boards.load(std::memory_order_relaxed)) return;
  segment->reserve_boards();
  has_boards.store(true, std::memory_order_relaxed);
}

void Impl::require_own_process() const {
  if (fork_generation != muster::fork_generation()) [[unlikely]]
    fail(Result::invalid_usage,
         "communicator {}: used in a process forked from the one that made it (pid {}). Make communicators after fork", name,
         ranks.empty() ? 0 : ranks[static_cast<size_t>(rank)].pid);
}

namespace {

void require_buffer(const void* p, const char* argument, const Call& call, const Impl& comm) {
  if (!p) [[unlikely]]
    fail(Result::invalid_argument, "{} on rank {}: {} is null", to_string(call), comm.rank, argument);
}

// Of the operations that don't go with every type, and what is none.
void require_operation(const CallShape& s) {
  if (static_cast<unsigned>(s.op) >= kRedOps)
    fail(Result::invalid_argument, "{}: operation {} is not a reduction (0..{})", name_of(s.coll), static_cast<int>(s.op), kRedOps - 1);
  if (reduces(s.coll) && !is_defined(s.op, s.type))
    fail(Result::invalid_argument, "{}: {} of {} elements: bitwise operations are for integer types; logical_and, logical_or and logical_xor are for all",
         name_of(s.coll), name_of(s.op), name_of(s.type));
}

void require_addressable(const CallShape& s, uint64_t n) {
  if (s.count > kAddressSpace / size_of(s.type) / n) [[unlikely]]
    fail(Result::invalid_argument, "{}: count {} times {} bytes times {} ranks is more than an address space holds", name_of(s.coll), s.count,
         size_of(s.type), n);
}

void require_root(const Call& call, const Impl& comm) {
  const CallShape& s = call.shape;
  if (rooted(s.coll) && (s.root < 0 || s.root >= comm.size)) [[unlikely]]
    fail(Result::invalid_argument, "{} on rank {}: root {} is not in 0..{}", to_string(call), comm.rank, s.root, comm.size - 1);
}

// Chunks of the send and receive buffers, in units of count.
std::pair<uint64_t, uint64_t> extents(Coll coll, uint64_t n) {
  switch (coll) {
    case Coll::all_reduce:
    case Coll::broadcast:
    case Coll::reduce: return {1, 1};
    case Coll::all_gather:
    case Coll::gather: return {1, n};
    case Coll::reduce_scatter:
    case Coll::scatter: return {n, 1};
    case Coll::all_to_all: return {n, n};
    default: return {1, 1};
  }
}

}  // namespace

void Impl::validate_shape(const Call& call) const {
  const CallShape& s = call.shape;
  const uint64_t element = size_of(s.type);
  if (element == 0) [[unlikely]]
    fail(Result::invalid_argument, "{}: type {} is not an element type (0..{})", name_of(s.coll), static_cast<int>(s.type), kDataTypes - 1);
  if (static_cast<unsigned>(s.op) > static_cast<unsigned>(RedOp::pre_mul_sum)) [[unlikely]]
    require_operation(s);
  const auto n = static_cast<uint64_t>(size);
  if (s.coll >= Coll::send_recv) [[unlikely]] {
    if (is_uneven(s.coll)) {
      require_root(call, *this);
      require_own_part(call, *this);
      return;
    }
    require_addressable(s, n);
    if (call.peer < 0 || call.peer >= size)
      fail(Result::invalid_argument, "{} on rank {}: peer {} is not in 0..{}", to_string(call), rank, call.peer, size - 1);
    return;
  }
  require_addressable(s, n);
  require_root(call, *this);
}

void Impl::validate_ranges(const Call& call) const {
  const CallShape& s = call.shape;
  if (s.coll >= Coll::send_recv) [[unlikely]] {
    if (is_uneven(s.coll)) return require_buffers(call, *this);
    if (s.count) require_buffer(call.is_send ? call.send : call.recv, "buffer", call, *this);
    return;
  }
  if (s.count == 0) return;
  const bool at_root = !rooted(s.coll) || s.root == rank;
  const bool sends = at_root || s.coll == Coll::reduce || s.coll == Coll::gather;
  const bool receives = at_root || s.coll == Coll::broadcast || s.coll == Coll::scatter;
  if (sends) require_buffer(call.send, "send buffer", call, *this);
  if (receives) require_buffer(call.recv, "receive buffer", call, *this);
  if (!sends || !receives) return;

  const auto [sent, received] = extents(s.coll, static_cast<uint64_t>(size));
  const uint64_t chunk = s.count * size_of(s.type);
  const auto* a = static_cast<const std::byte*>(call.send);
  const auto* b = static_cast<const std::byte*>(call.recv);
  if (a + sent * chunk <= b || b + received * chunk <= a) return;
  // Overlapping: only the in-place form is defined.
  const auto own = static_cast<uint64_t>(rank);
  const std::byte* in_place = sent == received ? a : sent > received ? a + own * chunk : b + own * chunk;
  const bool ok = sent >= received ? b == in_place : a == in_place;
  if (!ok) [[unlikely]]
    fail(Result::invalid_argument,
         "{} on rank {}: send buffer {} and receive buffer {} overlap by other than the in-place form of this collective", to_string(call), rank,
         call.send, call.recv);
}

void Impl::publish(const CallShape& s, uint64_t fingerprint) {
  own_control->ledger[sequence % kLedgerEntries].write({sequence, packed(s), s.count, fingerprint});
  own_control->entered.store(sequence, std::memory_order_relaxed);
}

void Impl::await_turn(uint64_t ticket) {
  if (served.load(std::memory_order_acquire) + 1 == ticket) return;
  std::unique_lock lock(order_mutex);
  order_changed.wait(lock, [&] { return served.load(std::memory_order_acquire) + 1 == ticket; });
}

void Impl::await_all() {
  std::unique_lock lock(order_mutex);
  order_changed.wait(lock, [&] {
    return all_served() && pending.load() == 0 && (stage.load() != Stage::making || given_up());
  });
}

void Impl::end_job() {
  {
    const std::lock_guard lock(order_mutex);
    --pending;
  }
  order_changed.notify_all();
}

void Impl::end_turn(uint64_t ticket) {
  {
    std::lock_guard lock(order_mutex);
    served.store(ticket, std::memory_order_release);
  }
  order_changed.notify_all();
}

std::unique_ptr<CompiledPlan> Impl::build_windows(const CallShape& shape, const Choice& choice, const ChunkTable* table) {
  const bool inside_hosts = choice.algorithm->by_host;
  if (!(inside_hosts ? host_exchange : exchange)) prepare_windows(*this, inside_hosts);
  return std::make_unique<CompiledPlan>(build(shape, choice, table));
}

CompiledPlan Impl::build(const CallShape& shape, const Choice& choice, const ChunkTable* table) const {
  const auto program = [&](int r) { return program_of(choice, {size, r, shape.root, inputs.placement.get()}); };
  if (options.flag("MUSTER_CHECK")) {
    std::vector<Program> all;
    for (int r = 0; r < size; ++r) all.push_back(program(r));
    if (const CheckResult result = check(all); !result.ok)
      fail(Result::internal_error, "MUSTER_CHECK=1: {} for {} is wrong: {}", choice.algorithm->name, to_string(shape), result.message);
    log_info(Topic::tuning, "communicator {}: {} for {} on {} ranks is proved right", name, choice.algorithm->name, to_string(shape), size);
  }
  return compile(program(rank), shape, choice, transport.get(), table);
}

Impl::Choices Impl::choose_ways(const CallShape& shape) const {
  Choices c{tuner ? tuner->tuned(shape, inputs) : shape, {}, {}};
  c.slots = choose(c.shape, inputs);
  c.windows = choose_windows(c.shape, inputs);
  if (c.shape.allowed != shape.allowed)
    c.slots.reason = "chosen by " + tuner->name();
  else if (c.shape.channels != shape.channels)
    c.slots.reason += "; channels chosen by " + tuner->name();
  return c;
}

std::string Impl::describe(const std::string& call, const Choice& slots, const Choice& windows) const {
  const auto text_of = [](const Choice& c) {
    return fmt::format("{} ({}), {} channel{}, tile {} B{}", c.algorithm->name, c.algorithm->idea, c.channels, c.channels == 1 ? "" : "s",
                       c.tile_bytes, c.streamed ? ", non-temporal stores" : "");
  };
  std::string text = fmt::format("{}, {} ranks: {}: {}", call, size, text_of(slots), slots.reason);
  if (windows.algorithm) text += fmt::format("; when all buffers are from mem_alloc: {}: {}", text_of(windows), windows.reason);
  return text;
}

CallReport::Row* Impl::explain(const Call& call, const CallShape& shape, const Choice& slots, const Choice& windows) const {
  if (!report) return nullptr;
  const auto way = [&](const Choice& c) {
    return c.algorithm ? CallReport::Way{c.algorithm->name, estimate_us(*c.algorithm, shape, inputs), {}} : CallReport::Way{};
  };
  std::string text = to_string(call);
  if (is_pairwise(call.shape.coll)) text += fmt::format(" of {} elements on this rank", call.uneven->elements());
  return report->row(text, describe(text, slots, windows), way(slots), way(windows));
}

Impl::Plan& Impl::even_plan_for(const Call& call) {
  const CallShape& shape = call.shape;
  auto it = plans.find(shape);
  if (it == plans.end()) {
    // All ranks make the same calls, so they forget alike; what matters is only that memory stays bounded.
    constexpr size_t kMostPlans = 1024;
    if (plans.size() >= kMostPlans) {
      plans.clear();
      last_plan = nullptr;
      last_shape = nullptr;
    }
    auto p = std::make_unique<Plan>();
    const auto [published, slots, windows] = choose_ways(shape);  // a refusal is the same on all ranks
    try {
      p->slots = build(shape, slots, nullptr);
      if (windows.algorithm) p->windows = build_windows(shape, windows, nullptr);
    } catch (const Error& e) {
      set_error(e.code(), e.what(), true);  // it may be this rank's trouble only, and the others must not wait
      throw;
    }
    if (published.allowed || published.channels)
      log_info(Topic::tuning, "communicator {}: {}", name, describe(to_string(published), slots, windows));
    p->published = published;
    p->shape_hash = CallShapeHash()(published);
    p->row = explain(call, shape, slots, windows);
    it = plans.emplace(shape, std::move(p)).first;
  }
  last_shape = &it->first;
  last_plan = it->second.get();
  return *last_plan;
}

Impl::Plan& Impl::uneven_plan_for(const Call& call) {
  const CallShape& shape = call.shape;
  const ChunkTable& table = call.uneven->table;
  const bool pairwise = is_pairwise(shape.coll);
  uint64_t hash = CallShapeHash()(shape);
  const uint64_t shape_hash = hash;
  if (pairwise)
    for (const auto* chunks : {&table.input, &table.output})
      for (const ChunkTable::Chunk& c : *chunks) hash = hash_combine(hash, c.count);

  auto& known = uneven_plans[pairwise];
  constexpr size_t kMostPlans = 256;
  if (known.size() >= kMostPlans && !known.contains(hash)) known.clear();
  auto& entry = known[hash];
  if (!entry) entry = std::make_unique<UnevenPlan>();
  if (entry->shape == shape && entry->table == table) return entry->plan;

  // Displacements are each rank's own affair: with others the plan is made again, but what ranks count alike stays.
  const auto [alike, average, slots, windows] = choose_uneven(shape, call.uneven->elements(), inputs);
  try {
    entry->plan.slots = build(alike, slots, &table);
    entry->plan.windows = windows.algorithm ? build_windows(alike, windows, &table) : nullptr;
  } catch (const Error& e) {
    known.erase(hash);
    set_error(e.code(), e.what(), true);
    throw;
  }
  entry->plan.published = shape;
  entry->plan.shape_hash = shape_hash;
  entry->plan.row = explain(call, average, slots, windows);
  entry->shape = shape;
  entry->table = table;
  return entry->plan;
}

}  // namespace muster
