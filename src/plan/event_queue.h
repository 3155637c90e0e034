// Events by time, those of one time in the order in which they came: a radix heap (Ahuja, Mehlhorn, Orlin,
// Tarjan: "Faster algorithms for the shortest path problem", 1990), for times that never lie before the last
// one taken. O(1) to add, O(64) amortized to take, no comparison of equal times: simulations of regular
// programs have thousands of them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster {

template <class T>
class EventQueue {
 public:
  struct Event {
    uint64_t time;
    T what;
  };

  bool empty() const { return size_ == 0; }
  // `time`: not before now().
  void add(uint64_t time, T what) {
    buckets_[bucket(time)].push_back({time, what});
    ++size_;
  }
  uint64_t now() const { return now_; }

  // Goes on to the time of the next events, all of which next() then gives, with those added meanwhile. Not
  // when empty.
  void advance() {
    if (taken_ < buckets_[0].size()) return;
    buckets_[0].clear();
    taken_ = 0;
    size_t from = 1;
    while (buckets_[from].empty()) ++from;
    std::vector<Event>& events = buckets_[from];
    uint64_t first = events[0].time;
    for (const Event& e : events) first = e.time < first ? e.time : first;
    now_ = first;
    for (const Event& e : events) buckets_[bucket(e.time)].push_back(e);
    events.clear();
  }
  // The next event of this time; false: there is none.
  bool next(T& what) {
    if (taken_ == buckets_[0].size()) return false;
    what = buckets_[0][taken_++].what;
    --size_;
    return true;
  }

 private:
  // By the highest bit that differs from now: those of bucket 0 are due.
  size_t bucket(uint64_t time) const { return static_cast<size_t>(std::bit_width(time ^ now_)); }

  std::array<std::vector<Event>, 65> buckets_;
  size_t taken_ = 0, size_ = 0;
  uint64_t now_ = 0;
};

}  // namespace muster
