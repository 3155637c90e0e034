// GPUs as the *_perf programs use them. bench/gpu has what makes one of these: by the CUDA runtime and NCCL's
// interface, or none, for builds without GPU memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muster/muster.h"
#include "perf/args.h"

namespace muster::perf {

// One rank's communicator and stream on one GPU, and memory there. Calls have Communicator's parameters, so
// that a program says them once; they go to the rank's own stream, and the last parameter, which is for host
// memory, is null. All calls throw muster::Error. One thread at a time, but for abort.
class GpuRank {
 public:
  virtual ~GpuRank() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void all_reduce(const void* send, void* recv, size_t count, DataType type, ReduceOp op,
                          HostStream* none = nullptr) = 0;
  virtual void broadcast(const void* send, void* recv, size_t count, DataType type, int root,
                         HostStream* none = nullptr) = 0;
  virtual void reduce(const void* send, void* recv, size_t count, DataType type, ReduceOp op, int root,
                      HostStream* none = nullptr) = 0;
  virtual void all_gather(const void* send, void* recv, size_t count, DataType type,
                          HostStream* none = nullptr) = 0;
  virtual void reduce_scatter(const void* send, void* recv, size_t count, DataType type, ReduceOp op,
                              HostStream* none = nullptr) = 0;
  virtual void all_to_all(const void* send, void* recv, size_t count, DataType type,
                          HostStream* none = nullptr) = 0;
  virtual void gather(const void* send, void* recv, size_t count, DataType type, int root,
                      HostStream* none = nullptr) = 0;
  virtual void scatter(const void* send, void* recv, size_t count, DataType type, int root,
                       HostStream* none = nullptr) = 0;
  // Displacements are empty: parts lie one behind the other.
  virtual void all_to_all_v(const void* send, std::span<const size_t> send_counts,
                            std::span<const size_t> send_displacements, void* recv,
                            std::span<const size_t> recv_counts, std::span<const size_t> recv_displacements,
                            DataType type, HostStream* none = nullptr) = 0;
  virtual void send(const void* buffer, size_t count, DataType type, int peer,
                    HostStream* none = nullptr) = 0;
  virtual void recv(void* buffer, size_t count, DataType type, int peer, HostStream* none = nullptr) = 0;
  virtual void group_start() = 0;
  virtual void group_end() = 0;

  // Waits until the stream is empty.
  virtual void synchronize() = 0;
  // What is called in between goes into a graph, which takes the place of the one before; each replay runs it
  // once.
  virtual void begin_capture() = 0;
  virtual void end_capture() = 0;
  virtual void replay() = 0;

  // On the rank's GPU, page-aligned. `shareable`: by ncclMemAlloc, which windows want.
  virtual void* allocate(size_t bytes, bool shareable) = 0;
  virtual void release(void* memory, bool shareable) noexcept = 0;
  virtual void fill(void* to, int byte, size_t bytes) = 0;
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;
  // For as long as the rank lives. Windows are collective: in a group if one thread has several ranks.
  virtual void register_buffer(void* buffer, size_t bytes, Registration how) = 0;

  // Any thread: calls under way on this rank end with an error.
  virtual void abort() noexcept = 0;
};

struct GpuName {
  int device = 0;
  std::string address, model;  // "0000:1b:00", "NVIDIA H100 80GB HBM3"
};

class Gpus {
 public:
  virtual ~Gpus() = default;
  virtual int count() const = 0;  // at least 1
  virtual GpuName name(int device) const = 0;
  virtual size_t free_memory(int device) const = 0;
  // This thread's ranks, in order, one per device of `devices`; `meeting` are their communicators on host
  // memory. Collective.
  virtual std::vector<std::unique_ptr<GpuRank>> make_ranks(std::span<Communicator> meeting,
                                                           std::span<const int> devices,
                                                           const Args& args) = 0;
};

// null: `why` says what is missing.
std::unique_ptr<Gpus> find_gpus(std::string& why);

}  // namespace muster::perf
