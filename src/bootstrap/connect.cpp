// Bootstrap::connect: join at the root, link up with the neighbours, learn who the others are.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/descriptors.h"
#include "bootstrap/host.h"
#include "bootstrap/ring.h"
#include "bootstrap/root.h"
#include "bootstrap/service.h"
#include "bootstrap/unique_id.h"

namespace muster {
namespace {

// The root's own deadline is the ranks'; its words of explanation need a moment to arrive.
constexpr std::chrono::seconds kGrace{2};
constexpr std::chrono::hours kLongestCall{24 * 7};
constexpr std::chrono::hours kLongestSilence{24};  // Linux counts it in a 32-bit number of milliseconds

// A communicator of one needs nobody.
class Lone final : public Bootstrap {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::vector<Peer>& peers() const override { return peers_; }
  uint64_t communicator_id() const override { return id_; }
  std::vector<std::string> interfaces() const override { return {}; }
  uint64_t secret(std::string_view) const override { return id_; }
  std::vector<std::string> all_gather(std::string_view mine, Deadline) override {
    return {std::string(mine)};
  }
  void exchange_fds(const std::vector<int>&, const std::vector<int>&,
                    const std::function<void(int, std::vector<Fd>)>&, Deadline) override {}
  void watch(Report, Told) override {}
  void announce(const Trouble&) override {}
  void tell(std::string_view) override {}
  void close() override {}

 private:
  const std::vector<Peer> peers_ = {{this_host().name, this_host().pid}};
  const uint64_t id_ = random_value<uint64_t>();
};

class RingBootstrap final : public Bootstrap {
 public:
  RingBootstrap(std::vector<IdContent> ids, int nranks, int rank)
      : ids_(std::move(ids)), id_(of_all(ids_)), size_(nranks), rank_(rank) {}
  ~RingBootstrap() override {
    if (!is_forked_child())
      leave(false);
    else if (ring_)  // its locks and waiters stayed in the parent: it can't be taken apart here
      new std::shared_ptr<Ring>(ring_);
  }
  void meet(const Options& options, Deadline deadline);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::vector<Peer>& peers() const override { return peers_; }
  uint64_t communicator_id() const override { return communicator_id_; }
  std::vector<std::string> interfaces() const override { return interfaces_; }
  uint64_t secret(std::string_view purpose) const override {
    const Digest d = hmac_sha256(view(id_.key), purpose);
    uint64_t v = 0;
    std::memcpy(&v, d.data(), sizeof v);
    return v;
  }

  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) override {
    refuse_in_forked_child();
    return ring_->all_gather(mine, deadline);
  }
  void exchange_fds(const std::vector<int>& group, const std::vector<int>& mine,
                    const std::function<void(int rank, std::vector<Fd> fds)>& receive,
                    Deadline deadline) override {
    refuse_in_forked_child();
    DescriptorExchange{*this, id_.name, id_.key, group, mine, receive, deadline}.run();
  }
  void watch(Report report, Told told) override {
    refuse_in_forked_child();
    ring_->watch(std::move(report), std::move(told));
  }
  void announce(const Trouble& trouble) override {
    if (!is_forked_child()) ring_->announce(trouble);
  }
  void tell(std::string_view text) override {
    if (!is_forked_child()) ring_->tell(text);
  }
  void close() override {
    if (!is_forked_child()) leave(true);
  }

 private:
  // What the ranks have in common once they have met: name and secret of all ids together.
  struct Common {
    PublicId name;
    Key key;
  };
  static Common of_all(const std::vector<IdContent>& ids);
  void stagger(const Options& options, Deadline deadline) const;
  const Connection& knock(int root, const Service::Listening& listening, uint64_t token, Deadline deadline);
  Answer hear(int root, const Connection& connection, Deadline deadline);
  Answer join_roots(const Service::Listening& listening, uint64_t token, Deadline deadline);
  Connection dial_rank(Purpose purpose, int rank, const Host& host, Address target, uint64_t token, const Source& source,
                       Deadline deadline);
  void dial_next(const Answer& answer, const Source& source, Deadline deadline);
  void break_off(const Service::Listening& listening, uint64_t token, const std::string& why);
  void tell_roots(const std::string& why);
  std::string title(int root) const;  // "the root of the unique id (host h, pid 7)"
  void link(const Answer& answer, const Service::Listening& listening, std::chrono::milliseconds silence, Deadline deadline);
  void leave(bool goodbye);

