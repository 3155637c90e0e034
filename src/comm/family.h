// What a communicator and all that are made of it by split and shrink have in common on one rank: how the
// ranks met, the file of shared memory, who the ranks are, and the news of their deaths.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "comm/agreed_cluster.h"
#include "comm/network_bell.h"
#include "comm/tuner_library.h"
#include "comm/tuning_profile.h"
#include "muster/muster.h"
#include "transports/network.h"
#include "transports/shm/segment.h"

namespace muster {

// What a rank said of itself when the ranks met.
struct Profile {
  std::string host;      // its name, for people
  int memory = 0;        // ranks of one number share memory: that is a host, also where several are on one machine
  int machine = 0;       // ranks of one number share cores
  int pid = 0;
  std::string start;     // of its process, see ProcessStatus; empty: this process can't look at that one
  uint64_t process = 0;  // names its address space
  std::vector<int> cpus;
  double quota = 0;  // cores; 0: no limit
  size_t cache = 0;
  size_t arena = 0;  // bytes of its process's Arena; 0: it has none
};

class Family {
 public:
  Family(std::unique_ptr<Bootstrap> bootstrap, uint64_t id) : bootstrap_(std::move(bootstrap)), id_(id) {}
  ~Family();
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  Bootstrap& bootstrap() { return *bootstrap_; }
  uint64_t id() const { return id_; }  // of the first communicator

  // --- set while the first communicator is made ---
  std::vector<Profile> profiles;     // by rank of the first communicator
  AgreedCluster hosts;               // by rank of the first communicator; empty for one rank
  TuningProfile tuning;              // equal on all ranks
  std::shared_ptr<const TunerLibrary> tuner;  // null: no plugin on this rank
  bool any_tuner = false;                     // some rank has one, so channels may be as many as there can be
  std::shared_ptr<Segment> segment;           // the first of this host's file; null for one rank

  std::unique_ptr<Network> network;           // to other hosts; null: all ranks are on one
  size_t network_slot_bytes = 0;              // what its connections' slots should have

  // Room for one more communicator in this host's file, and a number that no other has. `geometry`: of no ranks where only
  // the number is needed.
  Segment::Room allot(const Segment::Geometry& geometry);

  // Begins to report deaths and errors to members. `self`: this.
  static void watch(const std::shared_ptr<Family>& self);
  // Deaths among its ranks, also earlier ones, become its error. Until leave().
  void enter(const std::shared_ptr<Communicator::Impl>& member);
  // After the last member has left the others are told goodbye.
  void leave(Communicator::Impl& member) noexcept;
  // Tells a member's ranks of other hosts; see told.h.
  void tell(uint64_t member, std::string_view text);
  // Whether this rank of the first communicator has died.
  bool is_dead(int family_rank);
  // Wakes its ranks' sleepers when something comes by the network.
  NetworkBell* bell() { return bell_.get(); }

 private:
  void report(const Bootstrap::Trouble& trouble);
  void hear(int origin, std::string_view text);
  std::vector<std::shared_ptr<Communicator::Impl>> living_members();
  void ring_members();
  bool take_in();

  const std::unique_ptr<Bootstrap> bootstrap_;
  const uint64_t id_;
  std::unique_ptr<NetworkBell> bell_;  // null: no network
  std::atomic<uint64_t> lone_children_{0};
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Communicator::Impl>> members_;  // by id
  std::set<int> dead_;                                             // ranks of the first communicator
};

}  // namespace muster
