// A rank on a GPU by NCCL's interface and the CUDA runtime.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "gpu/cuda.h"
#include "perf/gpus.h"

namespace muster::perf {

class NcclRank : public GpuRank {
 public:
  // default_stream: the CUDA runtime's, instead of one of the rank's own.
  NcclRank(int device, int rank, int size, bool default_stream);
  ~NcclRank() override;
  // In a group where one thread has several ranks: the communicator is there when that ends.
  void init(const ncclUniqueId& id, const ncclConfig_t& config);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(const void* send, void* recv, size_t count, DataType type, ReduceOp op,
                  HostStream* none) override;
  void broadcast(const void* send, void* recv, size_t count, DataType type, int root,
                 HostStream* none) override;
  void reduce(const void* send, void* recv, size_t count, DataType type, ReduceOp op, int root,
              HostStream* none) override;
  void all_gather(const void* send, void* recv, size_t count, DataType type, HostStream* none) override;
  void reduce_scatter(const void* send, void* recv, size_t count, DataType type, ReduceOp op,
                      HostStream* none) override;
  void all_to_all(const void* send, void* recv, size_t count, DataType type, HostStream* none) override;
  void gather(const void* send, void* recv, size_t count, DataType type, int root, HostStream* none) override;
  void scatter(const void* send, void* recv, size_t count, DataType type, int root,
               HostStream* none) override;
  void all_to_all_v(const void* send, std::span<const size_t> send_counts,
                    std::span<const size_t> send_displacements, void* recv,
                    std::span<const size_t> recv_counts, std::span<const size_t> recv_displacements,
                    DataType type, HostStream* none) override;
  void send(const void* buffer, size_t count, DataType type, int peer, HostStream* none) override;
  void recv(void* buffer, size_t count, DataType type, int peer, HostStream* none) override;
  void group_start() override;
  void group_end() override;

  void synchronize() override;
  void begin_capture() override;
  void end_capture() override;
  void replay() override;

  void* allocate(size_t bytes, bool shareable) override;
  void release(void* memory, bool shareable) noexcept override;
  void fill(void* to, int byte, size_t bytes) override;
  void upload(void* to, const void* from, size_t bytes) override;
  void download(void* to, const void* from, size_t bytes) override;
  void register_buffer(void* buffer, size_t bytes, Registration how) override;
  void abort() noexcept override;

 private:
  void check(ncclResult_t result, const char* what) { require(result, what, comm_); }
  ncclRedOp_t nccl_op(const ReduceOp& op, ncclDataType_t type);

  const int device_, rank_, size_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;  // null: the default one
  cudaGraphExec_t graph_ = nullptr;
  std::map<std::pair<uint64_t, DataType>, ncclRedOp_t> multipliers_;  // by factor
  std::deque<void*> handles_;  // of register_buffer; in a group they are filled in when it ends
  std::deque<ncclWindow_t> windows_;
  std::mutex ending_;
  bool aborted_ = false;
};

}  // namespace muster::perf