  const std::vector<IdContent> ids_;  // where the ranks meet
  const Common id_;
  const int size_, rank_;
  const Host host_ = this_host();
  std::map<int, Connection> knocked_;  // by root, while the ranks meet
  std::optional<Answer> answer_;
  std::shared_ptr<Ring> ring_;
  EndpointName branches() const { return {Purpose::tree, id_.name, here_.token}; }  // for its children in the tree
  EndpointName here_{Purpose::ring, id_.name, random_value<uint64_t>()};  // open until this rank leaves
  std::vector<Peer> peers_;
  std::vector<std::string> interfaces_;
  uint64_t communicator_id_ = 0;
};

void RingBootstrap::leave(bool goodbye) {
  if (!ring_) return;
  Service& service = Service::get();
  service.loop().call([&] { service.close(branches()); });
  ring_->close(goodbye, [&service, here = here_, key = id_.key, goodbye] {
    if (goodbye)
      service.retire(here, key, Ring::goodbye());
    else
      service.close(here);
  });
}

// Rank 0 of a fixed meeting point is its root.
void start_fixed_root(Service& service, const IdContent& id, Deadline deadline) {
  Backoff backoff;
  for (;;) {
    SocketError error;
    service.loop().call([&] {
      service.listen_fixed(id.root, error);
      if (error.error == 0) Root::start(service, id);
    });
    if (error.error == 0) return;
    // The ranks of an earlier communicator may still be meeting there.
    if (error.error != EADDRINUSE || deadline.expired())
      fail(Result::system_error,
           "rank 0 can't listen at NCCL_COMM_ID={}: {}: {}. Name an address of rank 0's host and a port that "
           "is free",
           id.root.text(), error.call, describe_errno(error.error));
    backoff.pause(deadline);
  }
}

std::vector<std::string> interfaces_of(std::span<const Source> sources) {
  std::vector<std::string> names;
  for (const Source& s : sources)
    if (!s.interface.empty() && std::ranges::find(names, s.interface) == names.end()) names.push_back(s.interface);
  return names;
}

RingBootstrap::Common RingBootstrap::of_all(const std::vector<IdContent>& ids) {
  if (ids.size() == 1) return {ids[0].public_id, ids[0].key};
  Writer names, keys;
  for (const IdContent& id : ids) {
    names.raw(view(id.public_id));
    keys.raw(view(id.key));
  }
  const std::string all = names.take();
  return {name_of_text(all), hmac_sha256(keys.take(), all)};
}

std::string RingBootstrap::title(int root) const {
  const IdContent& id = ids_[static_cast<size_t>(root)];
  return id.host.empty() ? "rank 0 at the fixed meeting point"
                         : fmt::format("the root of {} (host {}, pid {})",
                                       ids_.size() == 1 ? "the unique id" : fmt::format("unique id {}", root), id.host, id.pid);
}

// Of many ranks some come to their root later than others, by number: it would have to take all of them in at once.
void RingBootstrap::stagger(const Options& options, Deadline deadline) const {
  const int64_t threshold = options.integer("NCCL_UID_STAGGER_THRESHOLD"), rate = options.integer("NCCL_UID_STAGGER_RATE");
  if (rate < 1) fail(Result::invalid_usage, "NCCL_UID_STAGGER_RATE={}: 1 rank a second is the least that is possible", rate);
  const int roots = static_cast<int>(ids_.size()), own = root_of(rank_, roots, size_), first = first_of(own, roots, size_);
  if (first_of(own + 1, roots, size_) - first <= threshold) return;
  const std::chrono::nanoseconds wait = std::chrono::nanoseconds(std::chrono::seconds(rank_ - first)) / rate;
  for (const Deadline end = deadline.within(wait); !end.expired();) std::this_thread::sleep_for(end.nap());
}

// Introduces this rank to a root.
const Connection& RingBootstrap::knock(int root, const Service::Listening& listening, uint64_t token, Deadline deadline) {
  if (const auto before = knocked_.find(root); before != knocked_.end()) return before->second;
  const IdContent& id = ids_[static_cast<size_t>(root)];
  if (!id.fixed && id.root.only_here() && id.place != host_.place)
    fail(Result::invalid_usage,
         "{} listens only at {}, because its host has no other network interface that it may use, and rank "
         "{} (host {}, pid {}) is on another "
         "host or in another network namespace. Give the root a network, or set NCCL_SOCKET_IFNAME there",
         title(root), id.root.text(), rank_, host_.name, host_.pid);
  Address target = id.root;
  if (target.is_link_local() && id.place != host_.place) target.scope = listening.source.address.scope;

  Connection c =
      dial(target, listening.source, {Purpose::join, id.public_id, id.key, 0, static_cast<uint32_t>(rank_)},
           deadline,
           {title(root),
            "Is that process alive, and can this host reach it (firewall, NCCL_SOCKET_IFNAME)? Every rank "
            "must start "
            "while the id's maker still runs"});
  // Also if this rank is being aborted: it says so next (break_off), and nobody must think that its time was over.
  const Deadline whole = deadline.by_clock();
  const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::min<std::chrono::nanoseconds>(whole.left(), kLongestCall));
  const Join join{rank_,
                  size_,
                  token,
                  listening.address,
                  host_,
                  static_cast<uint32_t>(patience.count()),
                  MUSTER_VERSION,
                  static_cast<int>(ids_.size()),
                  root};
  send_all(c.fd.get(), frame(join.encode()), whole);  // a failure shows when its answer is awaited
  return knocked_.emplace(root, std::move(c)).first->second;
}

