// A stream that was lost comes back: see tcp_network.h.
#include <algorithm>

#include "base/log.h"
#include "transports/tcp/tcp_network.h"

namespace muster {
namespace {

using std::chrono::steady_clock;

// From one attempt to the next: twice as long each time. An unplugged cable is in again after seconds, a
// broken switch after hours.
constexpr std::chrono::milliseconds kFirstPause{1000}, kLongestPause{30'000};

}  // namespace

// One at a time for each way, and none while a stream stands there. Numbers that the peer may have heard
// aren't used again: what both ends say about a lost stream must mean that one.
void TcpNetwork::plan_redial(Link& link, size_t lost) {
  if (link.maker != Link::Maker::this_rank || link.leaving || closing_) return;
  const auto is_there = [&](size_t number) { return number % link.streams == lost % link.streams; };
  if (std::ranges::any_of(link.lines, [&](const auto& line) { return is_there(line->number); })) return;
  const auto planned =
      std::ranges::find_if(redials_, [&](const Redial& r) { return r.link == &link && is_there(r.number); });
  if (planned == redials_.end())
    redials_.push_back({&link, lost + link.streams, kFirstPause, steady_clock::now() + kFirstPause});
  else if (planned->dials && planned->number == lost)
    redial_later(*planned, true);
}

void TcpNetwork::redial_later(Redial& r, bool number_is_used) {
  if (number_is_used) r.number += r.link->streams;
  r.dials = false;
  r.due = steady_clock::now() + r.pause;
  r.pause = std::min(2 * r.pause, kLongestPause);
}

void TcpNetwork::begin_redial(Redial& r) {
  Link& link = *r.link;
  std::list<tcp::Dialing> one = dial_streams(link.peer, r.number);
  if (link.dialing.empty()) ++dialing_;
  link.dialing.splice(link.dialing.end(), one);
  new_dialing_ = true;
  r.dials = true;
  r.due = steady_clock::now() + settings_.most_silence / 4;
}

// Attempts end at last: the kernel asks ever more seldom, and would find only late that the way is open
// again.
void TcpNetwork::look_at_redials() {
  std::erase_if(redials_, [](const Redial& r) { return r.link->leaving || r.number > UINT16_MAX; });
  for (Redial& r : redials_) {
    if (steady_clock::now() < r.due) continue;
    if (!r.dials) {
      begin_redial(r);
      continue;
    }
    const auto d =
        std::ranges::find_if(r.link->dialing, [&](const tcp::Dialing& o) { return o.number() == r.number; });
    const bool introduced = d != r.link->dialing.end() && d->introduced();
    if (d != r.link->dialing.end()) {
      r.link->dialing.erase(d);
      if (r.link->dialing.empty()) --dialing_;
    }
    redial_later(r, introduced);
  }
}

void TcpNetwork::end_redial(Link& link, const tcp::Dialing& dialing, bool connected) {
  const auto r = std::ranges::find_if(
      redials_, [&](const Redial& o) { return o.link == &link && o.dials && o.number == dialing.number(); });
  if (r == redials_.end()) return;
  if (connected)
    redials_.erase(r);
  else
    redial_later(*r, dialing.introduced());
}

}  // namespace muster
