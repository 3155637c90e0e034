#include "bootstrap/flood.h"

#include <algorithm>

namespace muster {
namespace {

// A text, or that all up to this number came this way: for one who has them.
enum class Copy : uint8_t { text = 1, mark = 2 };

}  // namespace

Flood::Flood(int rank, int size, Send send, Heard heard)
    : rank_(rank),
      size_(size),
      send_(std::move(send)),
      heard_(std::move(heard)),
      neighbours_{(rank + size - 1) % size, (rank + 1) % size},
      origins_(static_cast<size_t>(size)) {}

bool Flood::beyond(int origin, Side side) {
  const int way = side == Side::next ? 1 : size_ - 1;
  const auto steps = [&](int to) { return static_cast<int>((static_cast<int64_t>(to - rank_ + size_) * way) % size_); };
  const int n = neighbour(side);
  return origin != rank_ && (n == rank_ || steps(origin) < steps(n));
}

void Flood::tell(std::string_view text) {
  Origin& o = of(rank_);
  o.texts.emplace_back(text);
  ++kept_;
  ++o.had;
  for (const Side to : kSides) pass_on(rank_, to, o.had - 1, o.had, true);
  forget(rank_);
}

// Texts after number `after` up to number `upto`, all of which this rank has. Those that the neighbour has are
// only named, unless it is to get them whole.
void Flood::pass_on(int origin, Side to, uint64_t after, uint64_t upto, bool whole) {
  if (!linked_[static_cast<size_t>(to)] || beyond(origin, to) || after >= upto) return;
  Origin& o = of(origin);
  const uint64_t forgotten = o.had - o.texts.size();
  const uint64_t known = std::clamp(whole ? forgotten : std::max(forgotten, came(o, to)), after, upto);
  const auto head = [&](Copy what, uint64_t number) {
    Writer w;
    w.u8(static_cast<uint8_t>(what)).i32(origin).u64(number);
    return w;
  };
  if (known > after) send_(to, head(Copy::mark, known).take());
  for (uint64_t n = known + 1; n <= upto; ++n)
    send_(to, head(Copy::text, n).raw(o.texts[static_cast<size_t>(n - forgotten - 1)]).take());
}

void Flood::take(Side from, Reader r) {
  const auto what = static_cast<Copy>(r.u8());
  const int origin = r.i32();
  const uint64_t number = r.u64();
  if (!r.ok() || origin < 0 || origin >= size_) return;
  Origin& o = of(origin);
  const bool fresh = what == Copy::text && origin != rank_ && number == o.had + 1;
  if (fresh) {
    o.texts.emplace_back(r.rest());
    ++kept_;
    o.had = number;
  }
  if (number > o.had) return;
  const std::string text = fresh ? o.texts.back() : std::string();
  arrive(origin, from, number);
  stand_in(origin);
  forget(origin);
  if (fresh) heard_(origin, text);
}

void Flood::arrive(int origin, Side from, uint64_t number) {
  Origin& o = of(origin);
  const uint64_t before = came(o, from);
  if (number <= before) return;
  came(o, from) = number;
  if (origin != rank_) pass_on(origin, other(from), before, number, false);
}

void Flood::stand_in(int origin) {
  for (const Side side : kSides)
    if (beyond(origin, side)) arrive(origin, side, of(origin).had);
}

void Flood::forget(int origin) {
  Origin& o = of(origin);
  // Round the whole ring back to the origin either way is enough.
  const bool alone = neighbours_[0] == rank_;
  const uint64_t everywhere = alone             ? o.had
                              : origin == rank_ ? std::max(o.came[0], o.came[1])
                                                : std::min(o.came[0], o.came[1]);
  const uint64_t forgotten = o.had - o.texts.size();
  if (everywhere <= forgotten) return;
  o.texts.erase(o.texts.begin(), o.texts.begin() + static_cast<std::ptrdiff_t>(everywhere - forgotten));
  kept_ -= everywhere - forgotten;
}

void Flood::linked(Side side, int who) {
  linked_[static_cast<size_t>(side)] = true;
  neighbour(side) = who;
  for (int origin = 0; origin < size_; ++origin) {
    Origin& o = of(origin);
    if (o.had == 0) continue;
    stand_in(origin);
    pass_on(origin, side, 0, origin == rank_ ? o.had : came(o, other(side)), true);
    forget(origin);
  }
}

void Flood::unlinked(Side side, int who) {
  linked_[static_cast<size_t>(side)] = false;
  neighbour(side) = who;
  for (int origin = 0; origin < size_; ++origin) {
    stand_in(origin);
    forget(origin);
  }
}

}  // namespace muster
