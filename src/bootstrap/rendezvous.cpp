#include "bootstrap/rendezvous.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
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
constexpr std::chrono::seconds kOneName{2};  // to resolve one of several names

struct Meeting {
  const Launch& launch;
  PublicId id;
  Key key;
  bool secret;  // the key is one
  std::vector<Address> points;  // where rank 0 may be; TCP: the first port
  Address listening;

  Meeting(const Launch& l, uint32_t generation, const Options& options, Deadline deadline) : launch(l) {
    const std::string& job_key = options.text("MUSTER_JOB_KEY");
    const std::string all = Writer().text("muster meeting").text(l.identity).u32(generation).take();
    id = name_of_text(all);
    key = hmac_sha256(job_key, all);
    secret = !job_key.empty();
    const std::string& family = options.text("NCCL_SOCKET_FAMILY");
    if (l.meeting.empty()) {
      points = {Address::local(id)};
      listening = points[0];
    } else if (l.meeting_set) {
      points = {resolve("MASTER_ADDR", l.meeting[0], family, deadline)};
      listening = listening_address(l.meeting[0], points[0]);
    } else {
      find_points(family, deadline);
      listening = any_address(points[0]);
    }
  }
  bool local() const { return points[0].kind == Address::Kind::local; }
  int ports() const { return local() ? 1 : std::min(kPorts, 65536 - points[0].port); }
  std::string where() const {
    if (local()) return points[0].text();
    const uint16_t port = launch.meeting[0].port;
    const int last = port + ports() - 1;
    if (launch.meeting_set)
      return fmt::format("MASTER_ADDR={} MASTER_PORT={} (ports {}..{})", launch.meeting[0].host, port, port, last);
    std::string hosts;
    for (const HostPort& m : launch.meeting) hosts += (hosts.empty() ? "" : ", ") + m.host;
    return fmt::format("{} (ports {}..{}), the hosts that {} names", hosts, port, last, launch.launcher);
  }
  // Of the points, that which is this host's, if any.
  Address own_point() const {
    for (const Address& p : points)
      if (address_toward(p).bytes == p.bytes) return p;
    return points[0];
  }
  bool trusted(int fd) const {
    if (!local() || secret) return true;
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
  }

 private:
  // A launcher may name hosts in a way that only it understands: those that can't be resolved are left out.
  void find_points(const std::string& family, Deadline deadline) {
    std::string why;
    for (const HostPort& m : launch.meeting) try {
        const Address a = resolve(fmt::format("hosts of {}", launch.launcher), m, family, deadline.within(kOneName));
        if (a.kind != Address::Kind::local && std::find(points.begin(), points.end(), a) == points.end()) points.push_back(a);
      } catch (const Error& e) {
        why += fmt::format("{}{}", why.empty() ? "" : "; ", e.what());
      }
    if (points.empty())
      fail(Result::invalid_usage, "{} says where rank 0 may be, but none of its hosts has an address here ({}). Set MASTER_ADDR "
           "to rank 0's host and MASTER_PORT to a free port there", launch.launcher, why);
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
           m.local() ? "Does another job use the same job name?"
                                                : "Set MASTER_PORT so that one of these ports is free");
    const bool check = m.local() && !m.secret;
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

// One attempt at one port. Empty: rank 0 isn't there, as `last` says. `reached`: something answered, if only with a refusal.
std::optional<UniqueId> ask_at(const Meeting& m, const Address& at, Deadline this_try, Deadline deadline, std::string& last,
                               bool& reached) {
  SocketError error;
  const ProcessFd fd = connect_to(at, {}, this_try, error);
  reached = fd || error.error == ECONNREFUSED;
  if (!fd) {
    last = fmt::format("{}: {}: {}", at.text(), error.call, describe_connect_error(error.error));
    return {};
  }
  if (!m.trusted(fd.get()))
    fail(Result::invalid_usage,
         "the process that listens at {} belongs to another user. If it is rank 0 of this job, set MUSTER_JOB_KEY to "
         "the same secret on all ranks",
         at.text());
  const Greeting g =
      greet(fd.get(), {Purpose::meet, m.id, m.key, 0, static_cast<uint32_t>(m.launch.rank)}, this_try);
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
  last = fmt::format("{}: who listens there is not rank 0 of this job", at.text());
  return {};
}

UniqueId ask(const Meeting& m, Deadline deadline) {
  std::string last = "nothing listens there";
  Backoff backoff;
  for (std::chrono::milliseconds patience(300);;
       patience = std::min(patience * 2, std::chrono::milliseconds(5000))) {
    for (const Address& point : m.points) {
      bool reached = true;
      for (int i = 0; i < m.ports() && reached; ++i) {
        Address at = point;
        at.port = static_cast<uint16_t>(at.port + i);
        if (const auto id = ask_at(m, at, deadline.within(patience), deadline, last, reached)) return *id;
      }
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
  const UniqueId id = make_rooted_id(options, m.own_point());
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
