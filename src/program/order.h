// Happens-before between the channels of all ranks: vector clocks that travel with slot messages.
// A thread here is one channel of one rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace muster {

class Order {
 public:
  using Clock = std::shared_ptr<const std::vector<uint32_t>>;
  struct Access {
    uint32_t thread = UINT32_MAX;
    uint32_t time = 0;
    uint32_t loop = 0, step = 0;
  };

  Order(size_t threads, size_t cells) : clocks_(threads, std::vector<uint32_t>(threads)), cells_(cells) {}

  // A step of `thread` begins.
  void tick(uint32_t thread) { ++clocks_[thread][thread]; }
  Clock send(uint32_t thread) const { return std::make_shared<const std::vector<uint32_t>>(clocks_[thread]); }
  void receive(uint32_t thread, const Clock& c) { join(clocks_[thread], *c); }

  // The access that is not ordered with this one, if there is one.
  std::optional<Access> read(size_t cell, Access a) {
    Cell& c = cells_[cell];
    a.time = clocks_[a.thread][a.thread];
    if (!before(c.writer, a.thread)) return c.writer;
    for (Access& r : c.readers) {
      if (r.thread == a.thread) {
        r = a;
        return std::nullopt;
      }
    }
    c.readers.push_back(a);
    return std::nullopt;
  }
  std::optional<Access> write(size_t cell, Access a) {
    Cell& c = cells_[cell];
    a.time = clocks_[a.thread][a.thread];
    if (!before(c.writer, a.thread)) return c.writer;
    for (const Access& r : c.readers)
      if (!before(r, a.thread)) return r;
    c.writer = a;
    c.readers.clear();
    return std::nullopt;
  }

  // Has `thread`, at this point, seen time `time` of `other`?
  uint32_t seen(uint32_t thread, uint32_t other) const { return clocks_[thread][other]; }
  uint32_t now(uint32_t thread) const { return clocks_[thread][thread]; }

 private:
  struct Cell {
    Access writer;
    std::vector<Access> readers;
  };
  bool before(const Access& a, uint32_t thread) const {
    return a.thread == UINT32_MAX || a.thread == thread || clocks_[thread][a.thread] >= a.time;
  }
  static void join(std::vector<uint32_t>& into, const std::vector<uint32_t>& from) {
    for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
  }

  std::vector<std::vector<uint32_t>> clocks_;
  std::vector<Cell> cells_;
};

}  // namespace muster
