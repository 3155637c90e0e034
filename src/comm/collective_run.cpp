#include "comm/collective_run.h"

#include <algorithm>
#include <thread>

#include "comm/gpu_calls.h"
#include "comm/gpu_setting.h"
#include "comm/mismatch.h"
#include "comm/places.h"

namespace muster {

using Impl = Communicator::Impl;

namespace {

// What goes wrong here is this rank's trouble only, and the others must not wait.
template <class F>
void or_all_fail(Impl& comm, F f) {
  try {
    f();
  } catch (const Error& e) {
    comm.set_error(e.code(), e.what(), true);
    throw;
  }
}

}  // namespace

void launch_added(Impl& comm) {
  if (comm.gpu_owner) or_all_fail(comm, [&] { comm.gpu_owner->launch_added(); });
}

CollectiveRun::CollectiveRun(Impl& comm, const Call& call) : comm_(comm), call_(call) {
  if (call.on_gpu) [[unlikely]] {
    start_on_gpu();
    return;
  }
  plan_ = &comm.plan_for(call);
  if (plan_->row) [[unlikely]]
    began_ = std::chrono::steady_clock::now();
  ++comm.sequence;
  fingerprint_ = (plan_->shape_hash ^ comm.sequence * 0x9e3779b97f4a7c15ULL) & ~kMessageBit;
  if (comm.own_control) comm.publish(plan_->published, fingerprint_);
  if (call.shape.count == 0) {
    finish();
    return;
  }
  if (plan_->windows && plan_->skip == 0) {
    start_exchange();
  } else {
    if (plan_->skip) --plan_->skip;
    start_slots();
  }
}

// The first call tells all ranks where the others' mailboxes are; from then on a call is over when it is on its stream.
void CollectiveRun::start_on_gpu() {
  comm_.check_gpu();
  comm_.require_usable();
  constexpr uint64_t kOnGpu = 0x6770755f6d656d00;  // a rank that is on host memory made another call
  if (!call_.gpu_group) {
    copies_ = std::make_unique<CopyPlan>(plan_copies(comm_, call_));
    ++comm_.sequence;
    fingerprint_ = ((CallShapeHash()(call_.shape) ^ kOnGpu ^ copies_->mark()) ^ comm_.sequence * 0x9e3779b97f4a7c15ULL) & ~kMessageBit;
    if (comm_.own_control) comm_.publish(call_.shape, fingerprint_);
    if (call_.shape.count == 0) {
      comm_.publish_end();
      return;
    }
  }
  connecting_ = kOnGpu;
  or_all_fail(comm_, [&] { require_gpu_rank(comm_); });
  connect_gpu();
}

// Asks for as many rounds of cards as it takes.
void CollectiveRun::connect_gpu() {
  GpuRank& gpu = *comm_.gpu_owner;
  while (!gpu.connected()) {
    or_all_fail(comm_, [&] {
      comm_.gpu_card = gpu.next_card();
      if (comm_.size == 1)
        gpu.hear(comm_.gpu_card);
      else if (!comm_.gpu_exchange)
        comm_.gpu_exchange = make_exchange(comm_, comm_.gpu_card.size());
    });
    if (comm_.size > 1) return exchange(*comm_.gpu_exchange, comm_.gpu_card.data(), comm_.gpu_card.size());
  }
  launch_on_gpu();
}

void CollectiveRun::launch_copies() {
  GpuRank& gpu = *comm_.gpu_owner;
  const auto* input = static_cast<const std::byte*>(call_.send);
  // Peers write to the receive buffer at once.
  if (call_.shape.coll == Coll::all_to_all && in_place()) input = gpu.copy_of(input, buffer_bytes().input, call_.gpu_stream);
  comm_.sent_bytes.add(gpu.launch({copies_of(comm_, call_, *copies_, input), fingerprint_, call_.gpu_stream}));
}

void CollectiveRun::launch_on_gpu() {
  or_all_fail(comm_, [&] {
    GpuRank& gpu = *comm_.gpu_owner;
    if (call_.gpu_group) return comm_.sent_bytes.add(gpu.launch(*call_.gpu_group));
    if (copies_->to.window && !gpu.all_reach_all())
      *copies_ = {{}, "not every GPU reaches every other one's memory (NCCL_DEBUG=INFO, topic P2P, says why)"};
    explain_copies(comm_, call_, *copies_);
    if (copies_->to.window) return launch_copies();
    if (is_uneven(call_.shape.coll) && !reduces(call_.shape.coll)) {
      const auto* input = static_cast<const std::byte*>(call_.send);
      if (in_place() && is_pairwise(call_.shape.coll)) input = gpu.copy_of(input, buffer_bytes().input, call_.gpu_stream);
      return comm_.sent_bytes.add(gpu.launch(messages_of(call_, input, comm_, fingerprint_)));
    }
    const ChunkTable* const table = call_.uneven ? &call_.uneven->table : nullptr;
    comm_.sent_bytes.add(gpu.add({call_.shape, table, table ? call_.uneven->elements() : 0, call_.send, call_.recv,
                                  call_.weight_bits, call_.weight_at, fingerprint_, call_.gpu_stream}));
  });
  run_.reset();
  comm_.publish_end();
}

void CollectiveRun::start_slots() {
  trying_ = (plan_->slots.streams & kStreamSlot) != 0;
  start(plan_->slots, {}, trying_ && plan_->trial.begin());
}

void CollectiveRun::start(const CompiledPlan& plan, WindowTable windows, bool stream_slots) {
  buffers_[kInput] = static_cast<std::byte*>(const_cast<void*>(call_.send));
  buffers_[kOutput] = static_cast<std::byte*>(call_.recv);
  if (!plan.choice.algorithm->in_place && in_place()) [[unlikely]] {
    const std::byte* input = buffers_[kInput];
    comm_.input_copy.assign(input, input + buffer_bytes().input);
    buffers_[kInput] = comm_.input_copy.data();
  }
  if (plan.scratch_bytes) {
    if (comm_.scratch.size() < plan.scratch_bytes) comm_.scratch.resize(plan.scratch_bytes);
    buffers_[kScratch] = comm_.scratch.data();
  }
  comm_.sent_bytes.add(plan.bytes_sent);
  run_.emplace(plan, buffers_, &fingerprint_, call_.weight_bits, windows, stream_slots);
  if (run_->done()) finish();
}

InWindows::InWindows(Impl& comm) : flag_(comm.own_control ? &comm.own_control->in_windows : nullptr) {
  if (!flag_) return;
  before_ = flag_->exchange(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!comm.failed()) return;
  flag_->store(before_, std::memory_order_release);
  comm.throw_error();
}
InWindows::~InWindows() {
  if (flag_) flag_->store(before_, std::memory_order_release);
}

void await_others_leaving(const Impl& comm) noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // A thread of this process is out within a tile. Another process may be stopped: what it does later to memory of
  // mem_alloc harms nothing else.
  constexpr auto kPatience = std::chrono::seconds(1);
  const auto start = std::chrono::steady_clock::now();
  for (int r = 0; r < comm.size; ++r)
    while (comm.control(r).in_windows.load(std::memory_order_acquire) != 0 &&
           (comm.ranks[static_cast<size_t>(r)].same_process || std::chrono::steady_clock::now() - start < kPatience))
      std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void CollectiveRun::report() {
  const auto took = std::chrono::steady_clock::now() - began_;
  comm_.report->add(in_windows_ ? plan_->row->windows : plan_->row->slots, took);
}

void CollectiveRun::start_exchange() {
  describe_buffers();
  exchange(*(plan_->windows->choice.algorithm->by_host ? comm_.host_exchange : comm_.exchange), &mine_, sizeof mine_);
}

void CollectiveRun::exchange(const CompiledPlan& plan, void* mine, size_t bytes) {
  comm_.descriptors.resize(static_cast<size_t>(comm_.size) * bytes);
  buffers_[kInput] = static_cast<std::byte*>(mine);
  buffers_[kOutput] = comm_.descriptors.data();
  exchanging_ = true;
  run_.emplace(plan, buffers_, call_.on_gpu ? &connecting_ : &fingerprint_);
}

CollectiveRun::BufferBytes CollectiveRun::buffer_bytes() const {
  const CallShape& s = call_.shape;
  if (const Uneven* u = call_.uneven) return {u->input_end * size_of(s.type), u->output_end * size_of(s.type)};
  const uint64_t chunk = s.count * size_of(s.type);
  const auto n = static_cast<uint64_t>(comm_.size);
  const bool root = !rooted(s.coll) || s.root == comm_.rank;
  uint64_t in = chunk, out = chunk;
  if (s.coll == Coll::reduce_scatter || s.coll == Coll::all_to_all || s.coll == Coll::scatter) in *= n;
  if (s.coll == Coll::all_gather || s.coll == Coll::all_to_all || s.coll == Coll::gather) out *= n;
  if (!root && (s.coll == Coll::broadcast || s.coll == Coll::scatter)) in = 0;
  if (!root && (s.coll == Coll::reduce || s.coll == Coll::gather)) out = 0;
  return {in, out};
}

bool CollectiveRun::in_place() const {
  const auto [in, out] = buffer_bytes();
  const auto *a = static_cast<const std::byte*>(call_.send), *b = static_cast<const std::byte*>(call_.recv);
  return in && out && a < b + out && b < a + in;
}

void CollectiveRun::describe_buffers() {
  mine_ = {};
  if (!plan_->windows->choice.algorithm->in_place && in_place()) return;  // peers would read what was overwritten
  const auto [in, out] = buffer_bytes();
  if (comm_.inputs.same_process) {
    mine_ = {reinterpret_cast<uint64_t>(call_.send), reinterpret_cast<uint64_t>(call_.recv), 1};
    return;
  }
  const Arena& arena = Arena::of_process();
  const auto a = in ? arena.offset_of(call_.send, in) : 0;
  const auto b = out ? arena.offset_of(call_.recv, out) : 0;
  if (a && b) mine_ = {*a, *b, 1};
}

void CollectiveRun::finish_exchange() {
  exchanging_ = false;
  if (call_.on_gpu) {
    or_all_fail(comm_, [&] { comm_.gpu_owner->hear(comm_.descriptors); });
    return connect_gpu();
  }
  const auto* all = reinterpret_cast<const BufferDescriptor*>(comm_.descriptors.data());
  // Whose buffers the plan uses.
  const std::vector<int>* const host_of = plan_->windows->choice.algorithm->by_host ? &comm_.inputs.placement->host_of : nullptr;
  const auto used = [&](int r) { return !host_of || (*host_of)[static_cast<size_t>(r)] == (*host_of)[static_cast<size_t>(comm_.rank)]; };
  bool windows = true;
  for (int r = 0; r < comm_.size; ++r) windows = windows && (!used(r) || all[r].is_window);
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
    if (!used(r)) continue;
    const auto rank = static_cast<size_t>(r);
    comm_.window_input[rank] = comm_.address_here(rank, all[r].input);
    comm_.window_output[rank] = comm_.address_here(rank, all[r].output);
  }
  in_windows_.emplace(comm_);
  start(*plan_->windows, {comm_.window_input.data(), comm_.window_output.data()}, false);
}

}  // namespace muster
