#include "bootstrap/root.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/gather_tree.h"
#include "base/most_ranks.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kJoinTime{5};
constexpr size_t kMaxName = 255;
constexpr size_t kMaxFarewell = 1000;

void write(Writer& w, const Host& h) { w.text(h.name).i32(h.pid).u64(h.place); }
// A text that goes into messages to all ranks.
std::string read_name(Reader& r) {
  std::string name = r.text();
  if (name.size() > kMaxName) r.reject();
  return name;
}
Host read_host(Reader& r) {
  Host h;
  h.name = read_name(r);
  h.pid = r.i32();
  h.place = r.u64();
  return h;
}

std::string describe(const Join& j) { return describe_rank(j.rank, j.host.name, j.host.pid); }

}  // namespace

std::string describe_rank(int rank, const std::string& host, int pid) {
  if (host.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (host {}, pid {})", rank, host, pid);
}

std::string describe_ranks(const std::vector<int>& ranks) {
  std::string r = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size() && i < 20; ++i) r += fmt::format("{}{}", i ? ", " : " ", ranks[i]);
  if (ranks.size() > 20) r += fmt::format(" and {} more", ranks.size() - 20);
  return r;
}

int first_of(int root, int roots, int nranks) {
  return root * (nranks / roots) + std::min(root, nranks % roots);
}

int root_of(int rank, int roots, int nranks) {
  const int share = nranks / roots, longer = nranks % roots;  // the first shares have one rank more
  return rank < longer * (share + 1) ? rank / (share + 1) : (rank - longer) / share;
}

std::string Join::encode() const {
  Writer w;
  w.i32(rank).i32(nranks).u64(token);
  listener.write(w);
  write(w, host);
  return w.u32(patience).text(version).i32(roots).i32(root).take();
}

std::optional<Join> Join::decode(std::string_view message) {
  Reader r(message);
  Join j;
  j.rank = r.i32();
  j.nranks = r.i32();
  j.token = r.u64();
  j.listener = Address::read(r);
  j.host = read_host(r);
  j.patience = r.u32();
  j.version = read_name(r);
  j.roots = r.i32();
  j.root = r.i32();
  if (!r.ok() || !r.at_end() || j.nranks < 1 || j.nranks > kMostRanks || j.rank < 0 || j.rank >= j.nranks)
    return std::nullopt;
  if (j.roots < 1 || j.roots > j.nranks || j.root < 0 || j.root >= j.roots) return std::nullopt;
  const int next = (j.root + 1) % j.roots;
  if (root_of(j.rank, j.roots, j.nranks) != j.root && first_of(next, j.roots, j.nranks) != j.rank) return std::nullopt;
  return j;
}

std::string Answer::encode() const {
  Writer w;
  w.i32(static_cast<int>(code)).text(error).u64(communicator_id);
  next.write(w);
  w.u64(next_token);
  write(w, next_host);
  write(w, prev_host);
  parent.write(w);
  w.u64(parent_token);
  write(w, parent_host);
  return w.take();
}

std::optional<Answer> Answer::decode(std::string_view message) {
  Reader r(message);
  Answer a;
  const int code = r.i32();
  a.code = code == 0 ? Result::success : error_code(code);
  a.error = r.text();
  a.communicator_id = r.u64();
  a.next = Address::read(r);
  a.next_token = r.u64();
  a.next_host = read_host(r);
  a.prev_host = read_host(r);
  a.parent = Address::read(r);
  a.parent_token = r.u64();
  a.parent_host = read_host(r);
  if (!r.ok() || !r.at_end()) return std::nullopt;
  return a;
}

void Root::start(Service& service, const IdContent& id) {
  auto root = std::make_shared<Root>(service, id);
  service.open(root->name(), id.key, [root](Arrival a) { root->admit(std::move(a)); });
}

