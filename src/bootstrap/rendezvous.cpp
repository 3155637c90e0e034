#include "bootstrap/rendezvous.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/channel.h"
#include "bootstrap/make_id.h"
#include "bootstrap/service.h"
#include "bootstrap/unique_id.h"

namespace muster {
namespace {

constexpr int kPorts = 16;  // from MASTER_PORT on: a launcher's own store may hold the first
constexpr std::chrono::hours kLongest{24 * 7};

struct Meeting {
  const Launch& launch;
  PublicId id;
  Key key;
  bool secret;    // the key is one
  Address point;  // TCP: the first port
  Address listening;

  Meeting(const Launch& l, uint32_t generation, const Options& options, Deadline deadline) : launch(l) {
    const std::string& job_key = options.text("MUSTER_JOB_KEY");
    const std::string all = Writer().text("muster meeting").text(l.identity).u32(generation).take();
    id = name_of_text(all);
    key = hmac_sha256(job_key, all);
    secret = !job_key.empty();
    if (l.meeting.host.empty()) {
      point = listening = Address::local(id);
    } else {
      point = resolve("MASTER_ADDR", l.meeting, options.text("NCCL_SOCKET_FAMILY"), deadline);
      listening = listening_address(l.meeting, point);
    }
  }
  int ports() const { return point.kind == Address::Kind::local ? 1 : std::min(kPorts, 65536 - point.port); }
  std::string where() const {
    return point.kind == Address::Kind::local
               ? point.text()
               : fmt::format("MASTER_ADDR={} MASTER_PORT={} (ports {}..{})", launch.meeting.host,
                             launch.meeting.port, launch.meeting.port, launch.meeting.port + ports() - 1);
  }
  bool trusted(int fd) const {
    if (point.kind != Address::Kind::local || secret) return true;
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
  }
};

// The id with its secret part covered: of use only to the two ends of this connection. Its own inverse.
UniqueId mask(const UniqueId& id, const Digest& secret) {
  UniqueId r = id;
  for (size_t block = 0; block * 32 < sizeof r.internal; ++block) {
    const Digest pad = hmac_sha256(view(secret), Writer().text("muster id mask").u64(block).take());
    for (size_t i = 0; i < 32; ++i) r.internal[block * 32 + i] ^= static_cast<char>(pad[i]);
  }
  return r;
}

// Rank 0's part, in the service's thread until all have come or the time is over.
class Host0 : public std::enable_shared_from_this<Host0> {
 public:
  Host0(Service& service, const Meeting& m, const UniqueId& id)
      : service_(service), name_{Purpose::meet, m.id, 0}, size_(m.launch.size), id_(id) {}

  void start(const Meeting& m, Deadline deadline) {
    std::string refused;
    for (int i = 0; i < m.ports() && at_.kind == Address::Kind::none; ++i) refused = try_listen(m, i);
    if (at_.kind == Address::Kind::none)
      fail(Result::system_error, "rank 0 can't listen at {}: {}. {}", m.where(), refused,
           m.point.kind == Address::Kind::local ? "Does another job use the same job name?"
                                                : "Set MASTER_PORT so that one of these ports is free");
    const bool check = m.point.kind == Address::Kind::local && !m.secret;
    service_.open(name_, m.key,
                  [self = shared_from_this(), check](Arrival a) { self->serve(std::move(a), check); });
    const auto wait = std::min<std::chrono::nanoseconds>(deadline.left(), kLongest);
    timer_ = service_.loop().at(EventLoop::Clock::now() + wait, [self = shared_from_this()] { self->end(); });
  }

 private:
  std::string try_listen(const Meeting& m, int offset) {
    Address at = m.listening;
    at.port = static_cast<uint16_t>(at.port + offset);
    SocketError error;
    service_.listen_fixed(at, error);
    if (error.error == EADDRNOTAVAIL &&
        at.kind != Address::Kind::local) {  // MASTER_ADDR may be translated on its way here
      at = any_address(at);
      error = {};
      service_.listen_fixed(at, error);
    }
    if (error.error == 0) at_ = at;
    return fmt::format("{}: {}", error.call, describe_errno(error.error));
  }

