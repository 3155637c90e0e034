#include "comm/collective_run.h"

#include <algorithm>
#include <thread>

#include "comm/mismatch.h"

namespace muster {

using Impl = Communicator::Impl;

CollectiveRun::CollectiveRun(Impl& comm, const Call& call) : comm_(comm), call_(call) {
  plan_ = &comm.plan_for(call);
  if (plan_->row) [[unlikely]]
    began_ = std::chrono::steady_clock::now();
  ++comm.sequence;
  fingerprint_ = (plan_->shape_hash ^ comm.sequence * 0x9e3779b97f4a7c15ULL) & ~kMessageBit;
  if (comm.segment) comm.publish(plan_->published, fingerprint_);
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
  run_.emplace(plan, buffers_, &fingerprint_, call_.weight_bits, windows, stream_slots);
  if (run_->done()) finish();
}

InWindows::InWindows(Impl& comm) : flag_(comm.segment ? &comm.segment->control(comm.rank).in_windows : nullptr) {
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
    while (comm.segment->control(r).in_windows.load(std::memory_order_acquire) != 0 &&
           (comm.ranks[static_cast<size_t>(r)].same_process || std::chrono::steady_clock::now() - start < kPatience))
      std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void CollectiveRun::report() {
  const auto took = std::chrono::steady_clock::now() - began_;
  comm_.report->add(in_windows_ ? plan_->row->windows : plan_->row->slots, took);
}

void CollectiveRun::start_exchange() {
  describe_buffers();
  comm_.descriptors.resize(static_cast<size_t>(comm_.size) * sizeof(BufferDescriptor));
  buffers_[kInput] = reinterpret_cast<std::byte*>(&mine_);
  buffers_[kOutput] = comm_.descriptors.data();
  exchanging_ = true;
  run_.emplace(*comm_.exchange, buffers_, &fingerprint_);
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
  in_windows_.emplace(comm_);
  start(*plan_->windows, {comm_.window_input.data(), comm_.window_output.data()}, false);
}

}  // namespace muster