Root::~Root() {
  service_.loop().cancel(timer_);
  for (auto& [n, m] : members_) {
    service_.loop().cancel(m.timer);
    SecureChannel::retire(std::move(m.channel));
  }
}

void Root::admit(Arrival arrival) {
  const uint64_t n = ++arrivals_;
  Member& m = members_[n];
  m.timer = service_.loop().at(EventLoop::Clock::now() + kJoinTime, [this, n] { drop(members_.find(n)); });
  m.channel = std::make_unique<SecureChannel>(service_.loop(), std::move(arrival.fd),
                                        SecureChannel::Events{[self = weak_from_this(), n](std::string_view text) {
                                                          if (auto s = self.lock()) s->on_message(n, text);
                                                        },
                                                        [self = weak_from_this(), n](int) {
                                                          if (auto s = self.lock()) s->on_end(n);
                                                        }});
}

void Root::drop(Members::iterator m) {
  if (m == members_.end()) return;
  service_.loop().cancel(m->second.timer);
  SecureChannel::retire(std::move(m->second.channel));
  members_.erase(m);
}

void Root::on_end(uint64_t n) {
  const auto m = members_.find(n);
  if (m == members_.end()) return;
  const std::optional<Join> join = m->second.join;
  drop(m);
  if (!join) return;
  by_rank_.erase(join->rank);
  give_up(Result::remote_error, fmt::format("{} left while the ranks were still meeting ({} of {} had come)",
                                            describe(*join), by_rank_.size() + 1, expected().size()));
}

std::string Root::objection(const Join& j) const {
  if (by_rank_.empty()) return {};
  const Join& first = *members_.at(by_rank_.begin()->second).join;
  if (j.nranks != nranks_)
    return fmt::format(
        "the ranks disagree on their number: {} says {}, {} says {}. Pass the same nranks on every rank",
        describe(j), j.nranks, describe(first), nranks_);
  if (j.roots != roots_ || j.root != root_)
    return fmt::format(
        "the ranks disagree on their ids: this one is number {} of {} for {}, and number {} of {} for {}. Pass the "
        "same ids in the same order on every rank",
        j.root, j.roots, describe(j), root_, roots_, describe(first));
  if (j.version != first.version)
    return fmt::format(
        "the ranks use different versions: {} has Muster {}, {} has {}. Use the same on all ranks",
        describe(j), j.version, describe(first), first.version);
  if (const auto same = by_rank_.find(j.rank); same != by_rank_.end()) {
    const Join& other = *members_.at(same->second).join;
    return fmt::format(
        "rank {} was given twice: to pid {} on host {} and to pid {} on host {}. Give each of the {} ranks "
        "its own number",
        j.rank, other.host.pid, other.host.name, j.host.pid, j.host.name, nranks_);
  }
  return {};
}

// Two neighbours of which one listens only where the other can't come.
std::string Root::isolation() const {
  for (const int r : expected()) {
    if (!serves(r)) continue;
    const Join& from = *members_.at(by_rank_.at(r)).join;
    const Join& to = *members_.at(by_rank_.at((r + 1) % nranks_)).join;
    if (to.listener.only_here() && from.host.place != to.host.place)
      return fmt::format(
          "{} has no network interface but loopback that it may use ({}), so {} on another host or network "
          "namespace can't "
          "reach it. Give it a network, or set NCCL_SOCKET_IFNAME",
          describe(to), to.listener.text(), describe(from));
  }
  return {};
}

std::vector<int> Root::expected() const {
  std::vector<int> ranks;
  for (int r = first_of(root_, roots_, nranks_); r < first_of(root_ + 1, roots_, nranks_); ++r) ranks.push_back(r);
  if (roots_ > 1) ranks.push_back(first_of((root_ + 1) % roots_, roots_, nranks_));
  return ranks;
}

std::string Root::missing() const {
  std::vector<int> ranks;
  for (const int r : expected())
    if (!by_rank_.contains(r)) ranks.push_back(r);
  return describe_ranks(ranks);
}

