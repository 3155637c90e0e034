#include "method.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace peers {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMaxPairs = 4;
constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"};

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

size_t last_level_cache() {
  const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return static_cast<size_t>(l3 > 0 ? l3 : l2 > 0 ? l2 : 32 << 20);
}

size_t pairs_for(size_t bytes) {
  return std::clamp((2 * last_level_cache() + bytes - 1) / bytes, size_t{1}, kMaxPairs);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What rank r contributes at element i of pair p. Small integers, so that sums of 64 ranks are exact in
// float; different for each rank and pair, so that no contribution can stand for another.
float value(int r, size_t p, size_t i) {
  return static_cast<float>(static_cast<uint32_t>(i) % 61 + 64 * static_cast<uint32_t>(r) +
                            8192 * static_cast<uint32_t>(p));
}

float sum_of_values(int n, size_t p, size_t i) {
  return static_cast<float>(n) * value(0, p, i) + static_cast<float>(32 * n * (n - 1));
}

// The shape of one collective at one size, as one rank sees it.
struct Shape {
  Collective collective;
  int rank, size;
  size_t count;  // as in Library::run

  size_t send_elements() const {
    return collective == Collective::reduce_scatter || collective == Collective::all_to_all ? whole() : count;
  }
  size_t recv_elements() const {
    return collective == Collective::all_gather || collective == Collective::all_to_all ? whole() : count;
  }
  size_t whole() const { return count * static_cast<size_t>(size); }

  void expect_block(int block, size_t pair, float* out) const {
    const size_t first = static_cast<size_t>(rank) * count;  // of my block in everyone's send buffer
    for (size_t i = 0; i < count; ++i) {
      switch (collective) {
        case Collective::all_reduce:
          out[i] = sum_of_values(size, pair, i);
          break;
        case Collective::reduce_scatter:
          out[i] = sum_of_values(size, pair, first + i);
          break;
        case Collective::all_gather:
          out[i] = value(block, pair, i);
          break;
        case Collective::broadcast:
          out[i] = value(kRoot, pair, i);
          break;
        case Collective::all_to_all:
          out[i] = value(block, pair, first + i);
          break;
      }
    }
  }
};

// The K pairs of buffers of one size, inside memory that is allocated once for all sizes.
class Buffers {
 public:
  Buffers(const Shape& shape, size_t pairs, char* send, char* recv)
      : shape_(shape), pairs_(pairs), send_(send), recv_(recv) {}

  float* recv(size_t pair) const { return at(recv_, pair, shape_.recv_elements()); }
  float* send(size_t pair) const {
    return shape_.collective == Collective::broadcast ? recv(pair) : at(send_, pair, shape_.send_elements());
  }

  void fill() const {
    for (size_t p = 0; p < pairs_; ++p) {
      poison(p);
      float* out = send(p);
      if (shape_.collective == Collective::broadcast && shape_.rank != kRoot) continue;
      for (size_t i = 0; i < shape_.send_elements(); ++i) out[i] = value(shape_.rank, p, i);
    }
  }

  void poison_outputs() const {
    for (size_t p = 0; p < pairs_; ++p) {
      if (shape_.collective != Collective::broadcast || shape_.rank != kRoot) poison(p);
    }
  }

  // Stores to one float of each line of the send buffer the value that it has.
  void rewrite(size_t pair) const {
    if (shape_.collective == Collective::broadcast && shape_.rank != kRoot) return;
    volatile float* p = send(pair);
    for (size_t i = 0; i < shape_.send_elements(); i += 16) p[i] = p[i];
  }

  size_t wrong_elements() const {
    size_t wrong = 0;
    std::vector<float> expected(shape_.count);
    const int blocks = shape_.recv_elements() == shape_.count ? 1 : shape_.size;
    for (size_t p = 0; p < pairs_; ++p) {
      for (int b = 0; b < blocks; ++b) {
        shape_.expect_block(b, p, expected.data());
        const float* got = recv(p) + static_cast<size_t>(b) * shape_.count;
        for (size_t i = 0; i < shape_.count; ++i) wrong += !(got[i] == expected[i]);
      }
    }
    return wrong;
  }

 private:
  static float* at(char* base, size_t pair, size_t elements) {
    return reinterpret_cast<float*>(base + pair * round_up(elements * sizeof(float), kPage));
  }
  void poison(size_t pair) const {
    std::memset(recv(pair), 0xff, shape_.recv_elements() * sizeof(float));
  }  // NaN

  Shape shape_;
  size_t pairs_;
  char *send_, *recv_;
};

class Measurement {
 public:
  Measurement(Library& library, const Options& options) : library_(library), options_(options) {
    size_t most = kPage;
    for (size_t b = options.begin; b <= options.end; b *= options.factor)
      most = std::max(most, pairs_for(b) * round_up(b, kPage));
    send_ = static_cast<char*>(library.allocate(most));
    recv_ = static_cast<char*>(library.allocate(most));
  }
  ~Measurement() {
    library_.release(recv_);
    library_.release(send_);
  }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  bool one_size(Collective collective, size_t bytes) {
    const auto n = static_cast<size_t>(library_.size());
    const bool whole = collective == Collective::all_reduce || collective == Collective::broadcast;
    const size_t unit = whole ? sizeof(float) : sizeof(float) * n;
    if (bytes % unit != 0) return true;
    const Shape shape{collective, library_.rank(), library_.size(), bytes / unit};
    const size_t pairs = pairs_for(bytes);
    const Buffers buffers(shape, pairs, send_, recv_);
    buffers.fill();

    const double seconds = time_per_call(shape, buffers, pairs);

    buffers.poison_outputs();
    library_.barrier();
    for (size_t p = 0; p < pairs; ++p)
      library_.run(collective, buffers.send(p), buffers.recv(p), shape.count);
    const size_t mine = buffers.wrong_elements();
    const char* name = kNames[static_cast<int>(collective)];
    if (mine > 0) {
      std::fprintf(stderr, "%s: %s of %zu bytes: %zu wrong elements on rank %d\n", library_.name(), name,
                   bytes, mine, shape.rank);
    }
    const bool right = library_.max(static_cast<double>(mine)) == 0;
    if (right && shape.rank == 0) {
      std::printf("%s %s %zu %.9f\n", library_.name(), name, bytes, seconds);
      std::fflush(stdout);
    }
    return right;
  }

 private:
  double time_per_call(const Shape& shape, const Buffers& buffers, size_t pairs) {
    const double target = options_.time_ms * 1e-3;
    size_t calls = 1, pair = 0;
    const auto batch = [&] {
      library_.barrier();
      const double start = now();
      for (size_t i = 0; i < calls; ++i) {
        if (options_.rewrite) buffers.rewrite(pair);
        library_.run(shape.collective, buffers.send(pair), buffers.recv(pair), shape.count);
        if (++pair == pairs) pair = 0;
      }
      return library_.max(now() - start);
    };

    // The first call sets up connections; it says nothing about the others.
    batch();
    double elapsed = batch();
    while (elapsed < target / 10) {
      calls *= 2;
      elapsed = batch();
    }
    const double per_call = elapsed / static_cast<double>(calls);
    calls = std::max<size_t>(1, static_cast<size_t>(std::ceil(target / options_.batches / per_call)));
    std::vector<double> times;
    for (int b = 0; b < options_.batches; ++b) times.push_back(batch() / static_cast<double>(calls));
    std::nth_element(times.begin(), times.begin() + options_.batches / 2, times.end());
    return times[static_cast<size_t>(options_.batches / 2)];
  }

  Library& library_;
  const Options& options_;
  char *send_, *recv_;
};

}  // namespace

