// The ring's connections: how they end, and how the ring heals.
#include "base/error.h"
#include "base/log.h"
#include "bootstrap/ring.h"
#include "bootstrap/root.h"

namespace muster {
namespace {

// Ranks that leave one behind the other needn't be connected to in between.
constexpr std::chrono::milliseconds kAfterGoodbye{100};
// How long news of a rank may take that this one learns of otherwise.
constexpr std::chrono::seconds kNewsTime{1};
// What a rank that left had told may still come, by ranks between.
constexpr std::chrono::seconds kLastWords{5};
// What a replaced connection may still bring.
constexpr std::chrono::seconds kFading{5};

}  // namespace

// The next rank on that side that may be there; this rank: none.
int Ring::beyond(Side side, int rank) const {
  do rank = (rank + (side == Side::next ? 1 : size_ - 1)) % size_;
  while (absent(rank));
  return rank;
}

void Ring::connect(Side side, int who, ProcessFd fd) {
  Link& l = link(side);
  fade(l);
  l.search.reset();
  loop_.cancel(std::exchange(l.timer, 0));
  l.neighbour = who;
  l.number = ++connections_;
  if (ways_) limit_silence(fd.get(), ways_->silence);
  const auto self = weak_from_this();
  const uint64_t number = l.number;
  l.channel = std::make_unique<SecureChannel>(loop_, std::move(fd),
                                              SecureChannel::Events{[self, side, number](std::string_view m) {
                                                                      if (auto s = self.lock())
                                                                        s->on_message(side, number, m);
                                                                    },
                                                                    [self, side, number](int error) {
                                                                      if (auto s = self.lock())
                                                                        s->on_end(side, number, error);
                                                                    }});
  flood_.linked(side, who);
  const std::lock_guard lock(mutex_);
  linked_[static_cast<size_t>(side)] = true;
  changed_.notify_all();
}

// Takes the place of a connection that is still open: its rank's last words may be under way.
void Ring::fade(Link& l) {
  if (!l.channel) return;
  if (const auto news = dead_.find(l.neighbour); news != dead_.end()) l.channel->send(news->second);
  const uint64_t number = l.number;
  fading_.emplace(number, std::move(l.channel));
  loop_.at(EventLoop::Clock::now() + kFading, [weak = weak_from_this(), number] {
    const auto self = weak.lock();
    if (!self) return;
    if (auto channel = self->fading_.extract(number)) SecureChannel::retire(std::move(channel.mapped()));
  });
}

void Ring::on_end(Side side, uint64_t number, int error) {
  if (auto faded = fading_.extract(number)) return SecureChannel::retire(std::move(faded.mapped()));
  Link& l = link(side);
  if (number != l.number) return;
  SecureChannel::retire(std::move(l.channel));
  flood_.unlinked(side, l.neighbour);
  if (!closed_ && !given_up_) lose(side, error);
}

void Ring::on_goodbye(Side side) {
  const int who = link(side).neighbour;
  is_gone(who);
  if (has_texts_) expect_last_words(who);
}

// A rank that left told so, last of all; if that doesn't come, other things that it told haven't come either.
void Ring::expect_last_words(int rank) {
  if (rank == rank_ || left_.contains(rank)) return;
  loop_.at(EventLoop::Clock::now() + kLastWords, [weak = weak_from_this(), rank] {
    const auto self = weak.lock();
    if (!self || self->leaving_ || self->left_.contains(rank) || self->dead_.contains(rank)) return;
    const News n{0, {rank, Result::remote_error,
                     fmt::format("{} has left, and what it told before didn't come to {}: the ranks between them were stopped, or their "
                                 "hosts cut off, for more than a second. Look at them",
                                 self->describe(rank), self->describe(self->rank_)), true}};
    self->spread(n);
    self->take_news(n, true);
  });
}

void Ring::lose(Side side, int error) {
  const int who = link(side).neighbour;
  if (absent(who) || left_.contains(who)) return is_gone(who);
  const bool timeout = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
  if (!ways_ && !timeout)
    return declare_dead(
        who, fmt::format("{} ended without leaving the communicator: its connection to {} was closed{}. Look for its own "
                         "error message, or a kill (out of memory?) on its host",
                         describe(who), describe(rank_), error ? " (" + describe_errno(error) + ")" : ""));
  if (!ways_) return declare_dead(who, fmt::format("{} can't be reached any more by {}: {}. Check its host and the network between "
                                            "them", describe(who), describe(rank_), describe_errno(error)));
  look(side, false, error);
}

// To the next side: for the nearest rank that is still there, `clean` if those that aren't have left in good order.
// To the previous side: whether the neighbour is.
void Ring::look(Side side, bool clean, int error) {
  Link& l = link(side);
  if (l.search || l.neighbour == rank_) return;
  const bool ask = side == Side::prev;
  std::vector<Search::Candidate> candidates;
  for (int r = l.neighbour; r != rank_ && !(ask && r != l.neighbour); r = beyond(side, r))
    candidates.push_back(ways_->ranks[static_cast<size_t>(r)]);
  // What is left of the time after the connection's own.
  const auto patience = ways_->silence / 3;
  l.search = std::make_shared<Search>(
      loop_, ways_->mine, ways_->source, std::move(candidates), ask,
      // The other end of a connection that broke tries it again; who waits for that gives it more time.
      ask ? patience + ways_->silence : patience, ways_->silence,
      Search::Events{[this, side](int rank, ProcessFd fd) {
                       const auto done = std::move(link(side).search);
                       if (fd) connect(side, rank, std::move(fd));
                     },
                     [this, clean, error](int rank, const Search::Gone& why) {
                       const auto self = shared_from_this();  // what is reported may end it
                       if (clean) return is_gone(rank);
                       const auto& at = ways_->ranks[static_cast<size_t>(rank)].target;
                       const std::chrono::duration<double> whole = ways_->silence + ways_->silence / 3;
                       declare_dead(
                           rank,
                           why.unreachable
                               ? fmt::format("{} can't be reached any more: nothing has come from {} to {} for {:.0f} s ({}). Check that "
                                             "its host is up, its network interface and cables, and firewalls on the way; "
                                             "MUSTER_LINK_TIMEOUT is how long is waited",
                                             describe(rank), at.text(), describe(rank_), whole.count(), why.reason)
                               : fmt::format(
                                     "{} ended without leaving the communicator: its connection to {} was closed{}, and "
                                     "at {} it isn't any more. Look for its own error message, or a kill (out of "
                                     "memory?) on its host",
                                     describe(rank), describe(rank_), error ? " (" + describe_errno(error) + ")" : "",
                                     at.text()));
                     },
                     [this, side] { const auto done = std::move(link(side).search); }});
  l.search->start();
}

// The ring tells of deaths and goodbyes, a little later. What is lost otherwise is a connection.
void Ring::lose_branch(int rank, int error) {
  loop_.at(EventLoop::Clock::now() + kNewsTime, [weak = weak_from_this(), rank, error] {
    const auto self = weak.lock();
    if (!self || self->leaving_ || self->absent(rank)) return;
    const std::string why =
        fmt::format("the connection of {} to {}, by which all ranks exchange texts, was closed{}", self->describe(self->rank_),
                    self->describe(rank), error ? " (" + describe_errno(error) + ")" : "");
    const std::lock_guard lock(self->mutex_);
    self->broken_ = why;
    self->changed_.notify_all();
  });
}

void Ring::declare_dead(int rank, const std::string& why) {
  if (closed_ || absent(rank)) return;
  if (left_.contains(rank)) return is_gone(rank);
  const News n{0, {rank, Result::remote_error, why, true}};
  spread(n);
  take_news(n, true);
}

void Ring::is_gone(int rank) {
  if (rank == rank_) {  // so the others say
    given_up_ = true;
    for (Link& l : links_) l.search.reset();
    return;
  }
  gone_.insert(rank);
  for (const Side side : kSides) {
    if (link(side).search) link(side).search->leave_out(rank);
    if (link(side).neighbour == rank) move_on(side);
  }
}

void Ring::move_on(Side side) {
  Link& l = link(side);
  const int who = l.neighbour;
  fade(l);
  l.neighbour = beyond(side, who);
  l.number = ++connections_;  // nothing has come by it
  flood_.unlinked(side, l.neighbour);
  if (side == Side::prev) {
    l.search.reset();
    return;
  }
  if (l.neighbour == rank_ || !ways_ || l.search || closed_ || given_up_) return;
  if (dead_.contains(who)) return look(side, false, 0);
  loop_.cancel(l.timer);
  const auto rest = flood_.kept() > 0 ? std::chrono::milliseconds(0) : kAfterGoodbye;  // others wait for what this rank has
  l.timer = loop_.at(EventLoop::Clock::now() + rest, [weak = weak_from_this(), side] {
    const auto self = weak.lock();
    if (!self || self->closed_) return;
    self->link(side).timer = 0;
    self->look(side, true, 0);
  });
}

void Ring::accept(int rank, ProcessFd fd) {
  if (closed_ || rank < 0 || rank >= size_ || rank == rank_) return;
  if (absent(rank)) return turn_away(rank, std::move(fd));
  // Those in between aren't there any more. If they are dead, news of it come.
  while (link(Side::prev).neighbour != rank && link(Side::prev).neighbour != rank_) is_gone(link(Side::prev).neighbour);
  if (link(Side::prev).neighbour == rank) connect(Side::prev, rank, std::move(fd));
}

void Ring::turn_away(int rank, ProcessFd fd) {
  auto channel = std::make_unique<SecureChannel>(loop_, std::move(fd), SecureChannel::Events{});
  const auto news = dead_.find(rank);
  channel->send(news != dead_.end()
                    ? news->second
                    : farewell({rank, Result::remote_error,
                                fmt::format("the other ranks went on without {}: it didn't answer them", describe(rank)), true}));
  SecureChannel::finish(std::move(channel));
}

void Ring::heal(Ways ways) {
  loop_.call([&] {
    if (closed_) return;
    ways_ = std::move(ways);
    tree_.limit_silence(ways_->silence);
    for (const Side side : kSides) {
      Link& l = link(side);
      if (l.channel) l.channel->limit_silence(ways_->silence);
      else if (l.neighbour != rank_ && side == Side::next) look(side, false, 0);
    }
  });
}

}  // namespace muster
