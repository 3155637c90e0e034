#include "bootstrap/ring.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/crypto.h"
#include "bootstrap/root.h"
#include "bootstrap/service.h"
#include "bootstrap/wire.h"

namespace muster {
namespace {

// How long a rank that leaves waits for others to pass on what was told: since something moved, and in all.
constexpr std::chrono::seconds kNothingMoves{1}, kLongestLeave{5};

// On a connection. News come so only from ranks that aren't in the ring.
enum class Type : uint8_t { news = 2, goodbye = 3, flood = 4 };
// What is told.
enum class Kind : uint8_t { text = 1, news = 2, left = 3 };

std::string of_kind(Kind kind, std::string_view text) {
  return Writer().u8(static_cast<uint8_t>(kind)).raw(text).take();
}

// Waits under the lock until `done`; false: the deadline came first.
template <class Done>
bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Deadline deadline,
                Done done) {
  using namespace std::chrono_literals;
  while (!done()) {
    if (deadline.expired()) return false;
    changed.wait_for(lock, std::min<std::chrono::nanoseconds>(deadline.nap(), 1h));
  }
  return true;
}

}  // namespace

Ring::Ring(EventLoop& loop, int rank, int size, int roots)
    : loop_(loop),
      rank_(rank),
      size_(size),
      flood_(
          rank, size,
          [this](Side to, std::string_view message) {
            if (link(to).channel)
              link(to).channel->send(Writer().u8(static_cast<uint8_t>(Type::flood)).raw(message).take());
          },
          [this](int origin, std::string_view text) { on_told(origin, text); }),
      tree_(loop, rank, roots, size,
            {[this](uint32_t sequence, int origin, std::string_view text) { take_text(sequence, origin, text); },
             [this](int who, int error) { lose_branch(who, error); }}),
      peers_(static_cast<size_t>(size)) {
  for (const Side s : kSides) link(s).neighbour = neighbour(s);
}

void Ring::set_peer(int rank, Bootstrap::Peer peer) {
  const std::lock_guard lock(mutex_);
  peers_[static_cast<size_t>(rank)] = std::move(peer);
}

std::string Ring::describe(int rank) {
  if (rank < 0 || rank >= size_) return "an unknown rank";
  const std::lock_guard lock(mutex_);
  const Bootstrap::Peer& p = peers_[static_cast<size_t>(rank)];
  return describe_rank(rank, p.host, p.pid);
}

void Ring::attach(Side side, ProcessFd fd) {
  // The loop owns links; a function object must be copyable, a descriptor isn't.
  auto shared = std::make_shared<ProcessFd>(std::move(fd));
  loop_.call([&] {
    if (!closed_ && link(side).number == 0) connect(side, neighbour(side), std::move(*shared));
  });
}

void Ring::attach_branch(int rank, ProcessFd fd) {
  auto shared = std::make_shared<ProcessFd>(std::move(fd));
  loop_.call([&] {
    if (!closed_) tree_.connect(rank, std::move(*shared));
  });
}

bool Ring::linked(Side side) {
  const std::lock_guard lock(mutex_);
  return linked_[static_cast<size_t>(side)];
}

void Ring::wait_linked(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto linked = [&] { return failure_ || (linked_[0] && linked_[1]); };
  bool in_time = false;
  while (!(in_time = linked()) && !deadline.expired()) {
    changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(deadline.nap(), std::chrono::milliseconds(200)));
    try {
      Service::get().require_accepting();
    } catch (const Error& e) {
      lock.unlock();
      fail_exchange(e.code(), e.what());
    }
  }
  if (failure_) {
    const Bootstrap::Trouble f = *failure_;
    lock.unlock();
    fail(f.code, "{}", f.message);
  }
  lock.unlock();
  require_not_cancelled(deadline);
  if (!in_time)
    fail_exchange(
        Result::timeout,
        fmt::format(
            "{} met the others but didn't connect to {}. Is a firewall between them? MUSTER_PORT_RANGE "
            "limits the ports that need to be open",
            describe(neighbour(Side::prev)), describe(rank_)));
}

// Who is told why is the caller's business, who knows more of it.
void Ring::require_not_cancelled(Deadline deadline) {
  if (deadline.cancelled())
    fail(Result::remote_error, "{} aborted while the communicator was being made", describe(rank_));
}

void Ring::fail_exchange(Result code, const std::string& why) {
  announce({rank_, code, why});
  fail(code, "{}", why);
}

std::vector<int> Ring::silent_ranks(uint32_t sequence) {
  std::vector<int> r;
  const std::lock_guard lock(mutex_);
  const Gather& g = gathers_[sequence];
  for (int i = 0; i < size_; ++i)
    if (g.texts.empty() || !g.texts[static_cast<size_t>(i)]) r.push_back(i);
  return r;
}

