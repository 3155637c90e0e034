// Bootstrap::connect: join at the root, link up with the neighbours, learn who the others are.
#include <algorithm>
#include <atomic>

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
constexpr std::chrono::hours kLongest{24 * 7};

// A communicator of one needs nobody.
class Lone final : public Bootstrap {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::vector<Peer>& peers() const override { return peers_; }
  uint64_t communicator_id() const override { return id_; }
  std::vector<std::string> all_gather(std::string_view mine, Deadline) override {
    return {std::string(mine)};
  }
  void exchange_fds(const std::vector<int>&, const std::vector<int>&,
                    const std::function<void(int, std::vector<Fd>)>&, Deadline) override {}
  void watch(std::function<void(const Trouble&)>) override {}
  void announce(const Trouble&) override {}
  void close() override {}

 private:
  const std::vector<Peer> peers_ = {{this_host().name, this_host().pid}};
  const uint64_t id_ = random_value<uint64_t>();
};

class RingBootstrap final : public Bootstrap {
 public:
  RingBootstrap(const IdContent& id, int nranks, int rank) : id_(id), size_(nranks), rank_(rank) {}
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

  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) override {
    refuse_in_forked_child();
    return ring_->all_gather(mine, deadline);
  }
  void exchange_fds(const std::vector<int>& group, const std::vector<int>& mine,
                    const std::function<void(int rank, std::vector<Fd> fds)>& receive,
                    Deadline deadline) override {
    refuse_in_forked_child();
    DescriptorExchange{*this, id_.public_id, id_.key, group, mine, receive, deadline}.run();
  }
  void watch(std::function<void(const Trouble&)> report) override {
    refuse_in_forked_child();
    ring_->watch(std::move(report));
  }
  void announce(const Trouble& trouble) override {
    if (!is_forked_child()) ring_->announce(trouble);
  }
  void close() override {
    if (!is_forked_child()) leave(true);
  }

 private:
  Answer join_root(const Service::Listening& listening, uint64_t token, Deadline deadline);
  void link(const Answer& answer, const Source& source, Deadline deadline);
  void leave(bool goodbye) {
    if (ring_) ring_->close(goodbye);
  }

  const IdContent id_;
  const int size_, rank_;
  const Host host_ = this_host();
  std::shared_ptr<Ring> ring_;
  std::vector<Peer> peers_;
  uint64_t communicator_id_ = 0;
};

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

Answer RingBootstrap::join_root(const Service::Listening& listening, uint64_t token, Deadline deadline) {
  const std::string root =
      id_.host.empty() ? "rank 0 at the fixed meeting point"
                       : fmt::format("the root of the unique id (host {}, pid {})", id_.host, id_.pid);
  if (!id_.fixed && id_.root.only_here() && id_.place != host_.place)
    fail(Result::invalid_usage,
         "{} listens only at {}, because its host has no other network interface that it may use, and rank "
         "{} (host {}, pid {}) is on another "
         "host or in another network namespace. Give the root a network, or set NCCL_SOCKET_IFNAME there",
         root, id_.root.text(), rank_, host_.name, host_.pid);
  Address target = id_.root;
  if (target.is_link_local() && id_.place != host_.place) target.scope = listening.source.address.scope;

  const Connection c =
      dial(target, listening.source, {Purpose::join, id_.public_id, id_.key, 0, static_cast<uint32_t>(rank_)},
           deadline,
           {root,
            "Is that process alive, and can this host reach it (firewall, NCCL_SOCKET_IFNAME)? Every rank "
            "must start "
            "while the id's maker still runs"});
  const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::min<std::chrono::nanoseconds>(deadline.left(), kLongest));
  const Join join{
      rank_, size_, token, listening.address, host_, static_cast<uint32_t>(patience.count()), MUSTER_VERSION};
  IoStatus status = send_all(c.fd.get(), frame(join.encode()), deadline);
  std::string message;
  if (status == IoStatus::done) status = recv_frame(c.fd.get(), message, Deadline::after(patience + kGrace));
  if (status == IoStatus::expired)
    fail(Result::timeout, "{} at {} took rank {} in, but never said how to go on. It may be stopped", root,
         target.text(), rank_);
  if (status != IoStatus::done)
    fail(Result::remote_error,
         "{} at {} closed its connection while the ranks were meeting: its process ended or gave up. Look "
         "for its error",
         root, target.text());
  std::optional<Answer> answer = Answer::decode(message);
  if (!answer)
    fail(Result::remote_error, "{} at {} sent an answer that can't be read. Use the same Muster on all ranks",
         root, target.text());
  if (answer->code != Result::success)
    fail(answer->code, "{}{}", answer->error,
         c.hindrance.empty() ? ""
                             : fmt::format(" (rank {} came late, because before: {})", rank_, c.hindrance));
  return *answer;
}