void* Library::allocate(size_t bytes) {
  void* memory = std::aligned_alloc(kPage, round_up(bytes, kPage));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void Library::release(void* memory) { std::free(memory); }

void add_options(CLI::App& app, Options& options) {
  app.add_option("--collectives", options.collectives, "Comma-separated; default all")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kNames), std::end(kNames))));
  const auto sizes = CLI::AsSizeValue(false);
  app.add_option("--begin", options.begin, "Smallest size in bytes, or e.g. 64K")
      ->transform(sizes)
      ->check(CLI::PositiveNumber);
  app.add_option("--end", options.end, "Largest size, inclusive")
      ->transform(sizes)
      ->check(CLI::PositiveNumber);
  app.add_option("--factor", options.factor, "From one size to the next")->check(CLI::Range(2, 1 << 30));
  app.add_option("--time-ms", options.time_ms, "Measured time per size")->check(CLI::PositiveNumber);
  app.add_option("--batches", options.batches, "Batches per size, of which the median counts")
      ->check(CLI::PositiveNumber);
  app.add_option("--limit-s", options.limit_s, "Begin no new size after so many seconds; 0 = no limit");
  app.add_flag("--rewrite", options.rewrite, "Store to each line of the send buffer before each call");
}

int measure(Library& library, const Options& options) {
  const double start = now();
  bool right = true;
  Measurement measurement(library, options);
  for (size_t bytes = options.begin; bytes <= options.end; bytes *= options.factor) {
    for (const std::string& name : options.collectives) {
      const auto at = std::find(std::begin(kNames), std::end(kNames), name) - std::begin(kNames);
      const auto collective = static_cast<Collective>(at);
      if (!library.supports(collective)) continue;
      if (options.limit_s > 0 && library.max(now() - start) > options.limit_s) return right ? 0 : 1;
      right = measurement.one_size(collective, bytes) && right;
    }
  }
  return right ? 0 : 1;
}

}  // namespace peers