std::vector<std::string> Ring::all_gather(std::string_view mine, Deadline deadline) {
  if (mine.size() > SecureChannel::kMaxMessage / 2)
    fail(Result::invalid_argument, "a text of {} bytes is too long for an exchange; {} is the most",
         mine.size(), SecureChannel::kMaxMessage / 2);
  require_not_cancelled(deadline);
  std::unique_lock lock(mutex_);
  const uint32_t sequence = sequence_++;
  lock.unlock();
  loop_.post([self = shared_from_this(), sequence, text = std::string(mine)] {
    if (!self->leaving_) self->tree_.give(sequence, text);
  });

  lock.lock();
  const auto complete = [&] { return gathers_[sequence].count == size_; };
  const bool in_time =
      wait_until(changed_, lock, deadline, [&] { return complete() || failure_ || who_left(sequence) || !broken_.empty(); });
  if (complete()) {
    std::vector<std::string> r;
    for (auto& text : gathers_[sequence].texts) r.push_back(std::move(*text));
    gathers_.erase(sequence);
    return r;
  }
  if (failure_) {
    const Bootstrap::Trouble f = *failure_;
    lock.unlock();
    fail(f.code, "{}", f.message);
  }
  const std::optional<int> left = who_left(sequence);
  const std::string broken = broken_;
  lock.unlock();
  require_not_cancelled(deadline);
  if (!in_time) {
    const std::vector<int> silent = silent_ranks(sequence);
    fail_exchange(Result::timeout,
                  fmt::format("{} did not take part in exchange {} of the communicator in time (waiting: "
                              "{}). They may be stopped, or on "
                              "another path of the program; MUSTER_INIT_TIMEOUT allows more time",
                              describe_ranks(silent), sequence, describe(rank_)));
  }
  if (!left) fail_exchange(Result::remote_error, broken);
  fail(Result::remote_error,
       "{} has left the communicator, and {} still waits for it in exchange {}. All ranks must make the same calls "
       "before they leave",
       describe(*left), describe(rank_), sequence);
}

// Under the lock. All ranks learn of it by themselves.
std::optional<int> Ring::who_left(uint32_t sequence) {
  for (const auto& [rank, exchanges] : left_)
    if (exchanges <= sequence) return rank;
  return std::nullopt;
}

void Ring::take_text(uint32_t sequence, int origin, std::string_view text) {
  const std::lock_guard lock(mutex_);
  Gather& g = gathers_[sequence];
  g.texts.resize(static_cast<size_t>(size_));
  auto& slot = g.texts[static_cast<size_t>(origin)];
  if (slot) return;
  slot = std::string(text);
  if (++g.count == size_) changed_.notify_all();
}

void Ring::on_message(Side from, uint64_t number, std::string_view message) {
  Reader r(message);
  switch (static_cast<Type>(r.u8())) {
    case Type::news: {
      const std::optional<News> n = decode(r);
      if (n && !(n->trouble.death ? dead_.contains(n->trouble.rank) : seen_.contains(n->id))) {
        spread(*n);
        take_news(*n, false);
      }
      break;
    }
    case Type::goodbye: {
      if (number == link(from).number) on_goodbye(from);
      break;
    }
    case Type::flood: flood_.take(from, r); break;
  }
  if (leaving_) {
    moved_ = EventLoop::Clock::now();
    loop_.post([self = shared_from_this()] { self->leave_when_told(); });  // not within a connection's event
  }
}

void Ring::on_told(int origin, std::string_view text) {
  Reader r(text);
  switch (static_cast<Kind>(r.u8())) {
    case Kind::text: {
      has_texts_ = true;
      if (leaving_ || (watched_ && !told_)) break;
      if (watched_) {
        const Told told = told_;  // it may close this ring
        told(origin, r.rest());
      } else {
        untold_.emplace_back(origin, r.rest());
      }
      break;
    }
    case Kind::news: {
      if (const std::optional<News> n = decode(r)) take_news(*n, false);
      break;
    }
    case Kind::left: {
      const uint32_t exchanges = r.u32();
      if (!r.ok()) break;
      const std::lock_guard lock(mutex_);
      left_.emplace(origin, exchanges);
      changed_.notify_all();
      break;
    }
  }
}

std::string Ring::encode(const News& n) {
  Writer w;
  w.u64(n.id).u8(n.trouble.death).u64(n.trouble.communicator);
  return w.i32(n.trouble.rank).i32(static_cast<int>(n.trouble.code)).text(n.trouble.message).take();
}

std::optional<Ring::News> Ring::decode(Reader r) {
  News n;
  n.id = r.u64();
  n.trouble.death = r.u8() != 0;
  n.trouble.communicator = r.u64();
  n.trouble.rank = r.i32();
  n.trouble.code = error_code(r.i32());
  n.trouble.message = r.text();
  if (!r.ok() || !r.at_end()) return std::nullopt;
  return n;
}