void RingBootstrap::link(const Answer& answer, const Source& source, Deadline deadline) {
  ring_->set_peer(rank_, {host_.name, host_.pid});
  ring_->set_peer(ring_->neighbour(Ring::prev), {answer.prev_host.name, answer.prev_host.pid});
  ring_->set_peer(ring_->neighbour(Ring::next), {answer.next_host.name, answer.next_host.pid});
  Address target = answer.next;
  if (target.is_link_local() && answer.next_host.place != host_.place) target.scope = source.address.scope;
  Connection c =
      dial(target, source,
           {Purpose::ring, id_.public_id, id_.key, answer.next_token, static_cast<uint32_t>(rank_)}, deadline,
           {describe_rank(ring_->neighbour(Ring::next), answer.next_host.name, answer.next_host.pid),
            "Is it alive, and can this host reach it (firewall, MUSTER_PORT_RANGE, NCCL_SOCKET_IFNAME)?", 3,
            Result::remote_error});
  log_debug(Topic::bootstrap, "rank {}: ring link from {} to {}", rank_, local_address(c.fd.get()).text(), target.text());
  ring_->attach(Ring::next, std::move(c.fd));
  ring_->wait_linked(deadline);

  const std::vector<std::string> all =
      ring_->all_gather(Writer().text(host_.name).i32(host_.pid).take(), deadline);
  for (int r = 0; r < size_; ++r) {
    Reader reader(all[static_cast<size_t>(r)]);
    Peer p;
    p.host = reader.text();
    p.pid = reader.i32();
    if (!reader.ok() || !reader.at_end())
      fail(Result::internal_error, "rank {} introduced itself to the ring in {} bytes that can't be read", r,
           all[static_cast<size_t>(r)].size());
    ring_->set_peer(r, p);
    peers_.push_back(std::move(p));
  }
}

void RingBootstrap::meet(const Options& options, Deadline deadline) {
  Service& service = Service::get();
  const std::vector<Source> sources = choose_sources(list_interfaces(), options.text("NCCL_SOCKET_IFNAME"),
                                                     options.text("NCCL_SOCKET_FAMILY"));
  const Service::Listening listening = service.listen(sources, options.text("MUSTER_PORT_RANGE"));
  if (id_.fixed && rank_ == 0) start_fixed_root(service, id_, deadline);

  ring_ = std::make_shared<Ring>(service.loop(), rank_, size_);
  const EndpointName here{Purpose::ring, id_.public_id, random_value<uint64_t>()};
  service.loop().call([&] {
    service.open(here, id_.key, [ring = ring_](Arrival a) {
      if (static_cast<int>(a.rank) == ring->neighbour(Ring::prev)) ring->attach(Ring::prev, std::move(a.fd));
    });
  });
  const auto close_endpoint = [&] { service.loop().call([&] { service.close(here); }); };
  try {
    const Answer answer = join_root(listening, here.token, deadline);
    communicator_id_ = answer.communicator_id;
    link(answer, listening.source, deadline);
  } catch (const Error& e) {
    close_endpoint();
    ring_->announce({rank_, e.code(), e.what()});
    ring_->close(true);
    throw;
  }
  close_endpoint();
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

}  // namespace

std::unique_ptr<Bootstrap> Bootstrap::connect(const UniqueId& id, int nranks, int rank,
                                              const Options& options, Deadline deadline) {
  if (nranks < 1) fail(Result::invalid_argument, "nranks is {}: a communicator has at least 1 rank", nranks);
  if (rank < 0 || rank >= nranks) fail(Result::invalid_argument, "rank {} is not in 0..{}", rank, nranks - 1);
  const IdContent content = decode(id);
  if (nranks == 1) {
    use_up(content);
    return std::make_unique<Lone>();
  }
  if (content.root.kind == Address::Kind::none)
    fail(Result::invalid_argument,
         "this unique id is for one rank only, and nranks is {}. Make one with make_unique_id", nranks);
  auto b = std::make_unique<RingBootstrap>(content, nranks, rank);
  b->meet(options, deadline);
  return b;
}

}  // namespace muster
