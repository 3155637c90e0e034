#include "bootstrap/descriptors.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <map>
#include <memory>

#include "base/error.h"
#include "bootstrap/arrivals.h"
#include "bootstrap/fd_message.h"
#include "bootstrap/root.h"

namespace muster {
namespace {

constexpr char kGo = 'g', kDone = 'd';

struct Member {
  int rank;
  int fd;
  Deadline deadline;
  const Bootstrap& ranks;

  [[noreturn]] void lost(IoStatus status, const char* doing) const {
    const int error = errno;
    const Bootstrap::Peer& p = ranks.peers()[static_cast<size_t>(rank)];
    const std::string who = describe_rank(rank, p.host, p.pid);
    if (status == IoStatus::expired)
      fail(Result::timeout, "{} did not answer in time while descriptors were passed ({})", who, doing);
    if (status == IoStatus::closed)
      fail(Result::remote_error,
           "{} closed its connection while descriptors were passed ({}). Look for its own error", who, doing);
    fail(Result::system_error,
         "descriptors can't be passed {} {}: {}. Raise the limit of open files (ulimit -n) if it is too low",
         doing, who, describe_errno(error));
  }
  void say(char what) const {
    if (const IoStatus s = send_all(fd, {&what, 1}, deadline); s != IoStatus::done) lost(s, "to");
  }
  void expect(char what) const {
    char got = 0;
    if (const IoStatus s = recv_all(fd, &got, 1, deadline); s != IoStatus::done) lost(s, "from");
    if (got != what) {
      errno = EBADMSG;
      lost(IoStatus::failed, "from");
    }
  }
  void send(const int* fds, size_t count) const;
  std::vector<Fd> receive(size_t count) const;
};

void Member::send(const int* fds, size_t count) const {
  for (size_t n; count > 0; fds += n, count -= n) {
    n = std::min(count, kFdsPerMessage);
    if (const IoStatus s = send_fds(fd, {fds, n}, deadline); s != IoStatus::done) lost(s, "to");
  }
}

std::vector<Fd> Member::receive(size_t count) const {
  std::vector<Fd> r;
  while (r.size() < count)
    if (const IoStatus s = recv_fds(fd, r, deadline); s != IoStatus::done) lost(s, "from");
  if (r.size() > count) {
    errno = EBADMSG;
    lost(IoStatus::failed, "from");
  }
  return r;
}

using Receive = std::function<void(int rank, std::vector<Fd> fds)>;

// counts: of descriptors that each rank gives.
using Counts = std::vector<uint32_t>;

// The group's first rank.
void run_hub(const DescriptorExchange& x, int me, const Counts& counts, Arrivals& arrivals, const Receive& receive) {
  std::map<int, ProcessFd> connections;
  while (connections.size() + 1 < x.group.size()) {
    std::optional<Arrival> a = arrivals.wait(x.deadline);
    if (!a)
      fail(Result::timeout, "only {} of {} ranks of this host connected for descriptors in time",
           connections.size() + 1, x.group.size());
    const int rank = static_cast<int>(a->rank);
    if (std::find(x.group.begin() + 1, x.group.end(), rank) != x.group.end())
      connections[rank] = std::move(a->fd);
  }
  const auto member = [&](int rank) { return Member{rank, connections.at(rank).get(), x.deadline, x.ranks}; };
  for (const int owner : x.group) {
    std::vector<Fd> theirs;
    std::vector<int> fds = x.mine;
    const size_t count = counts[static_cast<size_t>(owner)];
    if (count == 0) {
      if (owner != me) receive(owner, {});
      continue;
    }
    if (owner != me) {
      member(owner).say(kGo);
      theirs = member(owner).receive(count);
      fds.clear();
      for (const Fd& f : theirs) fds.push_back(f.get());
    }
    for (const int other : x.group)
      if (other != me && other != owner) member(other).send(fds.data(), fds.size());
    for (const int other : x.group)
      if (other != me && other != owner) member(other).expect(kDone);
    if (owner != me) receive(owner, std::move(theirs));
  }
}

void run_member(const DescriptorExchange& x, int me, const Counts& counts, int fd, const Receive& receive) {
  const Member hub{x.group.front(), fd, x.deadline, x.ranks};
  for (const int owner : x.group) {
    const size_t count = counts[static_cast<size_t>(owner)];
    if (count == 0) {
      if (owner != me) receive(owner, {});
    } else if (owner == me) {
      hub.expect(kGo);
      hub.send(x.mine.data(), x.mine.size());
    } else {
      receive(owner, hub.receive(count));
      hub.say(kDone);
    }
  }
}

}  // namespace

void DescriptorExchange::run() {
  const int me = ranks.rank();
  if (!std::is_sorted(group.begin(), group.end()) || std::find(group.begin(), group.end(), me) == group.end())
    fail(Result::invalid_argument,
         "the group for passing descriptors must be ascending and include this rank ({})", me);
  const int first = group.front();

  Service& service = Service::get();
  EndpointName name{Purpose::descriptors, id, 0};
  std::unique_ptr<Arrivals> arrivals;
  Writer offer;
  offer.u32(static_cast<uint32_t>(mine.size()));
  if (group.size() > 1 && me == first) {
    name.token = random_value<uint64_t>();
    arrivals = std::make_unique<Arrivals>(service, name, key);
    service.listen_local().write(offer);
    offer.u64(name.token);
  }
  const std::vector<std::string> offers = ranks.all_gather(offer.take(), deadline);
  Counts counts;
  for (const std::string& text : offers) counts.push_back(Reader(text).u32());
  const bool alone = std::all_of(group.begin(), group.end(), [&](int r) { return counts[static_cast<size_t>(r)] == 0; }) ||
                     group.size() == 1;

  ProcessFd to_hub;
  std::string trouble;
  if (!alone && me != first) {
    Reader r(offers[static_cast<size_t>(first)]);
    r.u32();
    const Address hub = Address::read(r);
    name.token = r.u64();
    const Bootstrap::Peer& p = ranks.peers()[static_cast<size_t>(first)];
    try {
      if (!r.ok())
        fail(Result::invalid_argument,
             "rank {} and rank {} were given different groups for passing descriptors", me, first);
      to_hub = dial(hub, {}, {name.purpose, id, key, name.token, static_cast<uint32_t>(me)}, deadline,
                    {describe_rank(first, p.host, p.pid), "Are both in one network namespace of one host?", 3,
                     Result::system_error})
                   .fd;
    } catch (const Error& e) {
      trouble = fmt::format("{} can't pass descriptors over a UNIX socket: {}",
                            describe_rank(me, ranks.peers()[static_cast<size_t>(me)].host,
                                          ranks.peers()[static_cast<size_t>(me)].pid),
                            e.what());
    }
  }
  // All of the group go on, or none.
  const std::vector<std::string> troubles = ranks.all_gather(trouble, deadline);
  for (const int r : group)
    if (const std::string& t = troubles[static_cast<size_t>(r)]; !t.empty())
      fail(Result::system_error, "{}", t);

  // A receiver that fails closes what comes after: the others get theirs, and the reason is its own.
  std::exception_ptr failure;
  const Receive guarded = [&](int r, std::vector<Fd> fds) {
    if (failure) return;
    try {
      receive(r, std::move(fds));
    } catch (...) {
      failure = std::current_exception();
    }
  };
  if (alone) {
    for (const int r : group)
      if (r != me) guarded(r, {});
  } else if (me == first) {
    run_hub(*this, me, counts, *arrivals, guarded);
  } else {
    run_member(*this, me, counts, to_hub.get(), guarded);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace muster
