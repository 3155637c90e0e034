// The yardstick: an all-reduce of two processes written by hand for nothing else, as fast as we know how. The
// library, through programs, executor and C++ API, is held against it.
//
// Messages up to 56 bytes ride in one cache line each way, next to its sequence number. Beyond that, by
// --memory:
//
// slots: buffers are private; data passes through rings of shared slots. Up to `one_shot` bytes each rank
// hands over its whole vector and both add. Beyond, each rank owns one half of the vector: for each tile,
// hand over the other's half, add the peer's part to mine, hand the sum back.
//
// windows: the peer's buffers are mapped. Up to `one_shot` bytes each rank adds from the peer's send buffer;
// beyond, it adds its half and stores the sum into both recv buffers.
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

constexpr size_t kLargestTile = 4;            // times the tile that short vectors get
constexpr size_t kMinDepth = 4;               // tiles in a ring: three may be in use, one is lost at its end
constexpr size_t kMaxRing = size_t{4} << 20;  // bytes
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
  alignas(4096) float part_ring[kMaxRing / sizeof(float)];
  alignas(4096) float sum_ring[kMaxRing / sizeof(float)];
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
  bool windows = false;
  size_t tile = 16 << 10;  // bytes; long vectors get up to kLargestTile times as much
  // About a second-level cache: a slot whose lines still lie there from the last time round costs an
  // invalidation of each line at the other core, which is several times slower than finding it in the cache
  // both share.
  size_t ring = 1 << 20;
  size_t one_shot = 0;     // 0 = what suits slots or windows
  size_t stream_from = 0;  // bytes of the whole vector from which results bypass the cache; 0 = likewise

  void complete() {
    ring = std::max(ring, kMinDepth * kLargestTile * tile);
    if (one_shot == 0) one_shot = windows ? 512 << 10 : 8 << 10;
    if (stream_from == 0) stream_from = windows ? 1 << 20 : 4 << 20;
    if (!windows) one_shot = std::min(one_shot, ring / kMinDepth);
  }
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
    Line& line = next_line();
    std::memcpy(line.payload, &value, sizeof value);
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

  // The next slot of so many floats; the same on both ranks, for parts and sums alike.
  size_t next_slot(size_t floats) {
    constexpr size_t line = 64 / sizeof(float);
    const size_t ring = tuning_.ring / sizeof(float);
    const size_t at = ring_at_ + floats > ring ? 0 : ring_at_;
    ring_at_ = at + (floats + line - 1) / line * line;
    return at;
  }

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
    const size_t at = next_slot(count);
    loop::copy(mine_.part_ring + at, send, count);
    exchange(line);
    loop::add(recv, send, peer_.part_ring + at, count);
  }

  // Tile t of my half: [t * tile, ...) from my half's begin; the peer's likewise. Phases lag by one tile, so
  // that each rank has work while the other's answer is on its way. A slot is free again once round the ring:
  // its reader has answered a later tile by then.
  void by_slots(const float* send, float* recv, size_t count) {
    constexpr size_t line = 64 / sizeof(float);
    const size_t half = (count / 2 + line - 1) / line * line;  // rank 0's half; >= rank 1's
    const size_t my_begin = rank_ == 0 ? 0 : half, my_count = rank_ == 0 ? half : count - half;
    const size_t peer_begin = half - my_begin, peer_count = count - my_count;
    const size_t tile = std::clamp(half / 4 / line * line, tuning_.tile / sizeof(float),
                                   kLargestTile * tuning_.tile / sizeof(float));
    const size_t tiles = (half + tile - 1) / tile;
    const bool stream = count * sizeof(float) >= tuning_.stream_from;
    const auto in_tile = [tile](size_t total, size_t t) {
      return t * tile >= total ? 0 : std::min(tile, total - t * tile);
    };

    size_t slots[4];
    for (size_t step = 0; step < tiles + 2; ++step) {
      if (step < tiles) {
        const size_t t = step;
        slots[t % 4] = next_slot(in_tile(half, t));
        loop::copy(mine_.part_ring + slots[t % 4], send + peer_begin + t * tile, in_tile(peer_count, t));
        mine_.parts.sequence.store(tile_ + t + 1, std::memory_order_release);
      }
      if (step >= 1 && step - 1 < tiles) {
        const size_t t = step - 1, n = in_tile(my_count, t);
        wait_for(peer_.parts.sequence, tile_ + t + 1);
        float* out = recv + my_begin + t * tile;
        const float* own = send + my_begin + t * tile;
        (stream ? loop::stream_add_and_store : loop::add_to_two)(out, mine_.sum_ring + slots[t % 4], own,
                                                                 peer_.part_ring + slots[t % 4], n);
        mine_.sums.sequence.store(tile_ + t + 1, std::memory_order_release);
      }
      if (step >= 2) {
        const size_t t = step - 2;
        wait_for(peer_.sums.sequence, tile_ + t + 1);
        (stream ? loop::stream_copy : loop::copy)(recv + peer_begin + t * tile, peer_.sum_ring + slots[t % 4],
                                                  in_tile(peer_count, t));
      }
    }
    tile_ += tiles;
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
  size_t ring_at_ = 0;  // floats
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
  const auto sizes = CLI::AsSizeValue(false);
  app.add_option("--memory", memory, "slots, or windows: the peer's buffers are mapped")
      ->check(CLI::IsMember({"slots", "windows"}));
  app.add_option("--tile", tuning.tile, "Bytes per tile of a short vector")
      ->transform(sizes)
      ->check(CLI::Range(size_t{64}, kMaxRing / kMinDepth / kLargestTile));
  app.add_option("--ring", tuning.ring, "Bytes of a ring of slots")
      ->transform(sizes)
      ->check(CLI::Range(size_t{64}, kMaxRing));
  app.add_option("--one-shot", tuning.one_shot, "Up to this size each rank adds everything")
      ->transform(sizes);
  app.add_option("--stream-from", tuning.stream_from, "From this size results bypass the cache")
      ->transform(sizes);
  CLI11_PARSE(app, argc, argv);
  tuning.windows = memory == "windows";
  tuning.complete();

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