// What the root says when all have come.
Answer RingBootstrap::hear(int root, const Connection& c, Deadline deadline) {
  const std::string who = title(root), where = ids_[static_cast<size_t>(root)].root.text();
  std::string message;
  const IoStatus status = recv_frame(c.fd.get(), message, deadline.later_by(kGrace));
  if (status == IoStatus::expired)
    fail(Result::timeout, "{} at {} took rank {} in, but never said how to go on. It may be stopped", who, where, rank_);
  if (status != IoStatus::done)
    fail(Result::remote_error,
         "{} at {} closed its connection while the ranks were meeting: its process ended or gave up. Look "
         "for its error",
         who, where);
  std::optional<Answer> answer = Answer::decode(message);
  if (!answer)
    fail(Result::remote_error, "{} at {} sent an answer that can't be read. Use the same Muster on all ranks", who, where);
  if (answer->code != Result::success)
    fail(answer->code, "{}{}", answer->error,
         c.hindrance.empty() ? ""
                             : fmt::format(" (rank {} came late, because before: {})", rank_, c.hindrance));
  return *answer;
}

// The first rank of a share comes to the root before its own, too. All are told before any is listened to: they wait for
// each other.
Answer RingBootstrap::join_roots(const Service::Listening& listening, uint64_t token, Deadline deadline) {
  const int roots = static_cast<int>(ids_.size());
  const int own = root_of(rank_, roots, size_);
  if (roots == 1 || rank_ != first_of(own, roots, size_)) return hear(own, knock(own, listening, token, deadline), deadline);
  const int before = (own + roots - 1) % roots;
  const Connection &to_own = knock(own, listening, token, deadline), &to_before = knock(before, listening, token, deadline);
  Answer answer = hear(own, to_own, deadline);
  const Answer other = hear(before, to_before, deadline);
  answer.prev_host = other.prev_host;
  answer.parent = other.parent;
  answer.parent_token = other.parent_token;
  answer.parent_host = other.parent_host;
  return answer;
}

Connection RingBootstrap::dial_rank(Purpose purpose, int rank, const Host& host, Address target, uint64_t token,
                                    const Source& source, Deadline deadline) {
  if (target.is_link_local() && host.place != host_.place) target.scope = source.address.scope;
  Connection c = dial(target, source, {purpose, id_.name, id_.key, token, static_cast<uint32_t>(rank_)}, deadline,
                      {describe_rank(rank, host.name, host.pid),
                       "Is it alive, and can this host reach it (firewall, MUSTER_PORT_RANGE, NCCL_SOCKET_IFNAME)?", 3,
                       Result::remote_error});
  log_debug(Topic::bootstrap, "rank {}: connected from {} to {}, rank {}'s", rank_, local_address(c.fd.get()).text(), target.text(), rank);
  return c;
}

void RingBootstrap::dial_next(const Answer& a, const Source& source, Deadline deadline) {
  const int next = ring_->neighbour(Side::next);
  ring_->attach(Side::next, dial_rank(Purpose::ring, next, a.next_host, a.next, a.next_token, source, deadline).fd);
}