void Root::on_message(uint64_t n, std::string_view message) {
  const auto self = shared_from_this();
  const auto m = members_.find(n);
  if (m == members_.end()) return;
  if (m->second.join) {  // why it goes
    by_rank_.erase(m->second.join->rank);
    return give_up(Result::remote_error, std::string(message.substr(0, kMaxFarewell)));
  }
  const std::optional<Join> j = Join::decode(message);
  if (!j) return drop(m);
  service_.loop().cancel(std::exchange(m->second.timer, 0));
  const std::string no = objection(*j);
  m->second.join = j;
  if (!no.empty()) return give_up(Result::invalid_argument, no);
  nranks_ = j->nranks;
  roots_ = j->roots;
  root_ = j->root;
  by_rank_[j->rank] = n;
  if (by_rank_.size() == expected().size()) {
    const std::string split = isolation();
    return split.empty() ? complete() : give_up(Result::invalid_usage, split);
  }
  // When the first of them loses patience there can't be a communicator any more.
  deadline_ = std::min(deadline_, EventLoop::Clock::now() + std::chrono::milliseconds(j->patience));
  set_timer();
}

void Root::set_timer() {
  service_.loop().cancel(timer_);
  timer_ = service_.loop().at(deadline_, [this] {
    timer_ = 0;
    give_up(
        Result::timeout,
        fmt::format(
            "{} never came: {} of {} ranks met within the time allowed. Start the missing ones with the same "
            "unique id, look for their errors, or allow more time with MUSTER_INIT_TIMEOUT",
            missing(), by_rank_.size(), expected().size()));
  });
}

void Root::complete() {
  const auto communicator_id = random_value<uint64_t>();
  for (const auto& [rank, n] : by_rank_) {
    Answer a{Result::success, {}, communicator_id};
    if (serves(rank)) {
      const Join& next = *members_.at(by_rank_.at((rank + 1) % nranks_)).join;
      a.next = next.listener;
      a.next_token = next.token;
      a.next_host = next.host;
    }
    if (const auto p = by_rank_.find(tree_parent(rank, roots_, nranks_)); p != by_rank_.end()) {
      const Join& parent = *members_.at(p->second).join;
      a.parent = parent.listener;
      a.parent_token = parent.token;
      a.parent_host = parent.host;
    }
    if (const auto prev = by_rank_.find((rank + nranks_ - 1) % nranks_); prev != by_rank_.end())
      a.prev_host = members_.at(prev->second).join->host;
    members_.at(n).channel->send(a.encode());
  }
  finish(Result::invalid_argument, fmt::format("this unique id was already used, for a communicator of {} "
                                               "ranks. Make a new one for each communicator",
                                               nranks_));
}

void Root::give_up(Result code, const std::string& why) {
  const auto self = shared_from_this();
  log_debug(Topic::bootstrap, "root of a unique id gives up: {}", why);
  for (auto& [n, m] : members_)
    if (m.join) m.channel->send(Answer{code, why}.encode());
  finish(code, fmt::format(
                   "this unique id was already used, and the ranks that used it gave up: {}. Make a new one "
                   "for each attempt",
                   why));
}

void Root::finish(Result late_code, const std::string& late_text) {
  const auto self = shared_from_this();
  service_.loop().cancel(std::exchange(timer_, 0));
  for (auto& [n, m] : members_) {
    service_.loop().cancel(std::exchange(m.timer, 0));
    if (!m.join) m.channel->send(Answer{late_code, late_text}.encode());  // it was about to say who it is
    SecureChannel::finish(std::move(m.channel));
  }
  members_.clear();
  by_rank_.clear();
  if (id_.fixed) {
    service_.close(name());
    service_.close_fixed(id_.root);
  } else {
    service_.retire(name(), id_.key, Answer{late_code, late_text}.encode());
  }
}

}  // namespace muster
