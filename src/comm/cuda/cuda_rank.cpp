#include "comm/cuda/cuda_rank.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/math.h"
#include "comm/cuda/allocations.h"
#include "device/cuda/check.h"
#include "plan/planner.h"

namespace muster::cuda {
namespace {

// Blocks of a rank's kernel, and so connections with each peer: enough for a link, and few enough that eight
// ranks fit one GPU.
constexpr int kMostBlocks = 8;
constexpr uint32_t kSlotsOfConnection = 4;
constexpr size_t kSlotOfConnection = 64 << 10;

// With few peers several blocks move what goes to each.
int message_lanes(int ranks) { return ranks <= 2 ? 4 : ranks <= 4 ? 2 : 1; }

MailboxShape mailbox_shape(int ranks) {
  return {.ranks = ranks,
          .lanes = kMostBlocks,
          .message_lanes = message_lanes(ranks),
          .slots = kSlotsOfConnection,
          .slot_bytes = kSlotOfConnection};
}

PlanInputs inputs_for_kernels(PlanInputs inputs) {
  inputs.lanes = kMostBlocks;
  inputs.most_channels = inputs.most_channels ? std::min(inputs.most_channels, kMostBlocks) : kMostBlocks;
  inputs.cores = kMostBlocks * inputs.nranks;  // a channel has a multiprocessor to itself
  inputs.slot_bytes = inputs.message_bytes = kSlotOfConnection;
  inputs.windows = inputs.same_process = false;
  inputs.tuned = nullptr;  // what was measured is host memory
  return inputs;
}

class Library final : public GpuLibrary {
 public:
  bool holds(const void* p) const override {
    const MemoryKind kind = cuda::inspect(p).kind;
    return kind == MemoryKind::device || kind == MemoryKind::managed;
  }
  GpuPointer inspect(const void* p) const override {
    const PointerInfo info = cuda::inspect(p);
    using Kind = GpuPointer::Kind;
    return {info.kind == MemoryKind::host     ? Kind::host
            : info.kind == MemoryKind::device ? Kind::device
                                              : Kind::any,
            info.device};
  }
  std::string describe(int device) const override { return describe_device(device); }
  int current() const override { return current_device(); }
  std::unique_ptr<GpuRank> make_rank(GpuSetting setting, const PlanInputs& inputs,
                                     int device) const override {
    return std::make_unique<CudaRank>(std::move(setting), inputs, device);
  }
  void* allocate(size_t bytes) const override { return allocate_gpu_memory(bytes); }
  void release(void* p) const override { release_gpu_memory(p); }
};

}  // namespace

size_t CudaRank::ShapeHash::operator()(const CallShape& s) const {
  const uint64_t kind = static_cast<uint64_t>(s.coll) | static_cast<uint64_t>(s.type) << 8 |
                        static_cast<uint64_t>(s.op) << 16 | static_cast<uint64_t>(s.allowed) << 24 |
                        static_cast<uint64_t>(s.channels) << 40;
  return hash_combine(hash_combine(kind, static_cast<uint64_t>(s.root)), s.count);
}

CudaRank::CudaRank(GpuSetting setting, const PlanInputs& inputs, int device)
    : setting_(std::move(setting)),
      device_(device),
      inputs_(inputs_for_kernels(inputs)),
      shape_(mailbox_shape(inputs.nranks)),
      household_(Household::of(setting_.communicator)),
      meeting_(std::make_unique<Meeting>(setting_, device, shape_, *household_)),
      executor_(device, setting_.rank, shape_),
      joined_(device),
      last_(device) {
  household_->enter();
  if (setting_.network.network)
    bridge_ = std::make_unique<NetworkBridge>(setting_, device, shape_, [this] {
      const LeavesCapturesAlone relaxed;
      return !last_.reached();
    });
}

void CudaRank::leave() noexcept {
  if (std::exchange(has_left_, true)) return;
  try {
    if (launched_) last_.synchronize();
  } catch (const std::exception&) {  // a broken context: nothing runs there any more
  }
  if (bridge_) bridge_->finish();
  executor_.disconnect();
  meeting_.reset();
}

// Other processes' GPUs may store into this one's mailboxes as long as their kernels run.
bool CudaRank::others_have_gone() const {
  for (size_t r = 0; r < setting_.peers.size(); ++r)
    if (setting_.peers[r].shares_memory && !setting_.peers[r].same_process &&
        !setting_.gone(static_cast<int>(r)))
      return false;
  return true;
}

CudaRank::~CudaRank() {
  leave();
  std::vector<Reached> last = household_->leave();
  if (last.empty()) return;
  constexpr int kPatience = 1000;  // milliseconds
  for (int i = 0; i < kPatience && !others_have_gone(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (others_have_gone()) return;
  log_info(Topic::p2p,
           "communicator {}: other processes haven't left it, so the GPU memory that they may write to is "
           "kept until this process ends",
           setting_.name);
  (void)new std::vector<Reached>(std::move(last));
}

std::vector<std::byte> CudaRank::next_card() { return meeting_->next_card(); }

void CudaRank::hear(std::span<const std::byte> cards) {
  if (!meeting_->hear(cards)) return;
  executor_.connect(meeting_->connections());
  meeting_.reset();
}

const LoadedPlan& CudaRank::plan_for(const GpuCall& call) {
  const auto load = [&](const CallShape& shape, const Choice& choice) {
    const Program program =
        program_of(choice, {inputs_.nranks, setting_.rank, shape.root, inputs_.placement.get()});
    return std::make_unique<LoadedPlan>(
        device_, compile_for_kernels(program, shape, choice.tile_bytes, shape_, call.table));
  };
  if (!call.table) {
    auto& plan = plans_[call.shape];
    if (!plan) plan = load(call.shape, choose(call.shape, inputs_));
    return *plan;
  }
  std::vector<UnevenPlan>& known = uneven_plans_[call.shape];
  for (const UnevenPlan& u : known)
    if (u.table == *call.table) return *u.plan;
  const UnevenChoice choice = choose_uneven(call.shape, call.elements, inputs_);
  known.push_back({*call.table, load(choice.alike, choice.slots)});
  return *known.back().plan;
}

void CudaRank::reach_hosts(std::span<const uint32_t> ends) {
  for (const uint32_t e : ends)
    if (const auto end = bridge_->open(e)) executor_.connect_end(e, *end);
}

void CudaRank::begin_on(StreamHandle stream) {
  if (launched_ && stream != last_stream_ && !is_capturing(stream)) last_.hold_back(stream);
}

void CudaRank::end_on(StreamHandle stream) {
  const bool captured = is_capturing(stream);
  if (!captured) {
    last_.record(stream);
    last_stream_ = stream;
    launched_ = true;
  }
  if (bridge_) bridge_->wake(captured);
}

void CudaRank::launch(const GpuCall& call) {
  const LoadedPlan& plan = plan_for(call);
  if (bridge_) reach_hosts(plan.ends());
  begin_on(call.stream);
  executor_.run(plan, {call.send, call.recv}, call.fingerprint, {call.weight_bits, call.weight_at},
                call.stream);
  end_on(call.stream);
}

void CudaRank::launch(const GpuGroup& group) {
  const StreamHandle stream = group.streams.at(0);
  begin_on(stream);
  const std::span others = std::span(group.streams).subspan(1);
  for (const StreamHandle other : others) {
    joined_.record(other);
    joined_.hold_back(stream);
  }
  const MessageImage image = image_of(group.messages, setting_.rank, shape_);
  if (bridge_) reach_hosts(image.ends());
  executor_.run(image, stream);
  if (!others.empty()) joined_.record(stream);
  for (const StreamHandle other : others) joined_.hold_back(other);
  end_on(stream);
}

const std::byte* CudaRank::copy_of(const void* input, uint64_t bytes, StreamHandle stream) {
  if (copies_.empty() || copies_.back().size() < bytes)
    copies_.emplace_back(device_, std::max(bytes, copies_.empty() ? 0 : 2 * copies_.back().size()));
  begin_on(stream);
  const DeviceGuard guard(device_);
  check(cudaMemcpyAsync(copies_.back().data(), input, bytes, cudaMemcpyDeviceToDevice, stream),
        "copying {} bytes on {}", bytes, describe_device(device_));
  end_on(stream);
  return copies_.back().data();
}

}  // namespace muster::cuda

namespace muster {

const GpuLibrary* find_gpus();
const GpuLibrary* find_gpus() {
  static const cuda::Library library;
  return cuda::devices().count > 0 ? &library : nullptr;
}

}  // namespace muster
