// The ranks of a communicator as a ring of connections: news of deaths and errors, and what ranks tell each
// other, go round it in both directions. The connections are served by the loop, so news travel whatever the
// ranks' threads do. What all ranks exchange takes a tree of connections beside it.
//
// The ring heals. When a connection to the next rank ends, the nearest rank behind it that is still there is
// connected to; the one in between is dead, or has said goodbye. Who loses the previous rank waits to be
// connected to.
#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/channel.h"
#include "bootstrap/flood.h"
#include "bootstrap/gather_tree.h"
#include "bootstrap/search.h"

namespace muster {

class Ring : public std::enable_shared_from_this<Ring> {
 public:
  using Report = Bootstrap::Report;
  using Told = Bootstrap::Told;

  // size >= 2. roots: of the communicator, see gather_tree.h
  Ring(EventLoop& loop, int rank, int size, int roots = 1);

  int neighbour(Side side) const { return (rank_ + (side == Side::next ? 1 : size_ - 1)) % size_; }  // while all live
  void set_peer(int rank, Bootstrap::Peer peer);  // any thread
  void attach(Side side, ProcessFd fd);           // any thread; each side once, the first counts
  bool linked(Side side);                         // any thread
  int parent() const { return tree_.parent(); }   // in the tree
  void attach_branch(int rank, ProcessFd fd);     // any thread; to the parent or from a child

  // How ranks are reached. From then on the ring heals.
  struct Ways {
    Credentials mine;
    Source source;
    std::vector<Search::Candidate> ranks;  // by rank
    std::chrono::milliseconds silence;     // after which a host is unreachable
  };
  void heal(Ways ways);                 // any thread
  void accept(int rank, ProcessFd fd);  // from a rank that takes this one for its next; loop thread

  // One thread at a time.
  void wait_linked(Deadline deadline);  // throws unless both sides are attached in time
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline);

  // Any thread.
  void watch(Report report, Told told = {});
  void announce(const Bootstrap::Trouble& trouble);
  void tell(std::string_view text);
  // What a client finds at the endpoint of a rank that failed before it had come, or that has left.
  static std::string farewell(const Bootstrap::Trouble& trouble);
  static std::string goodbye();
  // goodbye false: as a death of this rank would look to the others, at once. Else it stays until all texts that have been told
  // have gone round, so that nobody waits for one in vain, and returns then; on the loop's thread it returns at once. `ended`:
  // runs on that thread when it is over. Where others pass nothing on for a second it leaves all the same.
  void close(bool goodbye, std::function<void()> ended = {});

 private:
  struct Link {
    int neighbour = 0;  // this rank: nobody is left
    uint64_t number = 0;
    std::unique_ptr<SecureChannel> channel;
    std::shared_ptr<Search> search;
    EventLoop::Handle timer = 0;  // it begins later
  };
  struct Gather {
    std::vector<std::optional<std::string>> texts;
    int count = 0;
  };
  struct News {
    uint64_t id = 0;  // of an announcement
    Bootstrap::Trouble trouble;
  };

  // Loop thread. Messages:
  Link& link(Side side) { return links_[static_cast<size_t>(side)]; }
  void on_message(Side from, uint64_t number, std::string_view message);
  void take_text(uint32_t sequence, int origin, std::string_view text);
  void lose_branch(int rank, int error);
  void on_told(int origin, std::string_view text);
  void leave_when_told();
  void end(bool goodbye);
  void spread(const News& news);
  void take_news(const News& news, bool own);
  static std::string encode(const News& news);
  static std::optional<News> decode(Reader reader);

  // Connections (ring_links.cpp):
  void connect(Side side, int neighbour, ProcessFd fd);
  void on_end(Side side, uint64_t number, int error);
  void on_goodbye(Side side);
  void expect_last_words(int rank);
  void lose(Side side, int error);
  void look(Side side, bool clean, int error);
  void fade(Link& link);
  void is_gone(int rank);
  void move_on(Side side);
  // Where ranks tell each other things one that has left stays until it says goodbye.
  bool absent(int rank) const { return rank != rank_ && (gone_.contains(rank) || (left_.contains(rank) && !has_texts_)); }
  int beyond(Side side, int rank) const;
  void declare_dead(int rank, const std::string& why);
  void turn_away(int rank, ProcessFd fd);

  std::string describe(int rank);  // any thread
  std::vector<int> silent_ranks(uint32_t sequence);
  std::optional<int> who_left(uint32_t sequence);
  void require_not_cancelled(Deadline deadline);
  void fail_exchange(Result code, const std::string& why);  // tells the others, throws

  EventLoop& loop_;
  const int rank_, size_;

  // Loop thread only.
  std::array<Link, 2> links_;
  uint64_t connections_ = 0;
  std::map<uint64_t, std::unique_ptr<SecureChannel>> fading_;  // replaced; what they still bring counts
  std::optional<Ways> ways_;
  Flood flood_;
  GatherTree tree_;
  std::set<int> gone_;                // dead, or past them this rank has been connected to
  std::map<int, std::string> dead_;   // with the news of it
  bool given_up_ = false;             // the others took this rank for dead
  std::set<uint64_t> seen_;
  Report report_;
  Told told_;
  std::vector<Bootstrap::Trouble> unreported_;
  std::vector<std::pair<int, std::string>> untold_;  // came before watch()
  bool watched_ = false;
  bool has_texts_ = false;  // ranks tell each other things
  bool leaving_ = false;    // closed for this rank; for the others not before closed_
  bool closed_ = false;
  EventLoop::Clock::time_point moved_, leave_by_;  // while it leaves: when something came last
  EventLoop::Handle leave_timer_ = 0;
  std::function<void()> ended_;

  std::mutex mutex_;  // for what follows
  std::condition_variable changed_;
  std::vector<Bootstrap::Peer> peers_;
  bool linked_[2] = {false, false};  // once
  bool over_ = false;                // as closed_ is
  std::map<int, uint32_t> left_;  // who said goodbye, after so many exchanges; written by the loop thread
  std::optional<Bootstrap::Trouble> failure_;  // the first; ends every exchange
  std::string broken_;                         // why there can be no exchange any more; empty: there can
  std::map<uint32_t, Gather> gathers_;         // by sequence number
  uint32_t sequence_ = 0;
};

}  // namespace muster
