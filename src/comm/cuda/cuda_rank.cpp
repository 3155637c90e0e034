#include "comm/cuda/cuda_rank.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/log_options.h"
#include "base/math.h"
#include "comm/cuda/allocations.h"
#include "comm/cuda/shared_memory.h"
#include "comm/mismatch.h"
#include "comm/nccl_algo.h"
#include "device/cuda/check.h"
#include "exec/cuda/fusion.h"
#include "plan/planner.h"
#include "plan/selection.h"

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

// `blocks`: that a rank's kernel may have.
GpuPlanInputs inputs_for_kernels(const PlanInputs& inputs, const MailboxShape& shape, const Links& links,
                                 int blocks) {
  GpuPlanInputs in{inputs, shape.line_bytes / kLineBytes * kLineData, links, inputs.tuned};
  PlanInputs& p = in.plan;
  p.lanes = std::min(shape.lanes, blocks);
  p.cores = kMostBlocks * p.nranks;  // a channel has a multiprocessor to itself
  p.slot_bytes = p.message_bytes = shape.slot_bytes;
  p.windows = p.same_process = false;
  p.tuned = nullptr;  // it chooses ways of host memory
  std::erase_if(p.custom, [&](const auto& custom) {
    const int wanted = std::max(custom->lanes, custom->channels);
    if (wanted > p.lanes)
      log_once({true, "MUSTER_PROGRAM",
                fmt::format("MUSTER_PROGRAM: {} ({}) isn't run on GPU memory: it has {} channels, and "
                            "kernels of these ranks "
                            "have {} at most",
                            custom->algorithm.name, custom->file, wanted, p.lanes)});
    return wanted > p.lanes;
  });
  return in;
}

