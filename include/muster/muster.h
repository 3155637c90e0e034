// Muster's C++ interface: communicators, collectives, groups and host streams on host memory.
//
// Errors are exceptions of type muster::Error. Counts are elements; every buffer is ordinary host memory (those of GPUs: muster/gpu.h).
// Thread-safety: a Communicator is used by one thread at a time (abort, revoke, async_error and the const queries from
// any thread at any time); different communicators are independent, also a parent and its children. Groups are per
// thread. Like NCCL's, the calls of one communicator that are collective must be made in the same order by all its ranks.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "muster/types.h"
#include "muster/window.h"

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
  std::string name;       // shown in messages; empty = a number, or the parent's name and a number
  // false: what makes, ends or changes the communicator, and calls without a stream, return at once and go on in the
  // background; async_error() tells when they are complete. NCCL_COMM_BLOCKING, if set, decides instead. May differ by rank.
  bool blocking = true;
  int min_channels = 0;   // bounds of the planner's choice of channels, 1 to 16; 0 = none. Equal on all ranks.
  int max_channels = 0;
  // All-gathers and all-to-alls of GPU memory whose receive buffers lie in windows that were registered as symmetric take no
  // multiprocessor (NCCL's CTA policy zero): copy engines run them. NCCL_CTA_POLICY, if set, decides instead. Ranks that differ
  // use kernels.
  bool copy_engines = false;
};

// What shrink does about calls of the parent that aren't complete.
enum class ShrinkMode : int {
  finish = 0,  // they are completed first; all ranks of the parent that aren't excluded must be healthy
  abort = 1,   // they are ended with an error first, and the parent stays in error: for use after a failure
};

// Bytes of memory that one rank has taken for messages, shared with those of its host; the sum over the ranks, up to whole pages, is what a communicator costs.
// For 2 to 8 ranks that is 4 to 8 KiB in all as long as it isn't used; short messages (up to 32 bytes) add about 2 KiB for
// each pair of ranks and direction, with 8 ranks 120 KiB. A connection, which is for one pair, one direction, and either
// collectives or point-to-point messages, adds for its longest message so far: up to 1 KiB 8 KiB, up to 8 KiB 48 KiB; for
// longer ones, and when 16 MiB of those of more than 1 KiB have gone through it, about 1 MiB (half of that for
// point-to-point messages). So two ranks take less than 256 KiB in all until they send long messages. What connections
// add is what suspend() gives back. Communicators that others are made of, or that are suspended, take 4 KiB per rank besides.
// Signals take 4 KiB for each pair of ranks and direction, and each 512 of its counters that are used. A connection to a rank of
// another host takes at either end some 10 KiB, which is persistent, and, of its ring of eight of the longest messages, what was used:
// suspend() gives that back, too, where no adapter knows it (verbs and network plugins: persistent).
struct MemoryUse {
  size_t total = 0;        // persistent + suspendable, unless suspended
  size_t suspendable = 0;  // what suspend() gives back
  size_t suspended = 0;    // what it has given back
  size_t persistent = 0;
};

