// A communicator's rank on a GPU, by src/exec/cuda.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

#include "comm/cuda/mailbox_memory.h"
#include "comm/cuda/meeting.h"
#include "comm/cuda/meeting_tables.h"
#include "comm/cuda/network_bridge.h"
#include "comm/gpu_rank.h"
#include "comm/gpu_rings.h"
#include "device/cuda/stream.h"
#include "exec/cuda/executor.h"

namespace muster::cuda {

class CudaRank final : public GpuRank {
 public:
  CudaRank(GpuSetting setting, const PlanInputs& inputs, int device);
  ~CudaRank() override;

  bool connected() const override { return executor_.connected(); }
  std::vector<std::byte> next_card() override;
  void hear(std::span<const std::byte> cards) override;
  BytesSent add(const GpuCall& call) override;
  void launch_added() override;
  BytesSent launch(const GpuGroup& group) override;
  const std::byte* copy_of(const void* input, uint64_t bytes, StreamHandle stream) override;
  std::string meeting_table() override { return tables_.mine(); }
  void hear_tables(std::span<const std::string> tables) override { tables_.hear(tables); }
  bool all_reach_all() const override { return all_reach_all_; }
  BytesSent launch(const GpuCopies& copies) override;
  void abort() noexcept override;
  std::optional<FingerprintMismatch> mismatch() const override;
  std::optional<GpuWait> wait() const override;
  void leave() noexcept override;

 private:
  bool others_have_gone() const;
  struct Plan {
    std::unique_ptr<LoadedPlan> loaded;
    uint64_t mark = 0;  // of what was chosen; in the fingerprints of its calls
    BytesSent sent;     // by one call
  };
  const Plan& plan_for(const GpuCall& call);
  // `named`: as the caller has it. `table`: of a V-variant, `call` is then that of equal counts.
  Plan make_plan(const CallShape& named, const CallShape& call, const ChunkTable* table);
  // Adds what goes to the peer; nothing if that is this rank.
  void count(BytesSent& sent, int peer, uint64_t bytes) const;
  // Ends of connections to other hosts, before the first launch that uses them.
  void reach_hosts(std::span<const uint32_t> ends);
  // Around a launch: calls of a communicator come one after the other, on whatever streams.
  void begin_on(StreamHandle stream);
  void end_on(StreamHandle stream);

  struct ShapeHash {
    size_t operator()(const CallShape& s) const;
  };
  struct UnevenPlan {
    ChunkTable table;
    Plan plan;
  };
  const GpuSetting setting_;
  const int device_;
  const PlanInputs inputs_;  // as given
  const MailboxShape shape_;
  std::shared_ptr<Household> household_;
  std::unique_ptr<Meeting> meeting_;  // until connected
  KernelExecutor executor_;
  GpuPlanInputs plan_inputs_;  // when connected
  std::optional<GpuRings> rings_;
  uint32_t most_blocks_ = 0;   // of a kernel
  MeetingTables tables_;
  std::unordered_map<CallShape, Plan, ShapeHash> plans_;
  std::unordered_map<CallShape, std::vector<UnevenPlan>, ShapeHash> uneven_plans_;
  std::vector<DeviceMemory> copies_;  // the last is the largest; graphs may use the others
  std::vector<KernelExecutor::BoundCall> added_, launching_;  // what will be one launch on added_to_, and what is
  StreamHandle added_to_ = nullptr;
  Event joined_;                      // of streams that a group is on beside its first
  Event last_;                        // behind the last call that wasn't captured
  StreamHandle last_stream_ = nullptr;
  bool launched_ = false, has_left_ = false, all_reach_all_ = false;
  std::atomic<bool> aborted_{false};
  std::unique_ptr<NetworkBridge> bridge_;  // null: all ranks share memory. Its thread uses last_
};

}  // namespace muster::cuda