// This rank was aborted while the ranks were meeting. The others wait for it, wherever it was on its way: the root, unless
// it has let them go, and then its neighbours. What can't be told in a moment isn't.
void RingBootstrap::break_off(const Service::Listening& listening, uint64_t token, const std::string& why) {
  const Deadline soon = Deadline::after(kGrace);
  try {
    const int roots = static_cast<int>(ids_.size()), own = root_of(rank_, roots, size_);
    if (!answer_) {
      const Connection& c = knock(own, listening, token, soon);
      send_all(c.fd.get(), frame(why), soon);
      answer_ = hear(own, c, soon);  // throws what the root has told all, unless it had let them go just before
    }
    if (!ring_->linked(Side::next)) dial_next(*answer_, listening.source, soon);
  } catch (const Error& e) {
    log_debug(Topic::bootstrap, "rank {} breaks off: {}", rank_, e.what());
  }
}

// One root may have said why it can't be while another still waits. That one, too, tells its ranks the reason, not that
// this rank has left.
void RingBootstrap::tell_roots(const std::string& why) {
  for (const auto& [root, connection] : knocked_)
    send_all(connection.fd.get(), frame(why), Deadline::after(kGrace));  // those that have answered don't listen
}

void RingBootstrap::link(const Answer& answer, const Service::Listening& listening, std::chrono::milliseconds silence,
                         Deadline deadline) {
  ring_->set_peer(rank_, {host_.name, host_.pid});
  ring_->set_peer(ring_->neighbour(Side::prev), {answer.prev_host.name, answer.prev_host.pid});
  ring_->set_peer(ring_->neighbour(Side::next), {answer.next_host.name, answer.next_host.pid});
  dial_next(answer, listening.source, deadline);
  if (const int parent = ring_->parent(); parent >= 0)
    ring_->attach_branch(parent, dial_rank(Purpose::tree, parent, answer.parent_host, answer.parent, answer.parent_token,
                                           listening.source, deadline)
                                     .fd);
  ring_->wait_linked(deadline);

  Writer mine;
  mine.text(host_.name).i32(host_.pid).u64(host_.place).u64(answer.communicator_id).u64(here_.token);
  listening.address.write(mine);
  const std::vector<std::string> all = ring_->all_gather(mine.take(), deadline);
  Ring::Ways ways{{Purpose::ring, id_.name, id_.key, 0, static_cast<uint32_t>(rank_)}, listening.source, {}, silence};
  for (int r = 0; r < size_; ++r) {
    Reader reader(all[static_cast<size_t>(r)]);
    Peer p;
    p.host = reader.text();
    p.pid = reader.i32();
    const uint64_t place = reader.u64(), id = reader.u64();
    if (r == 0) communicator_id_ = id;  // several roots have several
    Search::Candidate way{r, {}, reader.u64()};
    way.target = Address::read(reader);
    if (!reader.ok() || !reader.at_end())
      fail(Result::internal_error, "rank {} introduced itself to the ring in {} bytes that can't be read", r,
           all[static_cast<size_t>(r)].size());
    if (way.target.is_link_local() && place != host_.place) way.target.scope = listening.source.address.scope;
    ways.ranks.push_back(way);
    ring_->set_peer(r, p);
    peers_.push_back(std::move(p));
  }
  ring_->heal(std::move(ways));
}