std::string Ring::farewell(const Bootstrap::Trouble& trouble) {
  return Writer().u8(static_cast<uint8_t>(Type::news)).raw(encode({random_value<uint64_t>(), trouble})).take();
}

std::string Ring::goodbye() { return Writer().u8(static_cast<uint8_t>(Type::goodbye)).take(); }

void Ring::spread(const News& n) { flood_.tell(of_kind(Kind::news, encode(n))); }

void Ring::take_news(const News& n, bool own) {
  if (closed_) return;
  const Bootstrap::Trouble& t = n.trouble;
  if (t.death) {
    const bool known = dead_.contains(t.rank), left = left_.contains(t.rank);
    if (known || left || t.rank < 0 || t.rank >= size_) return;
    dead_.emplace(t.rank, farewell(t));
  } else if (!seen_.insert(n.id).second) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (!failure_ && t.communicator == 0) failure_ = t;
    changed_.notify_all();
  }
  if (t.death) is_gone(t.rank);
  if (own && !t.death) return;
  if (report_) {
    const Report report = report_;  // it may close this ring
    report(t);
  } else if (!leaving_) {
    unreported_.push_back(t);
  }
}

void Ring::tell(std::string_view text) {
  constexpr size_t kLongest = 1 << 20;
  if (text.size() > kLongest)
    fail(Result::invalid_argument, "a text of {} bytes is too long to be told; {} is the most", text.size(), kLongest);
  loop_.post([self = shared_from_this(), told = of_kind(Kind::text, text)] {
    if (self->leaving_) return;
    self->has_texts_ = true;
    self->flood_.tell(told);
  });
}

void Ring::watch(Report report, Told told) {
  loop_.call([&] {
    if (leaving_) return;
    report_ = report;
    told_ = told;
    watched_ = true;
    for (const auto& [origin, text] : std::exchange(untold_, {}))
      if (!leaving_ && told) told(origin, text);
    for (const Bootstrap::Trouble& t : std::exchange(unreported_, {}))
      if (!leaving_) report(t);
  });
}

void Ring::announce(const Bootstrap::Trouble& trouble) {
  loop_.post([self = shared_from_this(), news = News{random_value<uint64_t>(), trouble}] {
    if (self->leaving_) return;
    self->spread(news);
    self->take_news(news, true);
  });
}

void Ring::close(bool goodbye, std::function<void()> ended) {
  // In a call, not posted: a process that exits right afterwards has said it.
  loop_.call([&] {
    if (std::exchange(leaving_, true)) return;
    ended_ = std::move(ended);
    report_ = nullptr;
    told_ = nullptr;
    unreported_.clear();
    untold_.clear();
    tree_.close(goodbye);
    uint32_t exchanges = 0;
    {
      const std::lock_guard lock(mutex_);
      exchanges = sequence_;
      if (!failure_) failure_ = Bootstrap::Trouble{rank_, Result::invalid_usage, "this rank has left the communicator"};
      changed_.notify_all();
    }
    if (goodbye) flood_.tell(of_kind(Kind::left, Writer().u32(exchanges).take()));
    if (!goodbye || !has_texts_) return end(goodbye);
    moved_ = EventLoop::Clock::now();
    leave_by_ = moved_ + kLongestLeave;
    leave_when_told();
  });
  if (loop_.on_thread()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return over_; });
}

// Ranks that pass nothing on are stopped, or their hosts can't be reached.
void Ring::leave_when_told() {
  if (closed_) return;
  const auto now = EventLoop::Clock::now();
  const bool alone = link(Side::prev).neighbour == rank_ && link(Side::next).neighbour == rank_;
  const auto until = std::min(moved_ + kNothingMoves, leave_by_);
  if (alone || given_up_ || flood_.kept() == 0) return end(true);
  if (now >= until) {
    log_info(Topic::bootstrap, "{} leaves while {} texts haven't gone round yet: others pass nothing on", describe(rank_), flood_.kept());
    return end(true);
  }
  loop_.cancel(std::exchange(leave_timer_, 0));
  leave_timer_ = loop_.at(until, [self = shared_from_this()] { self->leave_when_told(); });
}

void Ring::end(bool goodbye) {
  if (std::exchange(closed_, true)) return;
  loop_.cancel(std::exchange(leave_timer_, 0));
  for (Link& l : links_) {
    loop_.cancel(std::exchange(l.timer, 0));
    l.search.reset();
    if (goodbye && l.channel) {
      l.channel->send(Ring::goodbye());
      SecureChannel::finish(std::move(l.channel));
    } else {
      SecureChannel::retire(std::move(l.channel));
    }
  }
  for (auto& [number, channel] : std::exchange(fading_, {})) SecureChannel::retire(std::move(channel));
  if (ended_) std::exchange(ended_, {})();
  const std::lock_guard lock(mutex_);
  over_ = true;
  changed_.notify_all();
}

}  // namespace muster
