#include "comm/time_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;

class Buffer {
 public:
  Buffer(size_t bytes, bool window)
      : window_(window),
        memory_(window ? mem_alloc(bytes) : ::operator new (bytes, std::align_val_t{kAlign})) {
    std::memset(memory_, 0, bytes);
  }
  ~Buffer() { window_ ? mem_free(memory_) : ::operator delete (memory_, std::align_val_t{kAlign}); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* get() const { return memory_; }

 private:
  static constexpr size_t kAlign = 4096;
  bool window_;
  void* memory_;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool sends_all(Coll c) { return c == Coll::reduce_scatter || c == Coll::all_to_all || c == Coll::scatter; }
bool receives_all(Coll c) { return c == Coll::all_gather || c == Coll::all_to_all || c == Coll::gather; }

struct Buffers {
  Buffers(const CallShape& shape, int ranks, bool windows)
      : send(bytes_of(shape, sends_all(shape.coll) ? ranks : 1), windows),
        recv(bytes_of(shape, receives_all(shape.coll) ? ranks : 1), windows) {}
  static size_t bytes_of(const CallShape& shape, int chunks) {
    return static_cast<size_t>(chunks) * std::max<size_t>(shape.count * size_of(shape.type), 1);
  }
  const Buffer send, recv;
};

// Calls of one shape, whose ranks may be a part of `all`, or none on this rank.
class Timing {
 public:
  Timing(Communicator& all, Communicator& group, const CallShape& shape, const Buffers& buffers)
      : all_(all), group_(group) {
    call_.shape = shape;
    call_.send = buffers.send.get();
    call_.recv = buffers.recv.get();
  }

  // Seconds of so many calls on the slowest rank, after so many others.
  double batch(size_t calls, size_t before = 0) const {
    make(before);
    all_.barrier();
    const auto begin = Clock::now();
    make(calls);
    double took = group_ ? seconds_since(begin) : 0, longest = 0;
    all_.all_reduce(&took, &longest, 1, DataType::float64, RedOp::max);
    return longest;
  }

  // How many take about so long together.
  size_t calls_of(double seconds) const {
    size_t calls = 1;
    double took = batch(1, 1);  // the first one sets up connections; it says nothing about the others
    while (took < seconds / 4) took = batch(calls *= 2);
    return std::max<size_t>(1, static_cast<size_t>(std::ceil(static_cast<double>(calls) * seconds / took)));
  }

 private:
  void make(size_t calls) const {
    for (size_t i = 0; group_ && i < calls; ++i) submit(group_.impl(), call_, nullptr);
  }

  Communicator &all_, &group_;
  Call call_;
};

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<std::vector<double>> time_calls(Communicator& all, std::span<const TimedCall> calls,
                                            std::chrono::duration<double> per_batch, int rounds) {
  std::optional<Buffers> memory[2];  // ordinary, windows
  std::vector<Timing> timings;
  std::vector<size_t> each;
  for (const TimedCall& c : calls) {
    std::optional<Buffers>& buffers = memory[c.windows];
    if (!buffers) buffers.emplace(c.shape, all.size(), c.windows);
    timings.emplace_back(all, all, c.shape, *buffers);
    each.push_back(timings.back().calls_of(per_batch.count()));
  }
  std::vector<std::vector<double>> us(calls.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < calls.size(); ++i) {
      // In batches of few calls the first would pay for what the other algorithm left in caches.
      constexpr size_t kFew = 8;
      const double seconds = timings[i].batch(each[i], each[i] <= kFew ? 1 : 0);
      us[i].push_back(seconds / static_cast<double>(each[i]) * 1e6);
    }
  return us;
}

double time_call(Communicator& all, Communicator& group, const CallShape& shape, bool windows,
                 std::chrono::duration<double> wanted) {
  constexpr int kBatches = 5;
  const Buffers buffers(shape, group ? group.size() : 1, windows);
  const Timing timing(all, group, shape, buffers);
  const size_t calls = timing.calls_of(wanted.count() / (kBatches + 1));
  std::vector<double> times;
  for (int i = 0; i < kBatches; ++i) times.push_back(timing.batch(calls) / static_cast<double>(calls) * 1e6);
  return median(std::move(times));
}

}  // namespace muster
