#include "transports/tcp/tcp_network.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace muster {
namespace {

using tcp::Dialing;
using tcp::Hello;
using tcp::Rail;
using tcp::Verdict;

constexpr uint64_t kTcpClockEvery = 64;        // looks
constexpr size_t kShortPayload = 16 << 10;     // payloads up to which messages share a stream, and so packets
constexpr std::chrono::seconds kTcpSilenceEvery{1};
// Who has nothing else to do for so many looks copies what isn't acknowledged rather than to wait for that.
constexpr int kIdleLooks = 16;
constexpr size_t kMostKept = 64;  // messages, until it is asked which are acknowledged

}  // namespace

TcpNetwork::TcpNetwork(const NetworkSetup& s)
    : WiredNetwork(s),
      settings_(tcp::Settings::from(s.options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      door_(s.interfaces, settings_, static_cast<size_t>(s.nranks), epoll_.get()),
      links_(static_cast<size_t>(s.nranks)) {
  if (!timer_) fail_errno(errno, "timerfd_create");
  tcp::watch(epoll_.get(), timer_.get(), EPOLLIN, nullptr);
  std::string said = address();
  std::replace(said.begin(), said.end(), '\n', ';');
  log_info(Topic::net, "tcp: {} streams for each of the interfaces at {}; congestion control {}", settings_.streams, said,
           settings_.congestion.empty() ? "as the system has it" : settings_.congestion);
}

TcpNetwork::~TcpNetwork() {
  const std::lock_guard lock(mutex_);
  say_goodbye();
  closing_ = true;
  for (auto& link : links_)
    if (link) disconnect(link->peer);
  free_ends();
}

size_t TcpNetwork::streams() const {
  const std::lock_guard lock(mutex_);
  return lines_.size();
}

size_t TcpNetwork::lost_streams() const {
  const std::lock_guard lock(mutex_);
  size_t n = 0;
  for (const auto& link : links_)
    if (link) n += link->settled.size();
  return n;
}

// --- who connects to whom ---

TcpNetwork::Link& TcpNetwork::link_to(int peer) {
  auto& link = links_[static_cast<size_t>(peer)];
  if (!link) {
    link = std::make_unique<Link>();
    link->peer = peer;
  }
  return *link;
}

std::list<Dialing> TcpNetwork::dial_streams(int peer, std::optional<size_t> number) {
  const std::vector<Rail> theirs = tcp::read_rails(address_of(peer));
  if (theirs.empty()) fail(Result::remote_error, "it didn't say at which addresses it can be reached");
  const std::vector<tcp::RailPair> rails = tcp::pair_rails(door_.rails(), theirs);
  const size_t streams = rails.size() * static_cast<size_t>(settings_.streams);
  std::list<Dialing> dialing;
  for (size_t n = number.value_or(0); n < (number ? *number + 1 : streams); ++n) {
    const tcp::RailPair& rail = rails[n % rails.size()];
    dialing.emplace_back(*rail.theirs, rails.size() > 1 || settings_.names_interfaces ? rail.mine : nullptr, static_cast<uint32_t>(setup().rank),
                         static_cast<uint16_t>(n), static_cast<uint16_t>(streams), key_to(peer), settings_, epoll_.get());
  }
  return dialing;
}

void TcpNetwork::dial(Link& link) {
  link.dialing = dial_streams(link.peer);
  link.maker = Link::Maker::this_rank;
  ++dialing_;
  new_dialing_ = true;
}

// The lower rank's connection counts where both have begun.
Verdict TcpNetwork::judge(const Hello& hello) {
  Link& link = link_to(static_cast<int>(hello.from));
  if (link.lost || closing_) return Verdict::lost;
  if (link.maker == Link::Maker::this_rank) {
    if (setup().rank < link.peer || !link.lines.empty()) return Verdict::crossed;
    if (!link.dialing.empty()) --dialing_;
    link.dialing.clear();
  }
  link.maker = Link::Maker::the_peer;
  return Verdict::welcome;
}

void TcpNetwork::enter(Link& link, uint16_t number, uint16_t streams, Fd fd) {
  link.lines.push_back(std::make_unique<Line>(*this, link, std::move(fd), number, streams > 1));
  Line& line = *link.lines.back();
  lines_.push_back(&line);
  link.most_lines = std::max(link.most_lines, link.lines.size());
  link.streams = std::max<size_t>(streams, 1);
  tcp::watch(epoll_.get(), line.stream.fd(), EPOLLIN, &line);
  if (log_enabled(LogLevel::info, Topic::net)) log_info(Topic::net, "tcp: {}, stream {}: {}", setup().rank_name(link.peer), number, line.text());
  if (number >= link.streams)
    log_warn("the tcp connection between {} and {} has its stream {} again, and calls use it", setup().rank_name(setup().rank),
             setup().rank_name(link.peer), line.text());
  for (WireOp* op : std::exchange(link.waiting, {})) line.stream.queue(*op);
}

bool TcpNetwork::serve_door() {
  uint64_t ticks = 0;
  [[maybe_unused]] const ssize_t n = read(timer_.get(), &ticks, sizeof ticks);
  return door_.serve({
      .key_of = [this](uint32_t from) -> std::optional<tcp::PairKey> {
        if (from >= links_.size() || static_cast<int>(from) == setup().rank) return {};
        return key_from(static_cast<int>(from));
      },
      .judge = [this](const Hello& hello) { return judge(hello); },
      .enter = [this](const Hello& hello, Fd fd) { enter(link_to(static_cast<int>(hello.from)), hello.stream, hello.streams, std::move(fd)); },
      .stranger = [this] { dropped_stranger(); },
  });
}

bool TcpNetwork::advance_dialing(Link& link) {
  bool moved = false;
  for (auto d = link.dialing.begin(); d != link.dialing.end();) {
    const Dialing::State state = d->advance();
    if (state == Dialing::State::waiting) {
      ++d;
      continue;
    }
    moved = true;
    if (state == Dialing::State::crossed) {  // so all of them are
      link.dialing.clear();
      break;
    }
    if (state == Dialing::State::connected)
      enter(link, d->number(), d->streams(), d->take());
    else
      log_info(Topic::net, "tcp: {}, stream {}: {}", setup().rank_name(link.peer), d->number(), d->problem());
    end_redial(link, *d, state == Dialing::State::connected);
    // The streams there are serve; without any it is over when the last attempt has failed.
    if (state == Dialing::State::failed && link.lines.empty() && link.dialing.size() == 1) {
      const std::string problem = d->problem();
      link.dialing.clear();
      --dialing_;
      fail(Result::remote_error,
           "it can't be reached at {}. Its process has ended, or the way is closed: name interfaces that join the hosts with NCCL_SOCKET_IFNAME, and open "
           "firewalls for the ports of MUSTER_PORT_RANGE",
           problem);
    }
    d = link.dialing.erase(d);
  }
  if (link.dialing.empty()) --dialing_;
  return moved;
}

void TcpNetwork::expect(int peer) noexcept {
  try {
    if (Link& link = link_to(peer); link.maker == Link::Maker::nobody && !link.lost && peer != setup().rank) dial(link);
  } catch (const std::exception& e) {
    log_info(Topic::net, "tcp: connecting to {}: {}", setup().rank_name(peer), e.what());
  }
}

// What is still queued is finished, as are those that its end then posts.
void TcpNetwork::disconnect(int peer) noexcept {
  Link& link = link_to(peer);
  link.lost = true;
  if (!link.dialing.empty()) --dialing_;
  link.dialing.clear();
  std::erase_if(redials_, [&](const Redial& r) { return r.link == &link; });
  std::deque<WireOp*> ops = std::exchange(link.waiting, {});
  std::vector<WireOp*> kept;
  for (auto* lines : {&link.lines, &link.given_up}) {
    for (const auto& line : *lines) {
      std::erase(lines_, line.get());
      if (line->stream.landing()) lost(line->landing);
      for (WireOp* op : line->stream.abandon()) ops.push_back(op);
      for (WireOp* op : line->unsent) ops.push_back(op);
      line->sent.take_behind(line->sent.total(), &kept);
    }
    lines->clear();
  }
  ops.insert(ops.end(), kept.begin(), kept.end());
  for (WireOp* op : ops) done(*op);
}

// --- out ---

// Long messages go by the stream that has least to do, whole: they may overtake each other.
TcpNetwork::Line& TcpNetwork::best_line(Link& link, const WireOp& op) {
  Line* best = link.lines[0].get();
  if (op.header.bytes <= kShortPayload || link.lines.size() == 1) return *best;
  size_t least = best->stream.bytes_under_way();
  for (const auto& line : link.lines)
    if (const size_t n = least > 0 ? line->stream.bytes_under_way() : 0; n < least) {
      best = line.get();
      least = n;
    }
  return *best;
}

void TcpNetwork::post(WireOp& op) {
  Link& link = link_to(op.peer);
  if (link.lost || closing_) return done(op);
  if (link.lines.empty()) {
    if (link.maker == Link::Maker::nobody) dial(link);
    link.waiting.push_back(&op);
    return;
  }
  Line& line = best_line(link, op);
  line.stream.queue(op);
  // A credit waits for the next look, or goes with the next message.
  if (op.header.kind != WireKind::credit) send(line);
}

bool TcpNetwork::send(Line& line) {
  if (line.sending || !line.stream.has_queued()) return false;
  line.sending = true;  // what finished() posts is queued behind
  bool moved = false;
  std::vector<WireOp*> ops;
  try {
    while (line.stream.has_queued()) {
      const bool some = line.stream.send(&ops);
      moved = moved || some;
      const bool all = !line.stream.has_queued();
      for (WireOp* op : std::exchange(ops, {})) taken(line, *op);
      if (!some || !all) break;
    }
  } catch (const Error& e) {
    for (WireOp* op : ops) taken(line, *op);
    break_line(line, e.what());
  }
  line.sending = false;
  return moved;
}

void TcpNetwork::taken(Line& line, WireOp& op) {
  if (!line.keeps) return done(op);
  if (line.sent.add(op, tcp::Stream::bytes_of(op))) done(op);
  if (line.sent.size() % kMostKept == 0) release(line, false);
}

void TcpNetwork::done(WireOp& op) noexcept {
  if (!op.transport) return finished(op);
  link_to(op.peer).own.remove_if([&](const OwnMessage& m) { return &m.op == &op; });
}

// What the peer's host has is let go of; when there is nothing else to do, also what it may not have.
bool TcpNetwork::release(Line& line, bool idle) {
  std::vector<WireOp*> free;
  line.sent.acknowledge(line.stream.bytes_acknowledged(), &free);
  if (idle) line.sent.copy_all(&free);
  for (WireOp* op : free) done(*op);
  return !free.empty();
}

// --- in ---

std::byte* TcpNetwork::Line::begin(WireHeader& header) {
  if (header.from != static_cast<uint32_t>(link.peer))
    fail(Result::remote_error, "a message came by its connection that says it is rank {}'s: the connection is out of step", header.from);
  header.secret = network.secrets(link.peer).in;
  if (header.own != 0) return nullptr;
  landing = network.land(header);
  return landing.at;
}

void TcpNetwork::Line::end(const WireHeader& header) {
  ++brought;
  if (header.own != 0) {
    network.heard_.emplace_back(&link, header);
    return;
  }
  link.leaving = link.leaving || header.kind == WireKind::goodbye || header.kind == WireKind::farewell;
  network.landed(header, std::exchange(landing, {}));
}

bool TcpNetwork::receive(Line& line) {
  try {
    return line.stream.receive(line);
  } catch (const Error& e) {
    break_line(line, e.what());
    return true;
  }
}

// --- progress ---

// The kernel is asked which streams have something, also where there is one: asking that doesn't lock the socket, in which
// packets are arriving.
bool TcpNetwork::poll() {
  bool moved = false, knocked = false;
  new_dialing_ = false;
  epoll_event events[64];
  const int n = epoll_wait(epoll_.get(), events, std::size(events), 0);
  for (int i = 0; i < n; ++i) {
    if (void* const who = events[i].data.ptr)
      moved = receive(*static_cast<Line*>(who)) || moved;
    else
      knocked = true;
  }
  if (knocked) moved = serve_door() || moved;
  for (size_t peer = 0; dialing_ > 0 && peer < links_.size(); ++peer) {
    Link* const link = links_[peer].get();
    if (!link || link->dialing.empty()) continue;
    try {
      moved = advance_dialing(*link) || moved;
    } catch (const Error& e) {
      break_off(*link, e.what());
    }
  }
  if (woken_ || ++polls_ % kTcpClockEvery == 0) {
    woken_ = false;
    if (const auto now = std::chrono::steady_clock::now(); now - looked_ > kTcpSilenceEvery) {
      looked_ = now;
      look_for_silence();
      if (!redials_.empty()) look_at_redials();
    }
  }
  bool keeps_ops = false;
  for (size_t i = 0; i < lines_.size(); ++i) {
    moved = send(*lines_[i]) || moved;
    keeps_ops = keeps_ops || lines_[i]->sent.has_ops();
  }
  if (keeps_ops) {
    idle_ = moved ? 0 : idle_ + 1;
    for (size_t i = 0; i < lines_.size(); ++i)
      if (lines_[i]->sent.has_ops()) moved = release(*lines_[i], idle_ >= kIdleLooks) || moved;
  }
  return look_at_broken() || moved;
}

// A stream is silent for a quarter of the time until others take its place, if they are heard of; the last one for the rest.
void TcpNetwork::look_for_silence() {
  using std::chrono::milliseconds;
  const milliseconds most = settings_.most_silence;
  const auto text = [](milliseconds silence) {
    return fmt::format("its host hasn't answered for {} s (MUSTER_LINK_TIMEOUT): the link or the host is down", static_cast<double>(silence.count()) / 1000);
  };
  for (const auto& link : links_) {
    if (!link || link->lines.empty()) continue;
    std::vector<milliseconds> silences;
    for (const auto& line : link->lines) {
      bool under_way = false;
      silences.push_back(line->stream.silence.lasts(line->stream.fd(), &under_way));
    }
    const auto [least, longest] = std::ranges::minmax(silences);
    if (longest > (link->lines.size() == link->most_lines ? most : most - most / 4))
      break_off(*link, text(most));
    else if (longest > most / 4 && least < longest / 2)
      for (size_t i = 0; i < silences.size(); ++i)
        if (silences[i] == longest) break_line(*link->lines[i], text(longest));
  }
}

bool TcpNetwork::look_at_broken() {
  if (broken_.empty() && heard_.empty()) [[likely]]
    return false;
  while (!broken_.empty() || !heard_.empty()) {
    for (const auto& [link, header] : std::exchange(heard_, {}))
      if (!link->lost) hear(*link, header);
    for (const auto& [peer, line, why] : std::exchange(broken_, {})) {
      Link& link = link_to(peer);
      const auto stands = [line = line](const auto& l) { return l.get() == line; };
      if (link.lost || (line && std::ranges::none_of(link.lines, stands))) continue;
      if (line && line->keeps && link.lines.size() > 1 && !link.leaving)
        give_up(*line, why);
      else
        lose(link, why);
    }
  }
  settled_.clear();
  return true;
}

void TcpNetwork::lose(Link& link, const std::string& why) {
  // What it had sent before is still to be read, a goodbye perhaps.
  for (const auto* lines : {&link.lines, &link.given_up})
    for (size_t l = 0; l < lines->size(); ++l) try {
        while (!(*lines)[l]->peer_ended && (*lines)[l]->stream.receive(*(*lines)[l])) {
        }
      } catch (const Error&) {
      }
  fail_peer(link.peer, why);
  disconnect(link.peer);
}

bool TcpNetwork::arm_events() {
  if (!broken_.empty() || !heard_.empty() || new_dialing_) return false;
  bool under_way = false;
  for (Line* line : lines_) {
    if (send(*line) || (line->sent.has_ops() && release(*line, true))) return false;
    const bool waits = line->stream.has_queued();
    if (waits != line->watches_out) tcp::rewatch(epoll_.get(), line->stream.fd(), waits ? EPOLLIN | EPOLLOUT : EPOLLIN, line);
    line->watches_out = waits;
    line->stream.silence.lasts(line->stream.fd(), &under_way);
    under_way = under_way || waits;
  }
  under_way = under_way || dialing_ > 0 || !redials_.empty();
  const itimerspec soon{{0, 0}, {under_way ? kTcpSilenceEvery.count() : 0, 0}};
  timerfd_settime(timer_.get(), 0, &soon, nullptr);  // also empties it
  woken_ = broken_.empty();  // by whatever, before the next look
  return broken_.empty();
}

}  // namespace muster
