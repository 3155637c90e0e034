#include "exec/cuda/executor.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/error.h"
#include "base/math.h"
#include "device/cuda/check.h"
#include "exec/cuda/launch.h"

namespace muster::cuda {
namespace {

constexpr size_t kTableAlignment = 16;

// The image's tables one behind the other; tells each one's place.
class TableWriter {
 public:
  template <class T>
  size_t add(const std::vector<T>& table) {
    const size_t at = align_up(bytes_.size(), kTableAlignment);
    const auto* const from = reinterpret_cast<const std::byte*>(table.data());
    bytes_.resize(at);
    bytes_.insert(bytes_.end(), from, from + table.size() * sizeof(T));
    return at;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// As many threads of a block as have an access, of so many bytes, to do.
constexpr uint64_t kVectorAccess = 16, kLineAccess = 8;
uint32_t threads_for(uint64_t bytes, uint64_t access, uint32_t most) {
  constexpr uint64_t kWarp = 32;
  return static_cast<uint32_t>(std::clamp<uint64_t>(align_up(ceil_div(bytes, access), kWarp), kWarp, most));
}

// What a kernel writes into pinned memory.
template <class T>
T load_reported(T& from, std::memory_order order) {
  return std::atomic_ref<T>(from).load(order);
}

}  // namespace

LoadedPlan::LoadedPlan(int device, const KernelImage& image)
    : call_(image.call),
      copies_(plain_copies_of(image)),
      channels_(static_cast<uint32_t>(image.channels.size())),
      longest_pass_(image.longest_pass),
      windows_(image.windows),
      own_lanes_(image.own_lanes),
      kernel_(reduces(image.call.coll) ? reducing_kernel(image.call.type, image.call.op) : nullptr),
      footprint_(footprint_of(image)),
      sent_(image.sent),
      scratch_(device, image.scratch_bytes) {
  if (copies_) return;
  for (const KernelUse& u : image.uses) used_ends_.push_back(u.end);
  std::ranges::sort(used_ends_);
  const auto again = std::ranges::unique(used_ends_);
  used_ends_.erase(again.begin(), again.end());
  TableWriter writer;
  const size_t channels = writer.add(image.channels), loops = writer.add(image.loops),
               steps = writer.add(image.steps), places = writer.add(image.places),
               uses = writer.add(image.uses), lengths = writer.add(image.lengths),
               offsets = writer.add(image.offsets);
  tables_ = DeviceMemory(device, writer.bytes().size());
  tables_.write(0, writer.bytes().data(), writer.bytes().size());
  const std::byte* const base = tables_.data();
  args_.channels = reinterpret_cast<const KernelChannel*>(base + channels);
  args_.loops = reinterpret_cast<const KernelLoop*>(base + loops);
  args_.steps = reinterpret_cast<const KernelStep*>(base + steps);
  args_.places = reinterpret_cast<const KernelPlace*>(base + places);
  args_.uses = reinterpret_cast<const KernelUse*>(base + uses);
  args_.lengths = reinterpret_cast<const uint64_t*>(base + lengths);
  args_.offsets = reinterpret_cast<const uint64_t*>(base + offsets);
  args_.buffers[kScratch] = scratch_.data();
  args_.tile = image.tile;
  args_.lines = image.lines ? 1 : 0;
  args_.element = static_cast<uint32_t>(size_of(image.call.type));
  args_.divisor = image.divisor;
  args_.op = static_cast<uint32_t>(image.call.op);
  args_.channel_count = channels_;
  const Truth truth = reduces(image.call.coll) ? truth_of(image.call.type, image.call.op) : Truth{};
  args_.magnitude = truth.magnitude;
  args_.one = truth.one;
}

KernelExecutor::KernelExecutor(int device, int rank, const MailboxShape& shape)
    : device_(device),
      rank_(rank),
      shape_(shape),
      connections_(static_cast<size_t>(shape.ranks)),
      ends_(device, end_count(shape) * sizeof(KernelEnd)),
      tables_(device),
      report_(device, sizeof(KernelReport)) {
  if (shape.slots < 2 || (shape.slots & (shape.slots - 1)) != 0 || shape.slot_bytes % 128 != 0 ||
      shape.line_bytes % 128 != 0)
    fail(Result::internal_error,
         "{} slots of {} and {} bytes: a power of two of 2 or more, and multiples of 128, are needed",
         shape.slots, shape.slot_bytes, shape.line_bytes);
}

void KernelExecutor::connect(const std::vector<Connection>& connections, uint64_t first) {
  for (int r = 0; r < shape_.ranks; ++r) connect_to(r, connections[static_cast<size_t>(r)], first);
  connected_ = true;
}

void KernelExecutor::connect_to(int peer, const Connection& connection, uint64_t first) {
  Connection& known = connections_[static_cast<size_t>(peer)];
  if (known.there || !connection.there || peer == rank_) return;
  for (const bool sends : {true, false}) {
    const std::vector<KernelEnd> ends =
        ends_with(shape_, rank_, peer, sends, connection.here.get(), connection.there.get(), first);
    ends_.write((sends ? sending_end : receiving_end)(shape_, peer, 0) * sizeof(KernelEnd), ends.data(),
                ends.size() * sizeof(KernelEnd));
  }
  known = connection;
}

void KernelExecutor::connect_end(uint32_t number, const KernelEnd& end) {
  ends_.write(number * sizeof end, &end, sizeof end);
}

KernelArgs KernelExecutor::bind(const BoundCall& call) const {
  const LoadedPlan& plan = *call.plan;
  const Buffers& buffers = call.buffers;
  if (!connected_ || (plan.windows_ && !(buffers.inputs && buffers.outputs)))
    fail(Result::internal_error, "rank {}: {} was started before its peers' memory was known", rank_,
         name_of(plan.call_.coll));
  KernelArgs args = plan.args_;
  args.ends = reinterpret_cast<KernelEnd*>(ends_.data());
  args.report = reinterpret_cast<KernelReport*>(report_.on_device());
  args.buffers[kInput] = static_cast<std::byte*>(const_cast<void*>(buffers.input));
  args.buffers[kOutput] = static_cast<std::byte*>(buffers.output);
  args.windows[kInput] = buffers.inputs;
  args.windows[kOutput] = buffers.outputs;
  args.fingerprint = call.fingerprint;
  args.weight_bits = call.weight.bits;
  args.weight_at = call.weight.at;
  args.slots = shape_.slots;
  args.slot_bytes = shape_.slot_bytes;
  args.line_bytes = shape_.line_bytes;
  return args;
}

void KernelExecutor::run(std::span<const BoundCall> calls, StreamHandle stream) {
  if (calls.size() == 1 && calls[0].plan->copies_) return copy(*calls[0].plan->copies_, calls[0].buffers, stream);
  if (calls.empty() || calls.size() > kMostCallsOfLaunch)
    fail(Result::internal_error, "rank {}: {} collectives in one launch; 1 to {} are possible", rank_, calls.size(), kMostCallsOfLaunch);
  KernelLaunch all;
  all.count = 0;
  const void* kernel = nullptr;
  uint32_t blocks = 0, threads = 0;
  for (const BoundCall& call : calls) {
    const LoadedPlan& plan = *call.plan;
    all.calls[all.count++] = bind(call);
    if (!kernel) kernel = plan.kernel_;
    blocks = std::max(blocks, plan.channels_);
    const uint64_t access = plan.args_.lines != 0 ? kLineAccess : kVectorAccess;
    threads = std::max(threads, threads_for(plan.longest_pass_, access, most_threads));
  }
  const DeviceGuard guard(device_);
  launch(kernel ? kernel : moving_kernel(), all, blocks, threads, stream);
}

void KernelExecutor::copy(const std::vector<PlainCopy>& copies, const Buffers& buffers, StreamHandle stream) const {
  const DeviceGuard guard(device_);
  const auto at = [&](uint32_t buffer, uint64_t offset) {
    return (buffer == kInput ? static_cast<std::byte*>(const_cast<void*>(buffers.input)) : static_cast<std::byte*>(buffers.output)) + offset;
  };
  for (const PlainCopy& c : copies) {
    const std::byte* const from = at(c.from, c.from_offset);
    std::byte* const to = at(c.to, c.to_offset);
    if (from != to)
      check(cudaMemcpyAsync(to, from, c.bytes, cudaMemcpyDefault, stream), "copying {} bytes on {}", c.bytes, describe_device(device_));
  }
}

void KernelExecutor::run(const MessageImage& group, StreamHandle stream) {
  if (group.flows.empty()) return;
  TableWriter writer;
  const size_t flows = writer.add(group.flows), messages = writer.add(group.messages);
  MessageTables::Table& table = tables_.take(writer.bytes().size());
  std::memcpy(table.memory.data(), writer.bytes().data(), writer.bytes().size());
  MessageArgs args{};
  args.flows = reinterpret_cast<const KernelFlow*>(table.memory.on_device() + flows);
  args.messages = reinterpret_cast<const KernelMessage*>(table.memory.on_device() + messages);
  args.ends = reinterpret_cast<KernelEnd*>(ends_.data());
  args.report = reinterpret_cast<KernelReport*>(report_.on_device());
  args.slots = shape_.slots;
  args.slot_bytes = shape_.slot_bytes;
  args.flow_count = static_cast<uint32_t>(group.flows.size());
  const DeviceGuard guard(device_);
  table.captured = is_capturing(stream);
  launch(args, group.blocks(), threads_for(group.longest_move, kVectorAccess, most_threads), stream);
  if (!table.captured) table.read.record(stream);
}

void KernelExecutor::abort() {
  std::atomic_ref<uint32_t>(report().abort).store(1, std::memory_order_release);
}

std::optional<FingerprintMismatch> KernelExecutor::mismatch() const {
  for (ChannelReport& c : report().channels)
    if (load_reported(c.mismatch, std::memory_order_acquire) != 0)
      return FingerprintMismatch{static_cast<int>(c.peer), c.expected, c.found};
  return std::nullopt;
}

std::optional<KernelWait> KernelExecutor::wait() const {
  for (uint32_t i = 0; i < kMostKernelChannels; ++i)
    if (const int64_t mark = load_reported(report().channels[i].waits_for, std::memory_order_relaxed);
        mark > 0)
      return KernelWait{static_cast<int>(mark & ((1 << kWaitedRankBits) - 1)) - 1, i, mark};
  return std::nullopt;
}

}  // namespace muster::cuda