void RingBootstrap::meet(const Options& options, Deadline deadline) {
  Service& service = Service::get();
  const IdContent& own_root = ids_[static_cast<size_t>(root_of(rank_, static_cast<int>(ids_.size()), size_))];
  const std::vector<Source> sources = choose_sources(list_interfaces(), options.text("NCCL_SOCKET_IFNAME"),
                                                     options.text("NCCL_SOCKET_FAMILY"), address_toward(own_root.root));
  const Service::Listening listening = service.listen(sources, options.text("MUSTER_PORT_RANGE"));
  interfaces_ = interfaces_of(options.is_set("NCCL_SOCKET_IFNAME") ? std::span(sources) : std::span(&listening.source, 1));
  if (ids_[0].fixed && rank_ == 0) start_fixed_root(service, ids_[0], deadline);

  // Three quarters until a silent connection counts as broken, one for trying a new one.
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::clamp<std::chrono::nanoseconds>(options.seconds("MUSTER_LINK_TIMEOUT"), std::chrono::seconds(1), kLongestSilence));
  const std::chrono::milliseconds silence = timeout * 3 / 4;
  ring_ = std::make_shared<Ring>(service.loop(), rank_, size_, static_cast<int>(ids_.size()));
  service.loop().call([&] {
    service.open(here_, id_.key, [ring = ring_](Arrival a) { ring->accept(static_cast<int>(a.rank), std::move(a.fd)); });
    service.open(branches(), id_.key, [ring = ring_](Arrival a) { ring->attach_branch(static_cast<int>(a.rank), std::move(a.fd)); });
  });
  try {
    stagger(options, deadline);
    answer_ = join_roots(listening, here_.token, deadline);
    link(*answer_, listening, silence, deadline);
  } catch (const Error& e) {
    const Error told = deadline.cancelled() ? Error(Result::remote_error, describe_rank(rank_, host_.name, host_.pid) +
                                                                              " aborted while the communicator was being made")
                                            : e;
    if (deadline.cancelled()) break_off(listening, here_.token, told.what());
    tell_roots(told.what());
    const Trouble trouble{rank_, told.code(), told.what()};
    service.loop().call([&] {
      service.retire(branches(), id_.key, {});  // children that still connect learn from the ring why nothing comes
      service.retire(here_, id_.key, Ring::farewell(trouble));
    });
    ring_->announce(trouble);
    ring_->close(true);
    throw told;
  }
  knocked_.clear();
}

// No sockets for a group of one; but if this process made the id, it is used now.
void use_up(const IdContent& id) {
  if (id.fixed || is_forked_child() || !Service::existing()) return;
  Service& service = *Service::existing();
  service.loop().call([&] {
    const EndpointName name{Purpose::join, id.public_id, 0};
    const std::string message =
        "this unique id was already used, for a communicator of 1 rank. Make a new one for each communicator";
    if (service.is_retired(name)) fail(Result::invalid_argument, "{}", message);
    service.retire(name, id.key, Answer{Result::invalid_argument, message}.encode());
  });
}

// Contents of the ids, checked against each other.
std::vector<IdContent> decode_all(std::span<const UniqueId> ids, int nranks) {
  if (ids.empty() || ids.size() > static_cast<size_t>(nranks))
    fail(Result::invalid_argument, "{} unique ids for {} ranks: 1 to {} are possible, each made by another rank", ids.size(), nranks, nranks);
  std::vector<IdContent> all;
  for (const UniqueId& id : ids) {
    IdContent content = decode(id);
    const auto same = std::find_if(all.begin(), all.end(), [&](const IdContent& c) { return c.public_id == content.public_id; });
    if (same != all.end()) {
      if (content.fixed) continue;  // all of one fixed point are one
      fail(Result::invalid_argument, "unique ids {} and {} are the same. Give each root its own, or pass one", same - all.begin(), all.size());
    }
    all.push_back(std::move(content));
  }
  if (all.size() > 1)
    for (const IdContent& c : all)
      if (c.fixed)
        fail(Result::invalid_argument, "of {} unique ids one is that of a fixed meeting point ({}), which serves all ranks alone. Pass only that one",
             all.size(), c.root.text());
  return all;
}

}  // namespace

std::unique_ptr<Bootstrap> Bootstrap::connect(std::span<const UniqueId> ids, int nranks, int rank,
                                              const Options& options, Deadline deadline) {
  if (nranks < 1) fail(Result::invalid_argument, "nranks is {}: a communicator has at least 1 rank", nranks);
  if (rank < 0 || rank >= nranks) fail(Result::invalid_argument, "rank {} is not in 0..{}", rank, nranks - 1);
  std::vector<IdContent> content = decode_all(ids, nranks);
  if (nranks == 1) {
    use_up(content[0]);
    return std::make_unique<Lone>();
  }
  for (const IdContent& c : content)
    if (c.root.kind == Address::Kind::none)
      fail(Result::invalid_argument,
           "this unique id is for one rank only, and nranks is {}. Make one with make_unique_id", nranks);
  auto b = std::make_unique<RingBootstrap>(std::move(content), nranks, rank);
  b->meet(options, deadline);
  return b;
}

}  // namespace muster
