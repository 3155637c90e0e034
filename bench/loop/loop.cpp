// The yardstick: an all-reduce of two processes written by hand for nothing else, as fast as we know how. The
// library, through programs, executor and C++ API, is held against it.
//
// Messages up to 56 bytes ride in one cache line each way, next to its sequence number. Beyond that:
//   slots    buffers are private; data passes through small shared slots that stay in cache. Up to `one_shot`
//   bytes
//            each rank hands over its whole vector and both add. Beyond, each rank owns one half of the
//            vector: for each tile, hand over the other's half, add the peer's part to mine, hand the sum
//            back.
//   windows  the peer's buffers are mapped. Up to `one_shot` bytes each rank adds from the peer's send
//   buffer; beyond,
//            it adds its half and stores the sum into both recv buffers.
#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "fork_ranks.h"
#include "kernels.h"
#include "method.h"

namespace {

constexpr size_t kDepth = 4;                  // slots of each kind; the lag between phases needs three
constexpr size_t kMaxTile = size_t{1} << 18;  // bytes
constexpr size_t kPage = 4096;

// A sequence number and what fits beside it.
struct alignas(64) Line {
  std::atomic<uint64_t> sequence{0};
  float payload[14];
};

// What one rank writes and the other reads.
struct Outbox {
  Line small[2];  // by parity of the call: the peer has read call k - 2 when it has answered call k - 1
  Line parts;     // number of tiles of parts handed over
  Line sums;      // number of tiles of sums handed over
  Line ready;     // windows: this call's buffers may be used; payload = their offsets in the pool
  Line done;      // windows: this rank has finished with the peer's buffers
  Line value;     // for max()
  alignas(64) float one_shot[2][kMaxTile / sizeof(float)];
  alignas(64) float part[kDepth][kMaxTile / sizeof(float)];
  alignas(64) float sum[kDepth][kMaxTile / sizeof(float)];
};

void wait_for(const std::atomic<uint64_t>& sequence, uint64_t at_least) {
  for (unsigned spins = 0; sequence.load(std::memory_order_acquire) < at_least; ++spins) {
    if (spins > 200) _mm_pause();
    if (spins > 2000) sched_yield();  // the peer may wait for this core
  }
}

// Each rank on a core of its own, as mpirun does; without two cores, or the right to choose, as it comes.
void bind_to_core(int rank) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  int cpu = -1;
  for (int left = rank; left >= 0; --left) {
    do ++cpu;
    while (!CPU_ISSET(cpu, &allowed));
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

void* map_shared(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return p;
}

struct Tuning {
  size_t tile = 16 << 10;
  size_t one_shot = 8 << 10;
  size_t stream_from = 8 << 20;  // bytes of the whole vector
  bool windows = false;
};

class Loop : public peers::Library {
 public:
  // outboxes: one per rank. pools: of pool_bytes, one per rank, rank 0's first; for windows only.
  Loop(int rank, Outbox* outboxes, char* pools, size_t pool_bytes, const Tuning& tuning)
      : rank_(rank),
        mine_(outboxes[rank]),
        peer_(outboxes[1 - rank]),
        tuning_(tuning),
        pools_(pools),
        pool_bytes_(pool_bytes) {}

  const char* name() const override { return tuning_.windows ? "loop-windows" : "loop"; }
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  bool supports(peers::Collective c) const override { return c == peers::Collective::all_reduce; }

  void run(peers::Collective, const float* send, float* recv, size_t count) override {
    const size_t bytes = count * sizeof(float);
    if (bytes <= sizeof(Line::payload)) return by_line(send, recv, count);
    if (tuning_.windows) return by_windows(send, recv, count);
    if (bytes <= tuning_.one_shot) return by_one_shot(send, recv, count);
    by_slots(send, recv, count);
  }
  void barrier() override { max(0); }
  double max(double value) override {
    double theirs = 0;
    const float* as_floats = reinterpret_cast<const float*>(&value);
    Line& line = next_line();
    std::memcpy(line.payload, as_floats, sizeof value);
    const Line& answer = exchange(line);
    std::memcpy(&theirs, answer.payload, sizeof theirs);
    return std::max(value, theirs);
  }

  void* allocate(size_t bytes) override {
    if (!tuning_.windows) return Library::allocate(bytes);
    const size_t at = used_;
    used_ += (bytes + kPage - 1) / kPage * kPage;
    if (used_ > pool_bytes_) throw std::bad_alloc();
    return pool(rank_) + at;
  }
  void release(void* memory) override {
    if (!tuning_.windows) Library::release(memory);
  }

 private:
  char* pool(int rank) const { return pools_ + static_cast<size_t>(rank) * pool_bytes_; }

  Line& next_line() { return mine_.small[++call_ % 2]; }
  const Line& exchange(Line& line) {
    line.sequence.store(call_, std::memory_order_release);
    const Line& answer = peer_.small[call_ % 2];
    wait_for(answer.sequence, call_);
    return answer;
  }

  void by_line(const float* send, float* recv, size_t count) {
    Line& line = next_line();
    for (size_t i = 0; i < count; ++i) line.payload[i] = send[i];
    const Line& answer = exchange(line);
    for (size_t i = 0; i < count; ++i) recv[i] = send[i] + answer.payload[i];
  }

  void by_one_shot(const float* send, float* recv, size_t count) {
    Line& line = next_line();
    const size_t parity = call_ % 2;
    loop::copy(mine_.one_shot[parity], send, count);
    exchange(line);
    loop::add(recv, send, peer_.one_shot[parity], count);
  }

  // Tile t of my half: [t * tile, ...) from my half's begin; the peer's likewise. Phases lag by one tile, so
  // that each rank has work while the other's answer is on its way. A slot is free again after kDepth tiles:
  // its reader has answered a later tile by then.
  void by_slots(const float* send, float* recv, size_t count) {
    constexpr size_t line = 64 / sizeof(float);
    const size_t half = (count / 2 + line - 1) / line * line;  // rank 0's half; >= rank 1's
    const size_t my_begin = rank_ == 0 ? 0 : half, my_count = rank_ == 0 ? half : count - half;
    const size_t peer_begin = half - my_begin, peer_count = count - my_count;
    const size_t tile = tuning_.tile / sizeof(float);
    const size_t tiles = (half + tile - 1) / tile;
    const bool stream = count * sizeof(float) >= tuning_.stream_from;
    const auto in_tile = [tile](size_t total, size_t t) {
      return t * tile >= total ? 0 : std::min(tile, total - t * tile);
    };

    for (size_t step = 0; step < tiles + 2; ++step) {
      if (step < tiles) {
        const size_t t = step;
        loop::copy(mine_.part[t % kDepth], send + peer_begin + t * tile, in_tile(peer_count, t));
        mine_.parts.sequence.store(tile_ + t + 1, std::memory_order_release);
      }
      if (step >= 1 && step - 1 < tiles) {
        const size_t t = step - 1, n = in_tile(my_count, t);
        wait_for(peer_.parts.sequence, tile_ + t + 1);
        float* out = recv + my_begin + t * tile;
        const float* own = send + my_begin + t * tile;
        (stream ? loop::stream_add_and_store : loop::add_to_two)(out, mine_.sum[t % kDepth], own,
                                                                 peer_.part[t % kDepth], n);
        mine_.sums.sequence.store(tile_ + t + 1, std::memory_order_release);
      }
      if (step >= 2) {
        const size_t t = step - 2;
        wait_for(peer_.sums.sequence, tile_ + t + 1);
        (stream ? loop::stream_copy : loop::copy)(recv + peer_begin + t * tile, peer_.sum[t % kDepth],
                                                  in_tile(peer_count, t));
      }
    }
    tile_ += tiles + kDepth - tiles % kDepth;  // the next call begins at slot 0 again
  }

  void by_windows(const float* send, float* recv, size_t count) {
    ++window_call_;
    const uint64_t offsets[2] = {static_cast<uint64_t>(reinterpret_cast<const char*>(send) - pool(rank_)),
                                 static_cast<uint64_t>(reinterpret_cast<char*>(recv) - pool(rank_))};
    std::memcpy(mine_.ready.payload, offsets, sizeof offsets);
    mine_.ready.sequence.store(window_call_, std::memory_order_release);
    wait_for(peer_.ready.sequence, window_call_);
    uint64_t theirs[2];
    std::memcpy(theirs, peer_.ready.payload, sizeof theirs);
    const auto* peer_send = reinterpret_cast<const float*>(pool(1 - rank_) + theirs[0]);
    auto* peer_recv = reinterpret_cast<float*>(pool(1 - rank_) + theirs[1]);

    const size_t bytes = count * sizeof(float);
    if (bytes <= tuning_.one_shot) {
      loop::add(recv, send, peer_send, count);
    } else {
      const size_t half = (count / 2 + 15) / 16 * 16;
      const size_t begin = rank_ == 0 ? 0 : half, n = rank_ == 0 ? half : count - half;
      (bytes >= tuning_.stream_from ? loop::stream_add_to_two : loop::add_to_two)(
          recv + begin, peer_recv + begin, send + begin, peer_send + begin, n);
    }
    mine_.done.sequence.store(window_call_, std::memory_order_release);
    wait_for(peer_.done.sequence, window_call_);
  }

  int rank_;
  Outbox& mine_;
  const Outbox& peer_;
  const Tuning tuning_;
  char* pools_;
  size_t pool_bytes_, used_ = 0;
  uint64_t call_ = 0, window_call_ = 0, tile_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"A hand-written all-reduce of two processes as yardstick"};
  peers::Options options;
  options.collectives = {"all_reduce"};
  peers::add_options(app, options);
  std::string memory = "slots";
  Tuning tuning;
  size_t tile = 0, one_shot = 0, stream_from = 0;
  const auto sizes = CLI::AsSizeValue(false);
  app.add_option("--memory", memory, "slots, or windows: the peer's buffers are mapped")
      ->check(CLI::IsMember({"slots", "windows"}));
  app.add_option("--tile", tile, "Bytes of a slot")
      ->transform(sizes)
      ->check(CLI::Range(size_t{64}, kMaxTile));
  app.add_option("--one-shot", one_shot, "Up to this size each rank adds everything")->transform(sizes);
  app.add_option("--stream-from", stream_from, "From this size results bypass the cache")->transform(sizes);
  CLI11_PARSE(app, argc, argv);
  tuning.windows = memory == "windows";
  if (tuning.windows) tuning.one_shot = size_t{1} << 20;
  if (tile > 0) tuning.tile = tile;
  if (one_shot > 0) tuning.one_shot = tuning.windows ? one_shot : std::min(one_shot, kMaxTile);
  if (stream_from > 0) tuning.stream_from = stream_from;

  auto* outboxes = static_cast<Outbox*>(map_shared(2 * sizeof(Outbox)));
  new (outboxes) Outbox[2];
  const size_t pool_bytes = 4 * options.end + (size_t{1} << 30);  // untouched pages cost nothing
  auto* pools = static_cast<char*>(map_shared(2 * pool_bytes));
  return peers::fork_ranks(2, [&](int rank) {
    bind_to_core(rank);
    Loop loop(rank, outboxes, pools, pool_bytes, tuning);
    return peers::measure(loop, options);
  });
}
