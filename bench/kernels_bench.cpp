// How fast the host kernels combine and copy. Bytes per second count every byte read and written.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "device/host/kernels.h"

namespace muster {
namespace {

struct Free {
  void operator()(void* p) const { std::free(p); }
};

// Sources and destinations of `bytes` each, a page and a few lines apart as separate allocations would be.
struct Buffers {
  Buffers(uint32_t nsources, uint32_t ndestinations, size_t bytes) {
    const size_t stride = (bytes + 4095) / 4096 * 4096 + 4096 + 320;
    const size_t total = stride * (nsources + ndestinations) / 64 * 64 + 64;
    memory.reset(static_cast<char*>(std::aligned_alloc(64, total)));
    std::memset(memory.get(), 0, total);
    char* p = memory.get();
    for (uint32_t j = 0; j < nsources; ++j, p += stride) sources.push_back(p);
    for (uint32_t d = 0; d < ndestinations; ++d, p += stride) destinations.push_back(p);
  }
  std::unique_ptr<char, Free> memory;
  std::vector<const void*> sources;
  std::vector<void*> destinations;
};

struct ReduceCase {
  DataType type;
  RedOp op;
  uint32_t nsources, ndestinations;
  bool streamed;
};

void reduce(benchmark::State& state, ReduceCase c) {
  const auto bytes = static_cast<size_t>(state.range(0));
  Buffers b(c.nsources, c.ndestinations, bytes);
  ReduceArgs args;
  args.sources = b.sources.data();
  args.nsources = c.nsources;
  args.destinations = b.destinations.data();
  args.ndestinations = c.ndestinations;
  args.count = bytes / size_of(c.type);
  args.divisor = c.op == RedOp::avg ? c.nsources : 0;
  args.streamed = c.streamed ? ~uint64_t{0} : 0;
  const ReduceFn kernel = reduce_kernel(c.type, c.op);
  for (auto _ : state) {
    kernel(args);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes * (c.nsources + c.ndestinations)));
  state.SetLabel(kernel_target_name(0));
}

void copy(benchmark::State& state, uint32_t ndestinations, bool streamed) {
  const auto bytes = static_cast<size_t>(state.range(0));
  Buffers b(1, ndestinations, bytes);
  for (auto _ : state) {
    copy_kernel(b.destinations.data(), ndestinations, b.sources[0], bytes, streamed ? ~uint64_t{0} : 0);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes * (1 + ndestinations)));
}

void add(ReduceCase c, const std::vector<int64_t>& sizes) {
  std::string name = std::string(name_of(c.op)) + "/" + name_of(c.type) + "/" + std::to_string(c.nsources) +
                     "to" + std::to_string(c.ndestinations) + (c.streamed ? "/streamed" : "");
  auto* const b = benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& s) { reduce(s, c); });
  for (int64_t n : sizes) b->Arg(n);
}

void add_all() {
  const std::vector<int64_t> sizes = {8, 16, 64, 256, 1024, 4096, 16384, 65536}, cached = {4096, 65536},
                             large = {65536, 4 << 20};
  for (uint32_t nsources : {2u, 3u, 4u, 8u}) {
    for (uint32_t ndestinations : {1u, 2u}) {
      add({DataType::float32, RedOp::sum, nsources, ndestinations, false}, nsources == 2 ? sizes : cached);
      add({DataType::float32, RedOp::sum, nsources, ndestinations, true}, large);
    }
  }
  for (int t = 0; t < kDataTypes; ++t) {
    for (RedOp op : {RedOp::sum, RedOp::prod, RedOp::max, RedOp::avg}) {
      add({static_cast<DataType>(t), op, 2, 1, false},
          op == RedOp::sum ? std::vector<int64_t>{8, 4096, 65536} : cached);
    }
  }
  for (uint32_t ndestinations : {1u, 3u}) {
    for (bool streamed : {false, true}) {
      const std::string name = "copy/1to" + std::to_string(ndestinations) + (streamed ? "/streamed" : "");
      auto* const b = benchmark::RegisterBenchmark(
          name.c_str(), [=](benchmark::State& s) { copy(s, ndestinations, streamed); });
      for (int64_t n : {8, 64, 4096, 65536, 4 << 20}) b->Arg(n);
    }
  }
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
