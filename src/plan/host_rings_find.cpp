// The search: depth first over the hops of one ring after the other, nearest first, with as many rings on
// each resource as its capacity allows at the wanted speed.
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "plan/host_rings.h"

namespace muster {

using topology::kNone;
using topology::PathClass;

class RingSearcher {
 public:
  enum class Order : uint8_t {
    free_first,   // of equally near members the one whose path has room for most rings: spreads them over all
                  // links
    next_member,  // of equally near members the next in the order of members
    pairs,  // free_first, and after each ring the same backwards: half the search where links join pairs of
            // members
  };

  RingSearcher(const HostRings& host, double gbytes_per_s, int most, bool same_port, Order order,
               int64_t steps)
      : host_(host), most_(static_cast<size_t>(most)), same_port_(same_port), order_(order), steps_(steps) {
    for (const double c : host.capacity_)
      room_.push_back(gbytes_per_s > 0
                          ? static_cast<int>(std::min(kPlenty, std::floor(c / gbytes_per_s * (1 + 1e-9))))
                          : (c > 0 ? static_cast<int>(kPlenty) : 0));
    now_.reserve(most_);
  }

  std::vector<HostRing> run() {
    begin();
    return std::move(best_);
  }
  int64_t steps_left() const { return steps_; }

 private:
  using Way = HostRings::Way;
  static constexpr double kPlenty = 1e9;

  struct Open {
    HostRing ring;
    std::vector<char> visited;
    int last = kNone;  // member to end with; kNone: any from which the first can be reached
  };

  bool take(const Way& w) {
    --steps_;
    if (!w.open() || room(w) <= 0) return false;
    for (const int r : w.resources) --room_[static_cast<size_t>(r)];
    return true;
  }
  void give_back(const Way& w) {
    for (const int r : w.resources) ++room_[static_cast<size_t>(r)];
  }
  int room(const Way& w) const {
    int least = static_cast<int>(kPlenty);
    for (const int r : w.resources) least = std::min(least, room_[static_cast<size_t>(r)]);
    return least;
  }

  // Each returns true when the search is over: all rings found, or all steps done.
  bool begin() {
    if (now_.size() > best_.size()) {
      best_.clear();
      for (const Open& o : now_) best_.push_back(o.ring);
    }
    if (best_.size() == most_ || steps_ <= 0) return true;
    if (!may_improve()) return false;
    if (host_.in_ports_ == 0) {
      if (order_ == Order::pairs && now_.size() % 2 == 1) return mirror();
      return enter({}, 0);
    }
    for (const int port : ports_by_room()) {
      if (room_[static_cast<size_t>(host_.first_in_ + port)] <= 0) continue;
      for (const int first : nearest_members(port)) {
        const Way& w = host_.in(port, first);
        if (!take(w)) continue;
        HostRing ring;
        ring.in_port = port;
        if (leave_and_go(std::move(ring), first)) return true;
        give_back(w);
      }
    }
    return steps_ <= 0;
  }

  // Whether each member can still send and receive as often as a set larger than the best so far takes.
  bool may_improve() const {
    const auto needed = static_cast<int64_t>(best_.size() + 1 - now_.size());
    return std::all_of(host_.bundles_.begin(), host_.bundles_.end(), [&](const std::vector<int>& links) {
      int64_t free = 0;
      for (const int r : links) free += room_[static_cast<size_t>(r)];
      return free >= needed;
    });
  }

  // The last ring backwards, as one more.
  bool mirror() {
    HostRing ring = now_.back().ring;
    std::reverse(ring.order.begin() + 1, ring.order.end());
    std::vector<const Way*> taken;
    const auto n = static_cast<int>(ring.order.size());
    for (int i = 0; i < n && n > 1; ++i) {
      const Way& w =
          host_.hop(ring.order[static_cast<size_t>(i)], ring.order[static_cast<size_t>((i + 1) % n)]);
      if (!take(w)) break;
      taken.push_back(&w);
    }
    if (n == 1 || static_cast<int>(taken.size()) == n) {
      now_.push_back({std::move(ring), {}, kNone});
      if (begin()) return true;
      now_.pop_back();
    }
    for (const Way* w : taken) give_back(*w);
    return false;
  }

  // The end is chosen before what lies between.
  bool leave_and_go(HostRing ring, int first) {
    struct Exit {
      PathClass path_class;
      int less_room, distance, port, member;
      auto key() const { return std::tie(path_class, less_room, distance, port); }
    };
    std::vector<Exit> exits;
    for (int port = 0; port < host_.out_ports_; ++port) {
      if (same_port_ && port != ring.in_port) continue;
      for (int member = 0; member < host_.size_; ++member) {
        if (member == first && host_.size_ > 1) continue;
        const Way& w = host_.out(port, member);
        if (w.open() && room(w) > 0)
          exits.push_back(
              {w.path_class, -room(w), (member - first + host_.size_) % host_.size_, port, member});
      }
    }
    std::sort(exits.begin(), exits.end(), [](const Exit& a, const Exit& b) { return a.key() < b.key(); });
    for (const Exit& e : exits) {
      const Way& w = host_.out(e.port, e.member);
      if (!take(w)) continue;
      HostRing with_end = ring;
      with_end.out_port = e.port;
      with_end.by_way_of = w.by_way_of;
      if (enter(std::move(with_end), first, e.member)) return true;
      give_back(w);
      if (steps_ <= 0) return true;
    }
    return false;
  }