// One rank's membership in a group of ranks that run collectives together.
//
// Life: init, split, shrink and grow make one; finalize waits until all ranks are done with it; destroy leaves; abort and
// revoke end what is under way. Those that make one and finalize, suspend and resume are collective, and may be called
// inside a group, where they run at the outermost group_end, side by side for different communicators and in call order
// for one, before the group's other calls. A communicator that can't be made fails on all its ranks with one reason.
//
// Non-blocking (Config::blocking): a call on a communicator that is still being made is an invalid_argument; later
// calls without a stream are queued and run in order, and their errors become the communicator's. A group in which one
// communicator is non-blocking doesn't wait for any of them.
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
  // The same with several ids, made by different ranks, so that no root serves all: 1 to nranks ids, equal and in the same
  // order on all ranks, each good for one communicator. Id i is served by its maker to about nranks / ids.size() ranks.
  static Communicator init(int nranks, int rank, std::span<const UniqueId> ids, const Config& config = {});
  // Rank, size and meeting point from the launcher's environment (muster run, torchrun, Open MPI, MPICH, Slurm).
  static Communicator from_environment(const Config& config = {});
  // All ranks in this process, one communicator each.
  static std::vector<Communicator> init_all(int nranks, const Config& config = {});

  // Communicators made of this one ("the parent", which stays usable; either may be destroyed first). They take no sockets,
  // descriptors or threads of their own. Without `config` they are like the parent.
  //
  // Every rank of the parent calls it; those with equal colors form one. Ranks are ordered by key, equal keys by rank in
  // the parent. kNoColor: takes part, and gets an empty Communicator. Other negative colors: invalid_argument. Allowed on
  // a revoked parent.
  static constexpr int kNoColor = -1;
  Communicator split(int color, int key, const std::optional<Config>& config = {});
  // A communicator of all ranks but `excluded`, in the parent's order. Called by those, with the same list (in any order)
  // and mode; the excluded ones, which may be dead, don't call it. invalid_argument: the list has a number that is no rank,
  // twice the same, or this rank; invalid_usage naming the difference: ranks gave different lists.
  Communicator shrink(std::span<const int> excluded, ShrinkMode mode = ShrinkMode::finish, const std::optional<Config>& config = {});
  // A larger communicator: the ranks of this one keep their numbers, new ones join with numbers from size() on. One rank of
  // the parent, any, makes the id, hands it to the new ones by any means, and calls grow like the others; new ranks call
  // join. An id is good for one grow; nranks is the new number of ranks. The new communicator shares nothing with the parent.
  UniqueId grow_id();
  Communicator grow(int nranks, const std::optional<Config>& config = {});
  static Communicator join(int nranks, int rank, const UniqueId& id, const Config& config = {});

  explicit operator bool() const { return impl_ != nullptr; }
  int rank() const;
  int size() const;
  const std::string& name() const;
  bool blocking() const;

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
  // V-variants: a count for each rank, 0 included. Displacements are where each rank's part begins in that buffer, in
  // elements from its start; none (an empty span) = one part behind the other in rank order. They need not agree between
  // ranks. Parts of a receive buffer must not overlap. A rank that sends or receives nothing may pass null for that buffer.
  // What a rank sends to itself and expects from itself must be equal in number. Counts that don't fit together: invalid_usage
  // on all ranks, with both.
  //
  // send: send_count = recv_counts[rank()] elements; recv_counts: of all ranks, equal on all of them. In place: send is where
  // this rank's part of recv is.
  void all_gather_v(const void* send, size_t send_count, void* recv, std::span<const size_t> recv_counts, std::span<const size_t> displacements,
                    DataType type, HostStream* stream = nullptr);
  // send: the sum of recv_counts, one rank's part behind the other; recv: recv_counts[rank()]; recv_counts equal on all
  // ranks. In place: recv is where this rank's part of send is.
  void reduce_scatter_v(const void* send, void* recv, std::span<const size_t> recv_counts, DataType type, ReduceOp op,
                        HostStream* stream = nullptr);
  // send_counts[r] elements go to rank r, recv_counts[r] come from it: what that rank has as its send_counts for this one.
  // In place: send == recv, with equal counts and displacements for both.
  void all_to_all_v(const void* send, std::span<const size_t> send_counts, std::span<const size_t> send_displacements, void* recv,
                    std::span<const size_t> recv_counts, std::span<const size_t> recv_displacements, DataType type,
                    HostStream* stream = nullptr);
  // recv, recv_counts and displacements are the root's; other ranks may pass anything. In place at the root, as in all_gather_v.
  void gather_v(const void* send, size_t send_count, void* recv, std::span<const size_t> recv_counts, std::span<const size_t> displacements,
                DataType type, int root, HostStream* stream = nullptr);
  // send, send_counts and displacements are the root's. In place at the root: recv is where its part of send is.
  void scatter_v(const void* send, std::span<const size_t> send_counts, std::span<const size_t> displacements, void* recv, size_t recv_count,
                 DataType type, int root, HostStream* stream = nullptr);
  // Between two ranks messages match in call order; counts and types must be equal. Any set of sends and receives
  // inside one group completes, whatever their order.
  void send(const void* buffer, size_t count, DataType type, int peer, HostStream* stream = nullptr);
  void recv(void* buffer, size_t count, DataType type, int peer, HostStream* stream = nullptr);
  // Returns when all ranks have called it.
  void barrier(HostStream* stream = nullptr);

  // --- one-sided calls ---
  //
  // Collective: bytes from `base` on become this rank's part of a window; other ranks may give other sizes, also 0. Between
  // threads of one process any memory will do. Where ranks are processes the part must be memory of mem_alloc, and the
  // communicator one whose ranks map each other's (64 ranks at most, MUSTER_WINDOWS not 0): otherwise invalid_usage on all
  // ranks, naming the one whose memory it is, and the communicator stays as it was (a non-blocking one has the error).
  // Where ranks are on several hosts no such error comes: parts of ranks on other hosts may be any memory, and one on the
  // same host that isn't memory of mem_alloc is refused when it is put to. This rank's part is written to until the window
  // is thrown away.
  // GPU memory may be of any ranks; where it can't be reached Window::data is null for them. `symmetric`: calls whose buffer lies in
  // the window have it at the same distance from `base` on all ranks, so that Config::copy_engines can serve them.
  // Inside a group, or without blocking, the window is returned before it is registered.
  Window register_window(void* base, size_t bytes, bool symmetric = false);
  // Copies bytes to peer's part of the window, `offset` bytes into it, and then sends the signal: who has waited for that
  // sees the bytes. The peer may be this rank. Returns when `source` may be reused. What leaves the peer's part:
  // invalid_argument; a peer that has destroyed its communicator: remote_error.
  //
  // These three are calls like all others: those of one communicator run in the order in which they were made. Inside a
  // group they run side by side with its collectives and messages, all of the first two before the waits: what must not be
  // put before a signal has come, is put after the group that waits for it. They are not collective: no rank waits in them,
  // except for signals.
  void put_signal(const void* source, size_t bytes, int peer, const Window& window, size_t offset, Signal signal = {}, HostStream* stream = nullptr);
  // Adds one to peer's counter of this rank's signals.
  void signal(int peer, Signal signal = {}, HostStream* stream = nullptr);
  // Waits until as many signals as are named have come, and takes them off the counters, one entry after the other. Signals
  // of this rank to itself that can't come any more, since it is in the wait: invalid_usage.
  void wait_signal(std::span<const SignalWait> waits, HostStream* stream = nullptr);

  // Waits until all ranks have completed their calls and called it. From then on only queries, abort and destroy are
  // allowed. Twice: invalid_argument; after revoke: invalid_usage.
  void finalize();
  // Waits for this rank's queued calls, or until the communicator is made, and leaves; peers are not needed. Using the
  // communicator later is an error.
  void destroy();
  // From any thread: every call of this communicator in progress on this rank returns with an error, also one that makes
  // it, and peers get remote_error. Never waits. Parents and children are not concerned.
  void abort() noexcept;
  // From any thread, like abort, but the communicator can be split and shrunk afterwards: its calls under way and later
  // ones fail with invalid_usage on all ranks. It can't be finalized. In error already: keeps that error.
  void revoke();
  // Collective. suspend gives back the shared memory of messages; until resume, which takes it again (system_error where it
  // can't), calls are refused with invalid_usage.
  void suspend();
  void resume();
  MemoryUse memory_use() const;
  // success, or the error that this communicator is in (a peer died, mismatched calls, aborted ...); in_progress while it is
  // being made and, if it isn't blocking, while calls without a stream are under way. Any thread.
  Result async_error(std::string* message = nullptr) const;

  // How a collective of this size would run: algorithm, channels, tile, why. `collective` as in "all_reduce"; of "all_gather_v"
  // and its like `count` is that of one part on average.
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
