// The root's work for one unique id: it waits until every rank has come, checks that they fit together, and
// tells each who its neighbours on the ring are. Where a communicator has several ids, each root does this for
// its share of the ranks; the first rank of the next share comes, too, so that the last of this one learns
// where it is. Runs in the service's thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/channel.h"
#include "bootstrap/host.h"
#include "bootstrap/service.h"
#include "bootstrap/unique_id.h"

namespace muster {

// Rank to root.
struct Join {
  int rank = 0;
  int nranks = 0;
  uint64_t token = 0;  // names the endpoint where this rank awaits its neighbour
  Address listener;
  Host host;
  uint32_t patience = 0;  // milliseconds that this rank will wait for the answer
  std::string version;    // of the library
  int roots = 1;          // ids of the communicator, and which of them this one is
  int root = 0;

  std::string encode() const;
  static std::optional<Join> decode(std::string_view message);
};

// Root to rank: where those are that it connects to, or why there won't be a communicator.
struct Answer {
  Result code = Result::success;
  std::string error;
  uint64_t communicator_id = 0;
  Address next;
  uint64_t next_token = 0;
  Host next_host, prev_host;
  Address parent;  // in the tree, see gather_tree.h
  uint64_t parent_token = 0;
  Host parent_host;

  std::string encode() const;
  static std::optional<Answer> decode(std::string_view message);
};

// The ranks that root `root` of several serves: first_of(root) up to first_of(root + 1).
int first_of(int root, int roots, int nranks);
int root_of(int rank, int roots, int nranks);

class Root : public std::enable_shared_from_this<Root> {
 public:
  // Opens the id's endpoint; from then on the service keeps the root until it has answered. Loop thread.
  static void start(Service& service, const IdContent& id);
  Root(Service& service, const IdContent& id) : service_(service), id_(id) {}
  ~Root();

 private:
  struct Member {
    std::unique_ptr<SecureChannel> channel;
    std::optional<Join> join;
    EventLoop::Handle timer = 0;
  };
  using Members = std::map<uint64_t, Member>;  // by order of arrival

  EndpointName name() const { return {Purpose::join, id_.public_id, 0}; }
  void admit(Arrival arrival);
  void on_message(uint64_t member, std::string_view message);
  void on_end(uint64_t member);
  void drop(Members::iterator member);
  std::string objection(const Join& join) const;
  std::string isolation() const;
  // What this root waits for: its share, and the first rank behind it.
  std::vector<int> expected() const;
  bool serves(int rank) const { return root_of(rank, roots_, nranks_) == root_; }
  std::string missing() const;
  void set_timer();
  void complete();
  void give_up(Result code, const std::string& why);
  void finish(Result late_code, const std::string& late_text);  // for ranks that come later

  Service& service_;
  IdContent id_;
  Members members_;
  uint64_t arrivals_ = 0;
  int nranks_ = 0, roots_ = 1, root_ = 0;  // as the first to come said
  std::map<int, uint64_t> by_rank_;
  EventLoop::Clock::time_point deadline_ = EventLoop::Clock::time_point::max();
  EventLoop::Handle timer_ = 0;
};

// "rank 3 (host h, pid 7)"
std::string describe_rank(int rank, const std::string& host, int pid);
std::string describe_ranks(
    const std::vector<int>& ranks);  // "rank 3", "ranks 1, 2, 5", with an end after twenty

}  // namespace muster
