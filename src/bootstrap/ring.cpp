#include "bootstrap/ring.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/crypto.h"
#include "bootstrap/root.h"
#include "bootstrap/wire.h"

namespace muster {
namespace {

enum class Type : uint8_t { text = 1, news = 2, goodbye = 3 };

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
    Link& link = links_[side];
    if (closed_ || link.attached) return;
    link.attached = true;
    const auto self = weak_from_this();
    link.channel = std::make_unique<SecureChannel>(loop_, std::move(*shared),
                                             SecureChannel::Events{[self, side](std::string_view m) {
                                                               if (auto s = self.lock())
                                                                 s->on_message(side, m);
                                                             },
                                                             [self, side](int error) {
                                                               if (auto s = self.lock())
                                                                 s->on_end(side, error);
                                                             }});
    for (const std::string& m : std::exchange(link.waiting, {})) link.channel->send(m);
    const std::lock_guard lock(mutex_);
    linked_[side] = true;
    changed_.notify_all();
  });
}

bool Ring::linked(Side side) {
  const std::lock_guard lock(mutex_);
  return linked_[side];
}

void Ring::wait_linked(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto linked = [&] { return failure_ || (linked_[prev] && linked_[next]); };
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
            describe(neighbour(prev)), describe(rank_)));
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
    Writer w;
    w.u8(static_cast<uint8_t>(Type::text)).u32(sequence).i32(self->rank_).raw(text);
    self->take_text(sequence, self->rank_, text, w.take());
  });

  lock.lock();
  const auto complete = [&] { return gathers_[sequence].count == size_; };
  const bool in_time =
      wait_until(changed_, lock, deadline, [&] { return complete() || failure_ || prev_left_; });
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
  fail_exchange(
      Result::remote_error,
      fmt::format("{} has left the communicator, and {} still waits for it in exchange {}. All ranks must "
                  "make the same calls before they leave",
                  describe(neighbour(prev)), describe(rank_), sequence));
  return {};
}

void Ring::pass_on(std::string_view message, Side to) {
  Link& link = links_[to];
  if (!link.attached)
    link.waiting.emplace_back(message);
  else if (link.channel && !link.left)
    link.channel->send(message);
}

void Ring::take_text(uint32_t sequence, int origin, std::string_view text, std::string_view message) {
  if (neighbour(next) != origin) pass_on(message, next);
  const std::lock_guard lock(mutex_);
  Gather& g = gathers_[sequence];
  g.texts.resize(static_cast<size_t>(size_));
  auto& slot = g.texts[static_cast<size_t>(origin)];
  if (slot) return;
  slot = std::string(text);
  if (++g.count == size_) changed_.notify_all();
}

void Ring::on_message(Side from, std::string_view message) {
  Reader r(message);
  switch (static_cast<Type>(r.u8())) {
    case Type::text: {
      const uint32_t sequence = r.u32();
      const int origin = r.i32();
      if (!r.ok() || origin < 0 || origin >= size_ || origin == rank_) return;
      take_text(sequence, origin, message.substr(9), message);
      break;
    }
    case Type::news: {
      News n;
      n.id = r.u64();
      n.trouble.death = r.u8() != 0;
      n.trouble.communicator = r.u64();
      n.trouble.rank = r.i32();
      n.trouble.code = error_code(r.i32());
      n.trouble.message = r.text();
      if (r.ok() && r.at_end()) take_news(n, from);
      break;
    }
    case Type::goodbye: {
      links_[from].left = true;
      if (from != prev) break;
      const std::lock_guard lock(mutex_);
      prev_left_ = true;
      changed_.notify_all();
      break;
    }
  }
}

void Ring::on_end(Side side, int error) {
  Link& link = links_[side];
  SecureChannel::retire(std::move(link.channel));
  if (link.left || closed_) return;
  const int who = neighbour(side);
  News n;
  n.trouble = {who, Result::remote_error,
               fmt::format("{} ended without leaving the communicator: its connection to {} was closed{}. "
                           "Look for its own error message, or a "
                           "kill (out of memory?) on its host",
                           describe(who), describe(rank_), error ? " (" + describe_errno(error) + ")" : ""),
               true};
  take_news(n, {});
}

std::string Ring::encode(const News& n) {
  Writer w;
  w.u8(static_cast<uint8_t>(Type::news)).u64(n.id).u8(n.trouble.death).u64(n.trouble.communicator);
  return w.i32(n.trouble.rank).i32(static_cast<int>(n.trouble.code)).text(n.trouble.message).take();
}

std::string Ring::farewell(const Bootstrap::Trouble& trouble) { return encode({random_value<uint64_t>(), trouble}); }

void Ring::take_news(const News& n, std::optional<Side> from) {
  if (closed_) return;
  const bool death = n.trouble.death;
  if (death ? !dead_.insert(n.trouble.rank).second : !seen_.insert(n.id).second) return;
  const std::string message = encode(n);
  for (const Side to : {prev, next})
    if (from != to) pass_on(message, to);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_ && n.trouble.communicator == 0) failure_ = n.trouble;
    changed_.notify_all();
  }
  const bool own = !from && !death;
  if (own) return;
  if (report_) {
    const Report report = report_;  // it may close this ring
    report(n.trouble);
  } else {
    unreported_.push_back(n.trouble);
  }
}

void Ring::watch(Report report) {
  loop_.call([&] {
    if (closed_) return;
    report_ = report;
    for (const Bootstrap::Trouble& t : std::exchange(unreported_, {}))
      if (!closed_) report(t);
  });
}

void Ring::announce(const Bootstrap::Trouble& trouble) {
  loop_.post([self = shared_from_this(), news = News{random_value<uint64_t>(), trouble}] {
    self->take_news(news, {});
  });
}

void Ring::close(bool goodbye) {
  // In a call, not posted: a process that exits right afterwards has said it.
  loop_.call([&] {
    if (std::exchange(closed_, true)) return;
    for (Link& link : links_) {
      if (goodbye && link.channel) {
        link.channel->send(Writer().u8(static_cast<uint8_t>(Type::goodbye)).take());
        SecureChannel::finish(std::move(link.channel));
      } else {
        SecureChannel::retire(std::move(link.channel));
      }
    }
    report_ = nullptr;
    unreported_.clear();
    const std::lock_guard lock(mutex_);
    if (!failure_)
      failure_ = Bootstrap::Trouble{rank_, Result::invalid_usage, "this rank has left the communicator"};
    changed_.notify_all();
  });
}

}  // namespace muster