  void serve(Arrival a, bool check_user) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (check_user &&
        (getsockopt(a.fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid())) {
      log_warn(
          "a process of user {} asked for this job's unique id and was turned away. Set MUSTER_JOB_KEY if it "
          "belongs to the job",
          peer.uid);
      return;
    }
    const UniqueId masked = mask(id_, a.secret);
    const uint32_t rank = a.rank;
    auto channel = std::make_unique<SecureChannel>(service_.loop(), std::move(a.fd), SecureChannel::Events{});
    channel->send({masked.internal, sizeof masked.internal});
    SecureChannel::finish(std::move(channel));
    if (rank > 0 && rank < static_cast<uint32_t>(size_)) served_.insert(rank);
    if (static_cast<int>(served_.size()) == size_ - 1) end();
  }

  void end() {
    const auto self = shared_from_this();
    service_.loop().cancel(timer_);
    service_.close(name_);
    service_.close_fixed(at_);
  }

  Service& service_;
  const EndpointName name_;
  const int size_;
  const UniqueId id_;
  Address at_;
  EventLoop::Handle timer_ = 0;
  std::set<uint32_t> served_;
};

UniqueId ask(const Meeting& m, Deadline deadline) {
  const Credentials me{Purpose::meet, m.id, m.key, 0, static_cast<uint32_t>(m.launch.rank)};
  std::string last = "nothing listens there";
  Backoff backoff;
  for (std::chrono::milliseconds patience(300);;
       patience = std::min(patience * 2, std::chrono::milliseconds(5000))) {
    for (int i = 0; i < m.ports(); ++i) {
      Address at = m.point;
      at.port = static_cast<uint16_t>(at.port + i);
      const Deadline this_try =
          deadline.within(patience);
      SocketError error;
      const ProcessFd fd = connect_to(at, {}, this_try, error);
      if (!fd) {
        last = fmt::format("{}: {}", error.call, describe_errno(error.error));
        if (error.error == ECONNREFUSED) continue;
        break;  // the host, not the port
      }
      if (!m.trusted(fd.get()))
        fail(Result::invalid_usage,
             "the process that listens at {} belongs to another user. If it is rank 0 of this job, set "
             "MUSTER_JOB_KEY to "
             "the same secret on all ranks",
             at.text());
      const Greeting g = greet(fd.get(), me, this_try);
      if (g.outcome == Greeting::other_version)
        fail(Result::invalid_usage,
             "rank 0 at {} speaks bootstrap protocol {}, rank {} speaks {}. Use the same Muster on all ranks",
             at.text(), g.version, m.launch.rank, kProtocolVersion);
      if (g.outcome == Greeting::wrong_key)
        fail(Result::invalid_usage,
             "rank 0 at {} has another key than rank {}. Set MUSTER_JOB_KEY to the same secret on all ranks",
             at.text(), m.launch.rank);
      std::string message;
      if (g.outcome == Greeting::welcome && recv_frame(fd.get(), message, deadline) == IoStatus::done &&
          message.size() == sizeof(UniqueId)) {
        UniqueId masked;
        std::memcpy(masked.internal, message.data(), sizeof masked.internal);
        const UniqueId id = mask(masked, g.secret);
        decode(id);
        return id;
      }
      last = "who listens there is not rank 0 of this job";
    }
    if (deadline.expired())
      fail(Result::timeout,
           "rank {} ({}) found no rank 0 at {} in time; the last attempt: {}. Did rank 0 start, does it call "
           "this as often as "
           "the others, and are all on the same host, or MASTER_ADDR and MASTER_PORT set?",
           m.launch.rank, m.launch.launcher, m.where(), last);
    backoff.pause(deadline);
  }
}

}  // namespace

UniqueId meet_at_launchers_point(const Launch& launch, uint32_t generation, const Options& options,
                                 Deadline deadline) {
  if (launch.size == 1) return make_lone_id();
  if (options.is_set("NCCL_COMM_ID")) return make_comm_id(options, generation);
  const Meeting m(launch, generation, options, deadline);
  if (launch.rank != 0) {
    refuse_in_forked_child();
    return ask(m, deadline);
  }
  const UniqueId id = make_rooted_id(options);
  Service& service = Service::get();
  auto host = std::make_shared<Host0>(service, m, id);
  service.loop().call([&] { host->start(m, deadline); });
  return id;
}

Rendezvous rendezvous_from_environment(const Options& options, Deadline deadline) {
  static std::atomic<uint32_t> calls{0};
  const uint32_t generation = ++calls;
  const Launch l =
      read_launch([](const char* name) { return std::getenv(name); });  // NOLINT(concurrency-mt-unsafe)
  return {l.rank, l.size, l.local_rank, l.launcher,
          meet_at_launchers_point(l, generation, options, deadline)};
}

}  // namespace muster
