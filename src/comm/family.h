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
#include "comm/tuner_library.h"
#include "comm/tuning_profile.h"
#include "muster/muster.h"
#include "transports/shm/segment.h"

namespace muster {

// What a rank said of itself when the ranks met.
struct Profile {
  std::string host;
  int pid = 0;
  std::string start;     // of its process, see ProcessStatus; empty: this process can't look at that one
  uint64_t process = 0;  // names its address space
  std::vector<int> cpus;
  double quota = 0;  // cores; 0: no limit
  size_t cache = 0;
};

class Family {
 public:
  Family(std::unique_ptr<Bootstrap> bootstrap, uint64_t id) : bootstrap_(std::move(bootstrap)), id_(id) {}

  Bootstrap& bootstrap() { return *bootstrap_; }
  uint64_t id() const { return id_; }  // of the first communicator

  // --- set while the first communicator is made ---
  std::vector<Profile> profiles;     // by rank of the first communicator
  AgreedCluster hosts;               // by rank of the first communicator; empty for one rank
  TuningProfile tuning;              // equal on all ranks
  std::shared_ptr<const TunerLibrary> tuner;  // null: no plugin on this rank
  bool any_tuner = false;                     // some rank has one, so channels may be as many as there can be
  std::shared_ptr<Segment> segment;  // the file's first; null for one rank

  // Room for one more communicator; also for one rank, which needs only the number.
  Segment::Room allot(const Segment::Geometry& geometry);

  // Begins to report deaths and errors to members. `self`: this.
  static void watch(const std::shared_ptr<Family>& self);
  // Deaths among its ranks, also earlier ones, become its error. Until leave().
  void enter(const std::shared_ptr<Communicator::Impl>& member);
  // After the last member has left the others are told goodbye.
  void leave(Communicator::Impl& member) noexcept;
  // Tells the other ranks of a member's error.
  void announce(const Communicator::Impl& member, Result code, const std::string& message) noexcept;

 private:
  void report(const Bootstrap::Trouble& trouble);

  const std::unique_ptr<Bootstrap> bootstrap_;
  const uint64_t id_;
  std::atomic<uint64_t> lone_children_{0};
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Communicator::Impl>> members_;  // by id
  std::set<int> dead_;                                             // ranks of the first communicator
};

}  // namespace muster
