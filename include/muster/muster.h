// Muster's C++ interface: communicators, collectives, groups and host streams on host memory.
//
// Errors are exceptions of type muster::Error. Counts are elements; every buffer is ordinary host memory.
// Thread-safety: a Communicator is used by one thread at a time (abort, async_error and the const queries from any
// thread at any time); different communicators are independent. Groups are per thread.
// Like NCCL's, collectives of one communicator must be called in the same order by all its ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/types.h"

namespace muster {

// Names a communicator that is being made: where its root listens, and a random 256-bit key that each rank must
// prove to know. Made by one rank, handed to the others by any means; good for one communicator.
struct UniqueId {
  char internal[128];
};
MUSTER_API UniqueId make_unique_id();

// An ordered queue of calls with a thread of its own: calls return at once and run in order on that thread.
class MUSTER_API HostStream {
 public:
  HostStream();
  ~HostStream();  // runs what is queued, then ends
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  void synchronize();        // waits for all that was queued before; throws the first error since the last call
  bool idle() const;         // nothing queued or running
  struct MUSTER_HIDDEN Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

struct Config {
  std::string name;  // shown in messages; empty = a number
};

// One rank's membership in a group of ranks that run collectives together.
//
// stream == nullptr: the calling thread runs the call, which returns when this rank's part is complete and its
// buffers may be reused. Inside group_start/group_end calls are collected and run at the outermost group_end.
// In place is as in NCCL: send == recv (all_reduce, reduce, broadcast), recv == send + rank * count
// (reduce_scatter), send == recv + rank * count (all_gather, gather at root), recv == send + root... (scatter).
class MUSTER_API Communicator {
 public:
  Communicator() = default;
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  // destroys without waiting for peers if destroy() wasn't called

  // Every rank calls it with the same id; returns when all are connected. In a group: filled in at group_end.
  static Communicator init(int nranks, int rank, const UniqueId& id, const Config& config = {});
  // Rank, size and meeting point from the launcher's environment (muster run, torchrun, Open MPI, MPICH, Slurm).
  static Communicator from_environment(const Config& config = {});
  // All ranks in this process, one communicator each.
  static std::vector<Communicator> init_all(int nranks, const Config& config = {});

  explicit operator bool() const { return impl_ != nullptr; }
  int rank() const;
  int size() const;
  const std::string& name() const;

  // count: elements of send and of recv, on every rank.
  void all_reduce(const void* send, void* recv, size_t count, DataType type, ReduceOp op, HostStream* stream = nullptr);
  // root's send -> everyone's recv; send may be null elsewhere.
  void broadcast(const void* send, void* recv, size_t count, DataType type, int root, HostStream* stream = nullptr);
  // everyone's send -> root's recv; recv may be null elsewhere and is not touched there.
  void reduce(const void* send, void* recv, size_t count, DataType type, ReduceOp op, int root, HostStream* stream = nullptr);
  // send: count elements; recv: size() * count.
  void all_gather(const void* send, void* recv, size_t count, DataType type, HostStream* stream = nullptr);
  // send: size() * count elements; recv: count.
  void reduce_scatter(const void* send, void* recv, size_t count, DataType type, ReduceOp op, HostStream* stream = nullptr);
  // send, recv: size() * count elements.
  void all_to_all(const void* send, void* recv, size_t count, DataType type, HostStream* stream = nullptr);
  // send: count elements; recv at root: size() * count.
  void gather(const void* send, void* recv, size_t count, DataType type, int root, HostStream* stream = nullptr);
  // send at root: size() * count elements; recv: count.
  void scatter(const void* send, void* recv, size_t count, DataType type, int root, HostStream* stream = nullptr);
  // Between two ranks messages match in call order; counts and types must be equal. Any set of sends and receives
  // inside one group completes, whatever their order.
  void send(const void* buffer, size_t count, DataType type, int peer, HostStream* stream = nullptr);
  void recv(void* buffer, size_t count, DataType type, int peer, HostStream* stream = nullptr);
  // Returns when all ranks have called it.
  void barrier();

  // Waits for this rank's queued calls and leaves; peers are not needed. Using the communicator later is an error.
  void destroy();
  // From any thread: every call of this communicator in progress on this rank returns with an error, and peers get
  // remote_error. Never waits.
  void abort() noexcept;
  // success, or the error that this communicator is in (a peer died, mismatched calls, aborted ...); in_progress while
  // the group in which it is being made hasn't ended. Any thread.
  Result async_error(std::string* message = nullptr) const;

  // How a collective of this size would run: algorithm, channels, tile, why. `collective` as in "all_reduce".
  std::string explain(const std::string& collective, size_t count, DataType type, ReduceOp op = {}, int root = 0) const;

  struct MUSTER_HIDDEN Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

MUSTER_API void group_start();
MUSTER_API void group_end();

// Page-aligned memory that ranks of other processes on this host can load and store directly, so that large
// collectives on it need no copy. Released with mem_free.
MUSTER_API void* mem_alloc(size_t bytes);
MUSTER_API void mem_free(void* p);

// "0.1.0"
MUSTER_API const char* version();

}  // namespace muster
