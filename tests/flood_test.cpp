// Texts on a ring whose ranks die and are connected past, in random orders: who lives has heard the same.
#include "bootstrap/flood.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <set>

namespace muster {
namespace {

class Ring {
 public:
  Ring(int n, unsigned seed) : random_(seed), ranks_(static_cast<size_t>(n)) {
    for (int r = 0; r < n; ++r) {
      Rank& k = at(r);
      k.heard.resize(static_cast<size_t>(n));
      k.flood = std::make_unique<Flood>(
          r, n, [this, r](Side to, std::string_view m) { at(r).out[static_cast<size_t>(to)].emplace_back(m); },
          [this, r](int origin, std::string_view text) {
            auto& list = at(r).heard[static_cast<size_t>(origin)];
            EXPECT_EQ(text, name(origin, static_cast<int>(list.size())));
            list.emplace_back(text);
          });
    }
    for (int r = 0; r < n; ++r) connect(r);
  }

  size_t pick(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }
  std::vector<int> living() const {
    std::vector<int> r;
    for (size_t i = 0; i < ranks_.size(); ++i)
      if (!ranks_[i].dead) r.push_back(static_cast<int>(i));
    return r;
  }
  void tell(int r) { at(r).flood->tell(name(r, at(r).told++)); }

  // One message of one connection arrives, if any is under way.
  bool step() {
    std::vector<std::pair<int, Side>> ways;
    for (const int r : living())
      for (const Side s : kSides)
        if (at(r).peer[static_cast<size_t>(s)] >= 0 && !at(r).out[static_cast<size_t>(s)].empty()) ways.emplace_back(r, s);
    if (ways.empty()) return false;
    const auto [r, side] = ways[pick(ways.size())];
    auto& queue = at(r).out[static_cast<size_t>(side)];
    const std::string message = queue.front();
    queue.pop_front();
    at(at(r).peer[static_cast<size_t>(side)]).flood->take(other(side), Reader(message));
    return true;
  }

  void kill(const std::set<int>& ranks) {
    for (const int r : ranks) at(r).dead = true;
    for (const int r : living())
      for (const Side s : kSides) {
        const int peer = at(r).peer[static_cast<size_t>(s)];
        if (peer < 0 || at(peer).dead) cut(r, s);
      }
  }
  // Connections past the dead; each when it comes.
  bool heal_one() {
    for (const int r : living())
      if (at(r).peer[1] < 0 && living().size() > 1) {
        connect(r);
        return true;
      }
    return false;
  }

  void check() {
    const std::vector<int> alive = living();
    for (size_t origin = 0; origin < ranks_.size(); ++origin)
      for (const int r : alive) {
        const auto& list = at(r).heard[origin];
        if (static_cast<int>(origin) == r) {
          EXPECT_TRUE(list.empty());
        } else if (!ranks_[origin].dead) {
          EXPECT_EQ(static_cast<int>(list.size()), ranks_[origin].told) << r << " of " << origin;
        } else {
          const int first = alive[0];
          EXPECT_EQ(list.size(), at(first).heard[origin].size()) << r << " and " << first << " of " << origin;
        }
      }
    for (const int r : alive) EXPECT_EQ(at(r).flood->kept(), 0u) << r;
  }

 private:
  struct Rank {
    std::unique_ptr<Flood> flood;
    bool dead = false;
    int told = 0;
    std::array<int, 2> peer{-1, -1};
    std::array<std::deque<std::string>, 2> out;
    std::vector<std::vector<std::string>> heard;
  };
  Rank& at(int r) { return ranks_[static_cast<size_t>(r)]; }
  static std::string name(int origin, int i) { return std::to_string(origin) + ":" + std::to_string(i); }
  int living_neighbour(int r, Side s) {
    const int n = static_cast<int>(ranks_.size());
    int k = r;
    do k = (k + (s == Side::next ? 1 : n - 1)) % n;
    while (at(k).dead && k != r);
    return k;
  }
  void cut(int r, Side s) {
    at(r).peer[static_cast<size_t>(s)] = -1;
    at(r).out[static_cast<size_t>(s)].clear();
    at(r).flood->unlinked(s, living_neighbour(r, s));
  }
  void connect(int r) {
    const int peer = living_neighbour(r, Side::next);
    at(r).peer[1] = peer;
    at(peer).peer[0] = r;
    at(r).flood->linked(Side::next, peer);
    at(peer).flood->linked(Side::prev, r);
  }

  std::mt19937 random_;
  std::vector<Rank> ranks_;
};

TEST(Flood, AllHearAllAndKeepNothing) {
  for (const int n : {2, 3, 9}) {
    Ring ring(n, 1);
    for (int i = 0; i < 30; ++i) ring.tell(i % n);
    while (ring.step()) {
    }
    ring.check();
  }
}

TEST(Flood, WhoeverDiesTheOthersHearTheSame) {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    const int n = 2 + static_cast<int>(seed % 9);
    Ring ring(n, seed);
    for (int i = 0; i < 300; ++i) {
      const std::vector<int> alive = ring.living();
      switch (ring.pick(12)) {
        case 0:
        case 1:
        case 2: ring.tell(alive[ring.pick(alive.size())]); break;
        case 3: ring.heal_one(); break;
        case 4:
          if (ring.pick(10) == 0) {  // some neighbours at once
            std::set<int> dead;
            const size_t first = ring.pick(alive.size()), most = std::min<size_t>(alive.size() - 1, 3);
            for (size_t k = 0; most && k <= ring.pick(most); ++k) dead.insert(alive[(first + k) % alive.size()]);
            if (dead.size() < alive.size()) ring.kill(dead);
          }
          break;
        default: ring.step();
      }
    }
    for (bool more = true; more;) {
      more = ring.heal_one();
      while (ring.step()) more = true;
    }
    ring.check();
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(Flood, IgnoresWhatNoRankSends) {
  int heard = 0;
  Flood flood(1, 3, [](Side, std::string_view) {}, [&](int, std::string_view) { ++heard; });
  const auto message = [](int kind, int origin, uint64_t number) {
    return Writer().u8(static_cast<uint8_t>(kind)).i32(origin).u64(number).raw("x").take();
  };
  for (const std::string& m : {message(1, -1, 1), message(1, 3, 1), message(1, 1, 1), message(1, 0, 2), message(1, 0, 0),
                               message(2, 0, 1), message(7, 0, 1), std::string("\1\0", 2), std::string()})
    flood.take(Side::prev, Reader(m));
  EXPECT_EQ(heard, 0);
  EXPECT_EQ(flood.kept(), 0u);
  flood.take(Side::prev, Reader(message(1, 0, 1)));
  EXPECT_EQ(heard, 1);
}

}  // namespace
}  // namespace muster
