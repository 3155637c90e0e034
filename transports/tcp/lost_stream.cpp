// What becomes of a stream that breaks while the connection has others: see tcp_network.h.
#include <sys/epoll.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "transports/tcp/tcp_network.h"

namespace muster {

std::string TcpNetwork::Line::text() const {
  const tcp::Place mine = tcp::Place::of_this(stream.fd());
  const std::string interface = tcp::interface_of(mine);
  return fmt::format("{}{} to {}", mine.text(), interface.empty() ? "" : fmt::format(" ({})", interface), stream.peer());
}

void TcpNetwork::give_up(Line& line, const std::string& why) {
  Link& link = line.link;
  log_info(Topic::net, "tcp: {}, stream {}, {}, is given up: {}", setup().rank_name(link.peer), line.number, line.text(), why);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, line.stream.fd(), nullptr);
  std::erase(lines_, &line);
  const auto at = std::ranges::find_if(link.lines, [&](const auto& l) { return l.get() == &line; });
  link.given_up.push_back(std::move(*at));
  link.lines.erase(at);
  line.why = why;
  line.unsent = line.stream.abandon();
  std::vector<WireOp*> free;
  line.sent.copy_all(&free);
  for (WireOp* op : free) done(*op);
  say(link, Says::ends, line.number, 0);
}

void TcpNetwork::say(Link& link, Says what, uint64_t stream, uint64_t messages) {
  WireHeader h{};
  h.from = static_cast<uint32_t>(setup().rank);
  h.own = static_cast<uint8_t>(what);
  h.number = messages;
  h.offset = stream;
  post_own(link, h, nullptr);
}

void TcpNetwork::post_own(Link& link, const WireHeader& header, std::unique_ptr<std::byte[]> payload) {
  link.own.push_back({{}, std::move(payload)});
  OwnMessage& m = link.own.back();
  m.op.header = header;
  m.op.payload = m.payload.get();
  m.op.peer = link.peer;
  m.op.transport = this;
  post(m.op);
}

void TcpNetwork::hear(Link& link, const WireHeader& header) {
  const uint64_t number = header.offset;
  const auto is_meant = [&](const auto& line) { return line->number == number; };
  if (const auto at = std::ranges::find_if(link.lines, is_meant); at != link.lines.end()) {
    if (link.lines.size() == 1 || !(*at)->keeps) return lose(link, "it has given up the last stream");
    give_up(**at, "the other rank has given it up");
  }
  const auto at = std::ranges::find_if(link.given_up, is_meant);
  if (at == link.given_up.end()) {
    // It stands for the peer only: the answer to who dialed it was lost.
    if (!link.settled.insert(number).second) return;
    if (std::erase_if(link.dialing, [&](const tcp::Dialing& d) { return d.number() == number; }) > 0 && link.dialing.empty()) --dialing_;
    plan_redial(link, number);
    return say(link, Says::brought, number, 0);
  }
  Line& line = **at;
  if (!line.peer_ended) drain(line);
  if (header.own == static_cast<uint8_t>(Says::brought)) send_again(line, header.number);
}

// The peer sends nothing more by it.
void TcpNetwork::drain(Line& line) {
  line.peer_ended = true;
  try {
    while (line.stream.receive(line)) {
    }
  } catch (const Error&) {  // it is broken, and has been read
  }
  if (line.stream.landing()) lost(std::exchange(line.landing, {}));
  say(line.link, Says::brought, line.number, line.brought);
}

void TcpNetwork::send_again(Line& line, uint64_t brought) {
  Link& link = line.link;
  if (brought < line.sent.acknowledged() || brought > line.sent.total())
    return lose(link, fmt::format("of the stream {} it has {} messages, of {} sent and {} acknowledged: something between the hosts acknowledges for them",
                                  line.text(), brought, line.sent.total(), line.sent.acknowledged()));
  std::vector<WireOp*> free;
  std::vector<tcp::Unacknowledged::Message> again = line.sent.take_behind(brought, &free);
  log_warn("the tcp connection between {} and {} has lost its stream {}: {}. What hadn't arrived is sent again (messages: {}), and calls go on, by the {} left",
           setup().rank_name(setup().rank), setup().rank_name(link.peer), line.text(), line.why, again.size() + line.unsent.size(),
           link.lines.size() == 1 ? "one" : std::to_string(link.lines.size()));
  const auto at = std::ranges::find_if(link.given_up, [&](const auto& l) { return l.get() == &line; });
  settled_.push_back(std::move(*at));
  link.given_up.erase(at);
  link.settled.insert(line.number);
  plan_redial(link, line.number);
  for (WireOp* op : free) done(*op);
  for (auto& m : again) post_own(link, m.header, std::move(m.copy));
  for (WireOp* op : std::exchange(line.unsent, {})) post(*op);
}

}  // namespace muster