// Ranks that choose differently make different calls.
uint64_t mark_of(const GpuChoice& g) {
  uint64_t mark = hash_combine(static_cast<uint64_t>(g.protocol), static_cast<uint64_t>(g.choice.channels));
  for (const char* c = g.choice.algorithm->name; *c; ++c)
    mark = hash_combine(mark, static_cast<uint64_t>(*c));
  return mark & ~kMessageBit;
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
  GpuOffer share(const void* p, size_t bytes) const override { return share_memory(p, bytes); }
  std::shared_ptr<std::byte> reach(const std::string& shared, int device, const std::string& whom) const override {
    return reach_shared(shared, device, whom);
  }
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
      inputs_(inputs),
      shape_(mailbox_shape(inputs.nranks)),
      household_(Household::of(setting_.communicator)),
      meeting_(std::make_unique<Meeting>(setting_, device, shape_, *household_)),
      executor_(device, setting_.rank, shape_),
      tables_(setting_, device, *household_),
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
    while (launched_ && tables_.executor() && !last_.reached()) {
      if (aborted_.load(std::memory_order_acquire)) tables_.executor()->release();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
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
  most_blocks_ = static_cast<uint32_t>(std::min(meeting_->blocks(), kMostBlocks));
  plan_inputs_ = inputs_for_kernels(inputs_, shape_, meeting_->links(), meeting_->blocks());
  if (setting_.network.network) plan_inputs_.ll_bytes = 0;  // networks carry messages that are counted
  rings_.emplace(setting_.name, setting_.cluster, meeting_->places());
  all_reach_all_ = meeting_->all_reach_all();
  meeting_.reset();
}

CudaRank::Plan CudaRank::make_plan(const CallShape& named, const CallShape& call,
                                   const ChunkTable* table) {
  GpuWish wish{call, nccl_protocols_for(call.coll, setting_.protocols), {}};
  if (setting_.tune && !table) wish = setting_.tune(call, plan_inputs_, wish.protocols);
  GpuChoice g = choose_on_gpus(wish.call, plan_inputs_, wish.protocols);
  if (!wish.by.empty()) g.choice.reason = "chosen by " + wish.by;
  const Placement* placement = inputs_.placement.get();
  if (const GpuRings::Found* found = rings_->of(g.choice)) {
    placement = &found->placement;
    g.choice.reason += "; " + found->text;
  }
  const Program program = program_of(g.choice, {inputs_.nranks, setting_.rank, call.root, placement});
  Plan plan{std::make_unique<LoadedPlan>(
                device_, compile_for_kernels(program, call, g.choice.tile_bytes, shape_, table, g.protocol)),
            mark_of(g), {}};
  for (size_t r = 0; r < plan.loaded->sent().size(); ++r) count(plan.sent, static_cast<int>(r), plan.loaded->sent()[r]);
  setting_.planned(named, g);
  return plan;
}

const CudaRank::Plan& CudaRank::plan_for(const GpuCall& call) {
  if (!call.table) {
    Plan& plan = plans_[call.shape];
    if (!plan.loaded) plan = make_plan(call.shape, call.shape, nullptr);
    return plan;
  }
  std::vector<UnevenPlan>& known = uneven_plans_[call.shape];
  for (const UnevenPlan& u : known)
    if (u.table == *call.table) return u.plan;
  const UnevenChoice choice = choose_uneven(call.shape, call.elements, plan_inputs_.plan);
  CallShape alike = choice.alike;
  alike.allowed = only(*choice.slots.algorithm);  // which takes parts of any length
  known.push_back({*call.table, make_plan(call.shape, alike, call.table)});
  return known.back().plan;
}

void CudaRank::count(BytesSent& sent, int peer, uint64_t bytes) const {
  if (peer == setting_.rank) return;
  (setting_.peers[static_cast<size_t>(peer)].shares_memory ? sent.gpu : sent.network) += bytes;
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

BytesSent CudaRank::add(const GpuCall& call) {
  const Plan& plan = plan_for(call);
  if (bridge_) reach_hosts(plan.loaded->ends());
  const KernelExecutor::BoundCall bound{plan.loaded.get(),
                                        {call.send, call.recv},
                                        call.fingerprint ^ plan.mark,
                                        {call.weight_bits, call.weight_at}};
  if (call.stream != added_to_ || !fits(added_, bound)) launch_added();
  added_.push_back(bound);
  added_to_ = call.stream;
  return plan.sent;
}

void CudaRank::launch_added() {
  if (added_.empty()) return;
  launching_.clear();
  launching_.swap(added_);
  begin_on(added_to_);
  executor_.run(launching_, added_to_);
  end_on(added_to_);
}

BytesSent CudaRank::launch(const GpuGroup& group) {
  launch_added();
  const StreamHandle stream = group.streams.at(0);
  begin_on(stream);
  const std::span others = std::span(group.streams).subspan(1);
  for (const StreamHandle other : others) {
    joined_.record(other);
    joined_.hold_back(stream);
  }
  const MessageImage image = image_of(group.messages, setting_.rank, shape_, most_blocks_);
  if (bridge_) reach_hosts(image.ends());
  executor_.run(image, stream);
  if (!others.empty()) joined_.record(stream);
  for (const StreamHandle other : others) joined_.hold_back(other);
  end_on(stream);
  BytesSent sent;
  for (const GroupMessage& m : group.messages)
    if (m.is_send) count(sent, m.peer, m.bytes);
  return sent;
}

BytesSent CudaRank::launch(const GpuCopies& copies) {
  std::vector<PeerCopy> all;
  BytesSent sent;
  for (const GpuCopies::Copy& c : copies.copies) {
    all.push_back({c.to, c.from, c.bytes});
    count(sent, c.peer, c.bytes);
  }
  launch_added();
  begin_on(copies.stream);
  tables_.executor()->run(all, copies.fingerprint, copies.stream);
  end_on(copies.stream);
  return sent;
}

void CudaRank::abort() noexcept {
  aborted_.store(true, std::memory_order_release);
  executor_.abort();
  if (CopyExecutor* const copies = tables_.executor()) copies->release();
}

std::optional<FingerprintMismatch> CudaRank::mismatch() const {
  if (const auto m = executor_.mismatch()) return m;
  const CopyExecutor* const copies = tables_.executor();
  return copies ? copies->mismatch() : std::nullopt;
}

std::optional<GpuWait> CudaRank::wait() const {
  if (const auto w = executor_.wait())
    return GpuWait{w->rank, static_cast<uint64_t>(w->mark) * kMostKernelChannels + w->channel};
  const CopyExecutor* const copies = tables_.executor();
  const auto w = copies ? copies->wait() : std::nullopt;
  if (!w) return std::nullopt;
  return GpuWait{w->rank, w->which};
}

const std::byte* CudaRank::copy_of(const void* input, uint64_t bytes, StreamHandle stream) {
  launch_added();
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
