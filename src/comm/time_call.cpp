#include "comm/time_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <vector>

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

}  // namespace

double time_call(Communicator& all, Communicator& group, const CallShape& shape, bool windows,
                 std::chrono::duration<double> wanted) {
  constexpr int kBatches = 5;
  const bool takes_part = static_cast<bool>(group);
  const size_t n = takes_part ? static_cast<size_t>(group.size()) : 1,
               chunk = std::max<size_t>(shape.count * size_of(shape.type), 1);
  const bool sends_all =
      shape.coll == Coll::reduce_scatter || shape.coll == Coll::all_to_all || shape.coll == Coll::scatter;
  const bool receives_all =
      shape.coll == Coll::all_gather || shape.coll == Coll::all_to_all || shape.coll == Coll::gather;
  const Buffer send(sends_all ? n * chunk : chunk, windows), recv(receives_all ? n * chunk : chunk, windows);
  Call call;
  call.shape = shape;
  call.send = send.get();
  call.recv = recv.get();

  size_t calls = 1;
  const auto batch = [&] {
    all.barrier();
    const auto begin = Clock::now();
    for (size_t i = 0; takes_part && i < calls; ++i) submit(group.impl(), call, nullptr);
    double took = takes_part ? seconds_since(begin) : 0, longest = 0;
    all.all_reduce(&took, &longest, 1, DataType::float64, RedOp::max);
    return longest;
  };
  batch();  // the first one sets up connections; it says nothing about the others
  double took = batch();
  const double per_batch = wanted.count() / (kBatches + 1);
  while (took < per_batch / 4) {
    calls *= 2;
    took = batch();
  }
  calls = std::max<size_t>(1, static_cast<size_t>(std::ceil(static_cast<double>(calls) * per_batch / took)));
  std::vector<double> times;
  for (int i = 0; i < kBatches; ++i) times.push_back(batch() / static_cast<double>(calls) * 1e6);
  std::nth_element(times.begin(), times.begin() + kBatches / 2, times.end());
  return times[kBatches / 2];
}

}  // namespace muster
