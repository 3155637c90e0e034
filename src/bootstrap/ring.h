// The ranks of a communicator as a ring of connections: texts go round it once per exchange, and news of
// deaths and errors goes round in both directions. The connections are served by the loop, so news travel
// whatever the ranks' threads do.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
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

namespace muster {

class Ring : public std::enable_shared_from_this<Ring> {
 public:
  using Report = std::function<void(const Bootstrap::Trouble&)>;
  enum Side { prev = 0, next = 1 };

  // size >= 2.
  Ring(EventLoop& loop, int rank, int size)
      : loop_(loop), rank_(rank), size_(size), peers_(static_cast<size_t>(size)) {}

  int neighbour(Side side) const { return (rank_ + (side == next ? 1 : size_ - 1)) % size_; }
  void set_peer(int rank, Bootstrap::Peer peer);  // any thread
  void attach(Side side, ProcessFd fd);           // any thread; each side once, the first counts

  bool linked(Side side);                         // any thread

  // One thread at a time.
  void wait_linked(Deadline deadline);  // throws unless both sides are attached in time
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline);

  // Any thread.
  void watch(Report report);
  void announce(const Bootstrap::Trouble& trouble);
  // What a neighbour is to find on its new connection instead of this rank, which failed.
  static std::string farewell(const Bootstrap::Trouble& trouble);
  void close(bool goodbye);  // false: as a death of this rank would look to the others

 private:
  struct Link {
    std::unique_ptr<SecureChannel> channel;
    bool attached = false;
    bool left = false;                 // said goodbye
    std::vector<std::string> waiting;  // for the connection
  };
  struct Gather {
    std::vector<std::optional<std::string>> texts;
    int count = 0;
  };
  struct News {
    uint64_t id = 0;  // of an announcement
    Bootstrap::Trouble trouble;
  };

  // Loop thread.
  void on_message(Side from, std::string_view message);
  void on_end(Side side, int error);
  static std::string encode(const News& news);
  void pass_on(std::string_view message, Side to);
  void take_text(uint32_t sequence, int origin, std::string_view text, std::string_view message);
  void take_news(const News& news, std::optional<Side> from);

  std::string describe(int rank);  // any thread
  std::vector<int> silent_ranks(uint32_t sequence);
  void require_not_cancelled(Deadline deadline);
  void fail_exchange(Result code, const std::string& why);  // tells the others, throws

  EventLoop& loop_;
  const int rank_, size_;

  // Loop thread only.
  std::array<Link, 2> links_;  // by Side
  std::set<int> dead_;
  std::set<uint64_t> seen_;
  Report report_;
  std::vector<Bootstrap::Trouble> unreported_;
  bool closed_ = false;

  std::mutex mutex_;  // for what follows
  std::condition_variable changed_;
  std::vector<Bootstrap::Peer> peers_;
  bool linked_[2] = {false, false};
  bool prev_left_ = false;
  std::optional<Bootstrap::Trouble> failure_;  // the first; ends every exchange
  std::map<uint32_t, Gather> gathers_;         // by sequence number
  uint32_t sequence_ = 0;
};

}  // namespace muster