  bool enter(HostRing ring, int first, int last = kNone) {
    ring.order = {first};
    now_.push_back({std::move(ring), std::vector<char>(static_cast<size_t>(host_.size_)), last});
    now_.back().visited[static_cast<size_t>(first)] = 1;
    if (go_on(first)) return true;
    now_.pop_back();
    return false;
  }

  bool go_on(int from) {
    if (steps_ <= 0) return true;
    const size_t number = now_.size() - 1;  // now_ grows below, and is as it was when that comes back
    const int done = static_cast<int>(now_[number].ring.order.size());
    if (done == host_.size_) {
      if (now_[number].last != kNone) return begin();
      const int first = now_[number].ring.order.front();
      const Way& w = host_.hop(from, first);
      if (from != first && (!host_.may_hop(from, first) || !take(w))) return false;
      if (begin()) return true;
      if (from != first) give_back(w);
      return false;
    }
    for (const int to : next_members(number, from, done)) {
      const Way& w = host_.hop(from, to);
      if (!take(w)) continue;
      now_[number].ring.order.push_back(to);
      now_[number].visited[static_cast<size_t>(to)] = 1;
      if (go_on(to)) return true;
      now_[number].visited[static_cast<size_t>(to)] = 0;
      now_[number].ring.order.pop_back();
      give_back(w);
    }
    return false;
  }

  std::vector<int> next_members(size_t number, int from, int done) const {
    struct Next {
      PathClass path_class;
      int less_room, distance, member;
      auto key() const { return std::tie(path_class, less_room, distance); }
    };
    std::vector<Next> next;
    const Open& o = now_[number];
    for (int to = 0; to < host_.size_; ++to) {
      if (o.visited[static_cast<size_t>(to)] || !host_.may_hop(from, to)) continue;
      if (to == o.last && done < host_.size_ - 1) continue;
      const Way& w = host_.hop(from, to);
      const int free = room(w);
      if (free <= 0) continue;
      next.push_back({w.path_class, order_ == Order::free_first ? -free : 0,
                      (to - from + host_.size_) % host_.size_, to});
    }
    std::sort(next.begin(), next.end(), [](const Next& a, const Next& b) { return a.key() < b.key(); });
    std::vector<int> members;
    for (const Next& n : next) members.push_back(n.member);
    return members;
  }

  std::vector<int> ports_by_room() const {
    std::vector<int> ports;
    for (int p = 0; p < host_.in_ports_; ++p) ports.push_back(p);
    std::stable_sort(ports.begin(), ports.end(), [&](int a, int b) {
      return room_[static_cast<size_t>(host_.first_in_ + a)] >
             room_[static_cast<size_t>(host_.first_in_ + b)];
    });
    return ports;
  }

  // Of the closest class, those with most room first.
  std::vector<int> nearest_members(int port) const {
    PathClass nearest = PathClass::dis;
    for (int i = 0; i < host_.size_; ++i) nearest = std::min(nearest, host_.in(port, i).path_class);
    std::vector<int> members;
    for (int i = 0; i < host_.size_; ++i)
      if (host_.in(port, i).open() && host_.in(port, i).path_class == nearest) members.push_back(i);
    std::stable_sort(members.begin(), members.end(),
                     [&](int a, int b) { return room(host_.in(port, a)) > room(host_.in(port, b)); });
    return members;
  }

  const HostRings& host_;
  size_t most_;
  bool same_port_;
  Order order_;
  int64_t steps_;
  std::vector<int> room_;  // of each resource, in rings
  std::vector<Open> now_;
  std::vector<HostRing> best_;
};

namespace {
constexpr int kOrders = 3;  // that find() tries
}

int64_t HostRings::steps_straight(int rings) const { return int64_t{kOrders} * (size_ + 3) * (rings + 1); }

std::vector<HostRing> HostRings::find(double gbytes_per_s, int most, bool same_port, int64_t& steps) const {
  std::vector<HostRing> best;
  using Order = RingSearcher::Order;
  const int64_t share = steps / kOrders;
  for (const Order order : {Order::free_first, Order::next_member, Order::pairs}) {
    if (order == Order::pairs && in_ports_) break;
    RingSearcher s(*this, gbytes_per_s, most, same_port, order, share);
    std::vector<HostRing> found = s.run();
    steps -= share - s.steps_left();
    if (found.size() > best.size()) best = std::move(found);
    if (static_cast<int>(best.size()) == most) break;
  }
  return best;
}

}  // namespace muster
