// How the ranks of a communicator find each other, exchange what must be agreed on, and notice a death.
//
// A UniqueId holds the root's address and a random 256-bit key. Every rank connects to the root, both prove
// that they know the key (HMAC-SHA256 challenge-response), and the root hands each rank the addresses of its
// neighbour in a ring and its parent in a tree. Exchanges take the tree; the ring's connections tell when a
// process ends, news goes round it, and it closes again behind ranks that are gone.
//
// One thread of the process, "muster-svc", serves all of it: it listens at one port, greets who connects,
// does the root's work, and watches the rings. A child forked from a process that used this can't use it
// (invalid_usage) and doesn't disturb the parent.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/options.h"
#include "muster/muster.h"

namespace muster {

class Bootstrap {
 public:
  struct Peer {
    std::string host;  // for messages
    int pid = 0;       // for messages
  };
  struct Trouble {
    int rank = -1;  // whose; -1 unknown
    Result code = Result::remote_error;
    std::string message;
    bool death = false;         // noticed, not announced
    uint64_t communicator = 0;  // whose, of those made of this one; 0: of this one itself, whose exchanges it ends
  };

  // Blocks until all ranks have met. Errors: garbage or used id, duplicate rank, ranks that never came
  // (named), different nranks or ids, unusable interface. 1 to nranks ids, each of which is the meeting point
  // of its share of the ranks. When the deadline is cancelled the others are told that this rank aborted.
  static std::unique_ptr<Bootstrap> connect(std::span<const UniqueId> ids, int nranks, int rank,
                                            const Options& options, Deadline deadline);
  static std::unique_ptr<Bootstrap> connect(const UniqueId& id, int nranks, int rank, const Options& options,
                                            Deadline deadline) {
    return connect(std::span(&id, 1), nranks, rank, options, deadline);
  }
  virtual ~Bootstrap() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::vector<Peer>& peers() const = 0;
  // A random number, equal on all ranks, that names this communicator.
  virtual uint64_t communicator_id() const = 0;
  // The network interfaces by which other hosts are to be reached, by name: those that NCCL_SOCKET_IFNAME names, else the
  // one over which the ranks met. Empty: there is none.
  virtual std::vector<std::string> interfaces() const = 0;
  // A number that only the communicator's ranks can know, equal on all of them, another for each purpose.
  virtual uint64_t secret(std::string_view purpose) const = 0;

  // Every rank's text, by rank. Collective: all ranks, in the same order as other exchanges. One thread at a
  // time; the other members but close and announce as well. Throws, soon and on all ranks that wait, when a
  // rank dies, announces trouble, or has left; timeout names the ranks that didn't take part.
  virtual std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) = 0;
  void barrier(Deadline deadline) { all_gather({}, deadline); }

  // Collective over ALL ranks of the communicator, each with the group it belongs to (its own rank alone at
  // least). Passes descriptors between the ranks of `group` (ascending, same on each of them, includes this
  // rank) over a UNIX socket with an abstract name, authenticated like everything else. Each member gives
  // `mine`, maybe none (each that gives costs a message to every other); `receive` is called for each other
  // member's, one at a time, so that few are open at once; what it throws comes out at the end, on this rank
  // alone. Throws system_error naming the reason if the members can't reach each other by UNIX sockets.
  virtual void exchange_fds(const std::vector<int>& group, const std::vector<int>& mine,
                            const std::function<void(int rank, std::vector<Fd> fds)>& receive,
                            Deadline deadline) = 0;

  // Deaths and errors of other ranks are reported, once each, from a helper thread that sleeps when idle;
  // those from before this call at once. The thread serves all communicators: `report` must not block, nor
  // wait for what calls close() (which waits for a running report). After close() there are no reports.
  // What others tell comes to `told` by the same thread and rules: each text once, those of one origin in the
  // order in which it told them, from before this call too.
  using Report = std::function<void(const Trouble&)>;
  using Told = std::function<void(int origin, std::string_view text)>;
  virtual void watch(Report report, Told told) = 0;
  void watch(Report report) { watch(std::move(report), {}); }
  // Tells all other ranks (best effort, never blocks): their report is called with this.
  virtual void announce(const Trouble& trouble) = 0;
  // Tells all other ranks a text of up to 1 MiB (best effort, never blocks, any thread): their `told` is called
  // with it. Helper threads pass it on, whatever the ranks' own threads do. A rank isn't told its own texts.
  virtual void tell(std::string_view text) = 0;
  // A clean goodbye: peers that see this connection end later don't take it for a death. What was told comes to all: where
  // ranks tell each other things it waits until that has gone round, for a second at most when others are stopped. Any thread:
  // exchanges in progress on this rank end with an error. Without it, destruction looks to the others like a death.
  virtual void close() = 0;
};

// Where a launcher's environment says the ranks meet.
struct Rendezvous {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  std::string launcher;  // "muster run", "torchrun", "Open MPI", "MPICH", "Slurm", for messages
  UniqueId id;           // ready on every rank
};
// All ranks call it equally often, in the same order: each call meets for one communicator. Throws
// invalid_usage naming the variables looked for when there is no launcher's environment. Unless
// MUSTER_JOB_KEY holds a secret, anyone on the network who knows the meeting point can come in.
Rendezvous rendezvous_from_environment(const Options& options, Deadline deadline);

}  // namespace muster
