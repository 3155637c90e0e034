#include "meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/options.h"
#include "bootstrap/channel.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/service.h"
#include "bootstrap/socket.h"
#include "bootstrap/unique_id.h"

namespace muster::doctor {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Reach, from, to, round_trip_us, problem, connected)

namespace {

// Tokens of the endpoints, beside those that communicators have for the same id.
constexpr uint64_t kGather = 0x646f63746f720000, kEcho = 0x646f63746f720001;

constexpr size_t kLongest = 32 << 10;      // of a message there and back: longer than any packet, short enough for recv_frame
constexpr int kShortMessages = 3;
constexpr std::chrono::seconds kPairTime{4};
constexpr size_t kAtOnce = 16;             // connections that a rank tries at a time
constexpr size_t kMostBytes = 64 << 20;

// What rank 0 asks of a rank: to reach these.
struct Target {
  int rank = 0;
  std::string host, listener;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Target, rank, host, listener)

std::string to_listener(const Address& a) {
  Writer w;
  a.write(w);
  std::string hex;
  for (const char c : w.take()) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

std::optional<Address> from_listener(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    const auto digit = [](char c) { return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= '0' && c <= '9' ? c - '0' : -1; };
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  Reader r(bytes);
  const Address a = Address::read(r);
  if (!r.ok() || !r.at_end() || a.kind == Address::Kind::none) return std::nullopt;
  return a;
}

// Connections of others to this process, in the service's thread: what comes is handed on, or sent back.
class Visitors {
 public:
  using Message = std::function<void(int rank, std::string_view)>;
  using Event = std::function<void(int rank)>;

  Visitors(Service& service, const EndpointName& name, const Key& key, Event come, Message message, Event end)
      : service_(service), name_(name), state_(std::make_shared<State>()) {
    state_->come = std::move(come);
    state_->message = std::move(message);
    state_->end = std::move(end);
    service_.loop().call([&] {
      service_.open(name_, key, [&loop = service_.loop(), state = state_](Arrival a) { admit(loop, state, std::move(a)); });
    });
  }
  ~Visitors() {
    service_.loop().call([&] {
      service_.close(name_);
      for (auto& [number, channel] : std::exchange(state_->channels, {})) SecureChannel::finish(std::move(channel.first));
    });
  }
  Visitors(const Visitors&) = delete;
  Visitors& operator=(const Visitors&) = delete;

  void send(int rank, std::string text) {
    service_.loop().post([state = state_, rank, text = std::move(text)] {
      for (auto& [number, channel] : state->channels)
        if (channel.second == rank) channel.first->send(text);
    });
  }

  // Sends back what it gets.
  static Visitors echo(Service& service, const EndpointName& name, const Key& key) {
    return Visitors(service, name, key, {}, {}, {});
  }

 private:
  struct State {  // of the loop's thread
    Message message;  // none: what comes is sent back
    Event come, end;
    std::map<uint64_t, std::pair<std::unique_ptr<SecureChannel>, int>> channels;
    uint64_t last = 0;
  };

  static void admit(EventLoop& loop, const std::shared_ptr<State>& state, Arrival a) {
    const uint64_t number = ++state->last;
    const int rank = static_cast<int>(a.rank);
    const std::weak_ptr<State> weak = state;
    SecureChannel::Events events;
    events.message = [weak, number, rank](std::string_view text) {
      const auto s = weak.lock();
      if (!s) return;
      if (s->message) return s->message(rank, text);
      if (const auto c = s->channels.find(number); c != s->channels.end()) c->second.first->send(text);
    };
    events.end = [weak, number, rank](int) {
      const auto s = weak.lock();
      if (!s) return;
      const auto c = s->channels.find(number);
      if (c == s->channels.end()) return;
      SecureChannel::retire(std::move(c->second.first));
      s->channels.erase(c);
      if (s->end) s->end(rank);
    };
    auto channel = std::make_unique<SecureChannel>(loop, std::move(a.fd), std::move(events));
    state->channels.emplace(number, std::pair(std::move(channel), rank));
    if (state->come) state->come(rank);
  }

  Service& service_;
  const EndpointName name_;
  std::shared_ptr<State> state_;
};

// What ranks send to rank 0, in order.
class Inbox {
 public:
  void come(int rank) {
    const std::lock_guard lock(mutex_);
    texts_[rank];
  }
  void put(int rank, std::string_view text) {
    const std::lock_guard lock(mutex_);
    texts_[rank].emplace_back(text);
    changed_.notify_all();
  }
  void end(int rank) {
    const std::lock_guard lock(mutex_);
    gone_[rank] = true;
    changed_.notify_all();
  }
  // Those who came and sent nothing.
  std::vector<int> silent() {
    const std::lock_guard lock(mutex_);
    std::vector<int> r;
    for (const auto& [rank, texts] : texts_)
      if (texts.empty()) r.push_back(rank);
    return r;
  }
  // The `number`-th text of each rank in `from` that sends it in time.
  std::map<int, std::string> gather(const std::vector<int>& from, size_t number, Deadline deadline) {
    std::unique_lock lock(mutex_);
    const auto sent = [&](int r) { return texts_.contains(r) && texts_[r].size() > number; };
    const auto done = [&](int r) { return sent(r) || gone_[r]; };
    while (!std::all_of(from.begin(), from.end(), done) && !deadline.expired())
      changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(deadline.left(), std::chrono::seconds(1)));
    std::map<int, std::string> r;
    for (const int rank : from)
      if (sent(rank)) r[rank] = texts_[rank][number];
    return r;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::vector<std::string>> texts_;
  std::map<int, bool> gone_;
};

IoStatus recv_message(int fd, std::string& out, Deadline deadline) {
  char head[4];
  if (const IoStatus s = recv_all(fd, head, sizeof head, deadline); s != IoStatus::done) return s;
  const uint32_t size = Reader({head, sizeof head}).u32();
  if (size > kMostBytes) return IoStatus::failed;
  out.resize(size);
  return recv_all(fd, out.data(), size, deadline);
}

class Meeting {
 public:
  Meeting(const Launch& launch, Facts mine, Deadline deadline) : launch_(launch), mine_(std::move(mine)), deadline_(deadline) {}

  Job run() {
    Job job{launch_.size, launch_.launcher, {mine_}, {}, {}, {}};
    try {
      join();
      if (launch_.rank == 0)
        lead(job);
      else
        follow();
    } catch (const Error& e) {
      job.meeting_problem = e.what();
      job.ranks = {mine_};
    } catch (const json::exception& e) {
      job.meeting_problem = fmt::format("what another rank sent can't be read: {}. Use the same Muster on all ranks", e.what());
      job.ranks = {mine_};
    }
    return job;
  }

 private:
  Credentials credentials(uint64_t token) const {
    return {Purpose::meet, id_.public_id, id_.key, token, static_cast<uint32_t>(launch_.rank)};
  }
  EndpointName name(uint64_t token) const { return {Purpose::meet, id_.public_id, token}; }

  // Everything as the ranks of a communicator do it.
  void join() {
    const Options options = Options::from_environment();
    const Rendezvous r = rendezvous_from_environment(options, deadline_);
    id_ = decode(r.id);
    const std::vector<Source> sources = choose_sources(list_interfaces(), options.text("NCCL_SOCKET_IFNAME"),
                                                       options.text("NCCL_SOCKET_FAMILY"), address_toward(id_.root));
    listening_ = service_.listen(sources, options.text("MUSTER_PORT_RANGE"));
    mine_.listener = to_listener(listening_.address);
    if (listening_.address.kind != Address::Kind::local) {
      mine_.interface = listening_.source.interface;
      mine_.address = listening_.source.address.host_text();
    }
    if (!id_.fixed || launch_.rank != 0) return;
    SocketError error;
    service_.loop().call([&] { service_.listen_fixed(id_.root, error); });
    if (error.error)
      fail(Result::system_error, "rank 0 can't listen at {}, which NCCL_COMM_ID says: {}: {}", id_.root.text(), error.call,
           describe_errno(error.error));
  }

  // --- one rank of each host to one of each other ---

  std::string talk(int fd, std::string_view text, Deadline deadline) const {
    std::string answer;
    IoStatus s = send_all(fd, frame(text), deadline);
    if (s == IoStatus::done) s = recv_frame(fd, answer, deadline);
    switch (s) {
      case IoStatus::done:
        return answer == text ? "" : fmt::format("{} bytes came back changed", text.size());
      case IoStatus::closed:
        return fmt::format("the connection ended while {} bytes were under way", text.size());
      case IoStatus::expired:
        return fmt::format("{} bytes didn't come back in {} s", text.size(), kPairTime.count());
      case IoStatus::failed:
        break;
    }
    return describe_errno(errno);
  }

  Reach reach(const Target& t) const {
    Reach r{launch_.rank, t.rank, 0, {}, false};
    try {
      const std::optional<Address> at = from_listener(t.listener);
      if (!at) fail(Result::invalid_argument, "rank {} didn't say where it can be reached", t.rank);
      const Deadline time = deadline_.within(kPairTime);
      const Connection c =
          dial(*at, listening_.source, credentials(kEcho + static_cast<uint64_t>(t.rank)), time,
               {fmt::format("rank {} ({})", t.rank, t.host), "", 3, Result::remote_error});
      const std::string text(8, 'm');
      for (int i = 0; i < kShortMessages && r.problem.empty(); ++i) {
        const auto began = Deadline::Clock::now();
        r.problem = talk(c.fd.get(), text, time);
        const double us = std::chrono::duration<double, std::micro>(Deadline::Clock::now() - began).count();
        if (r.problem.empty() && (r.round_trip_us == 0 || us < r.round_trip_us)) r.round_trip_us = us;
      }
      if (!r.problem.empty()) return r;
      r.connected = true;
      r.problem = talk(c.fd.get(), std::string(kLongest, 'M'), time);
    } catch (const Error& e) {
      r.problem = e.what();
    }
    return r;
  }

  std::vector<Reach> reach_all(const std::vector<Target>& targets) const {
    std::vector<Reach> r(targets.size());
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < std::min(kAtOnce, targets.size()); ++t)
      threads.emplace_back([&] {
        for (size_t i; (i = next++) < targets.size();) r[i] = reach(targets[i]);
      });
    for (std::thread& t : threads) t.join();
    return r;
  }

  // Its own host last, that of the next rank first, so that not all come to one at a time.
  static std::vector<Target> targets_of(size_t host, const std::vector<JobHost>& hosts) {
    std::vector<Target> r;
    for (size_t i = 1; i < hosts.size(); ++i) {
      const JobHost& h = hosts[(host + i) % hosts.size()];
      r.push_back({h.first().rank, h.name, h.first().listener});
    }
    return r;
  }

  // --- rank 0 ---

  void lead(Job& job) {
    Inbox inbox;
    Visitors ranks(
        service_, name(kGather), id_.key, [&inbox](int rank) { inbox.come(rank); }, [&inbox](int rank, std::string_view text) { inbox.put(rank, text); },
        [&inbox](int rank) { inbox.end(rank); });
    const Visitors echo = Visitors::echo(service_, name(kEcho), id_.key);
    std::vector<int> others;
    for (int r = 1; r < launch_.size; ++r) others.push_back(r);
    job.ranks = {mine_};
    std::vector<int> came;
    for (const auto& [rank, text] : inbox.gather(others, 0, deadline_)) {
      Facts f = facts_from_text(text);
      f.rank = rank;
      job.ranks.push_back(std::move(f));
      came.push_back(rank);
    }
    job.silent = inbox.silent();
    const std::vector<JobHost> hosts = hosts_of(job);
    std::map<int, json> wanted;
    for (size_t h = 0; h < hosts.size(); ++h) wanted[hosts[h].first().rank] = targets_of(h, hosts);
    for (const int r : came) ranks.send(r, wanted.contains(r) ? wanted[r].dump() : "[]");
    // Those who wait for the ranks that are missing have no time left: they get what a pair takes.
    deadline_ = Deadline::after(pair_time(hosts.size()));
    job.reaches = reach_all(wanted[0].get<std::vector<Target>>());
    for (const auto& [rank, text] : inbox.gather(came, 1, deadline_.later_by(kPairTime))) {
      for (const json& r : json::parse(text, nullptr, false))
        if (r.is_object()) job.reaches.push_back(r.get<Reach>());
    }
    for (const int r : came) ranks.send(r, "done");
    inbox.gather(came, 2, Deadline::after(std::chrono::seconds(1)));  // none: they leave
  }

  static std::chrono::nanoseconds pair_time(size_t hosts) {
    return kPairTime * static_cast<int>(hosts / kAtOnce + 1) + kPairTime;
  }

  // --- the others ---

  void follow() {
    const Visitors echo = Visitors::echo(service_, name(kEcho + static_cast<uint64_t>(launch_.rank)), id_.key);
    const Connection c = dial(id_.root, listening_.source, credentials(kGather), deadline_,
                              {"rank 0", "Firewalls, and another interface by NCCL_SOCKET_IFNAME, are the usual reasons", 0, Result::timeout});
    const int fd = c.fd.get();
    std::string text;
    const auto require = [&](IoStatus s, const char* what) {
      if (s != IoStatus::done) fail(Result::remote_error, "rank 0 {} (the connection {})", what, s == IoStatus::expired ? "is silent" : "ended");
    };
    require(send_all(fd, frame(to_text(mine_)), deadline_), "didn't take what this rank found");
    require(recv_message(fd, text, deadline_.later_by(kPairTime)), "didn't say which ranks to reach");
    const json targets = json::parse(text, nullptr, false);
    if (!targets.is_array()) fail(Result::remote_error, "rank 0 sent nonsense. Use the same Muster on all ranks");
    deadline_ = Deadline::after(pair_time(targets.size()));
    const json reached = reach_all(targets.get<std::vector<Target>>());
    require(send_all(fd, frame(reached.dump(-1, ' ', false, json::error_handler_t::replace)), deadline_), "didn't take what this rank reached");
    recv_message(fd, text, deadline_.later_by(kPairTime * 2));  // until then others may want to reach this rank
  }

  const Launch& launch_;
  Facts mine_;
  Deadline deadline_;
  Service& service_ = Service::get();
  Service::Listening listening_;
  IdContent id_;
};

}  // namespace

Job meet(const Launch& launch, Facts mine, Deadline deadline) { return Meeting(launch, std::move(mine), deadline).run(); }

}  // namespace muster::doctor
