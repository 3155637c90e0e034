// Runs an algorithm on real memory, ranks as threads, and compares every element with an exact reference.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/algorithms.h"
#include "exec/host/executor.h"

namespace muster::test {

inline constexpr int32_t kPoison = -77777777;
inline constexpr size_t kGuard = 64;  // elements before and after each buffer

// Element i of what rank r contributes to chunk c (chunk: of the collectives with one block per rank).
inline int32_t value(int r, size_t i) { return static_cast<int32_t>((static_cast<size_t>(r) * 1000003 + i * 7919 + 13) % 1000); }

struct Case {
  const Algorithm* algorithm;
  int nranks;
  size_t count;
  int root;
  bool in_place;
  int channels;
  size_t tile;
};

struct Blocks {
  size_t in, out;
};
inline Blocks blocks(Coll c, int n) {
  const auto k = static_cast<size_t>(n);
  switch (c) {
    case Coll::all_gather:
    case Coll::gather: return {1, k};
    case Coll::reduce_scatter:
    case Coll::scatter: return {k, 1};
    case Coll::all_to_all: return {k, k};
    default: return {1, 1};
  }
}

// What rank r's output must be; empty: must not be touched.
inline std::vector<int32_t> expected(const Case& k, int r) {
  const Coll c = k.algorithm->coll;
  const size_t n = static_cast<size_t>(k.nranks), count = k.count;
  std::vector<int32_t> e;
  const auto sum = [&](size_t i) {
    int32_t s = 0;
    for (int p = 0; p < k.nranks; ++p) s += value(p, i);
    return s;
  };
  switch (c) {
    case Coll::all_reduce:
      for (size_t i = 0; i < count; ++i) e.push_back(sum(i));
      break;
    case Coll::reduce:
      if (r == k.root)
        for (size_t i = 0; i < count; ++i) e.push_back(sum(i));
      break;
    case Coll::reduce_scatter:
      for (size_t i = 0; i < count; ++i) e.push_back(sum(static_cast<size_t>(r) * count + i));
      break;
    case Coll::broadcast:
      for (size_t i = 0; i < count; ++i) e.push_back(value(k.root, i));
      break;
    case Coll::all_gather:
    case Coll::gather:
      if (c == Coll::all_gather || r == k.root)
        for (size_t p = 0; p < n; ++p)
          for (size_t i = 0; i < count; ++i) e.push_back(value(static_cast<int>(p), i));
      break;
    case Coll::scatter:
      for (size_t i = 0; i < count; ++i) e.push_back(value(k.root, static_cast<size_t>(r) * count + i));
      break;
    case Coll::all_to_all:
      for (size_t p = 0; p < n; ++p)
        for (size_t i = 0; i < count; ++i) e.push_back(value(static_cast<int>(p), static_cast<size_t>(r) * count + i));
      break;
    default: break;
  }
  return e;
}

class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t n) : n_(n), all_(n + 2 * kGuard, kPoison) {}
  int32_t* data() { return all_.data() + kGuard; }
  size_t size() const { return n_; }
  bool guards_intact() const {
    for (size_t i = 0; i < kGuard; ++i)
      if (all_[i] != kPoison || all_[kGuard + n_ + i] != kPoison) return false;
    return true;
  }

 private:
  size_t n_ = 0;
  std::vector<int32_t> all_;
};

// `transport`: makes a rank's, in its thread.
using MakeTransport = std::function<std::unique_ptr<Transport>(int rank)>;
inline void run_case(const Case& k, const MakeTransport& make_transport) {
  const int n = k.nranks;
  const Blocks b = blocks(k.algorithm->coll, n);
  std::vector<Memory> in(static_cast<size_t>(n)), out(static_cast<size_t>(n));
  std::vector<std::byte*> win(static_cast<size_t>(n)), wout(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) {
    const auto i = static_cast<size_t>(r);
    in[i] = Memory(b.in * k.count);
    out[i] = Memory(b.out * k.count);
    int32_t* send = in[i].data();
    int32_t* recv = out[i].data();
    if (k.in_place) {
      if (b.in > b.out)
        recv = send + i * k.count;
      else
        send = b.out > b.in ? recv + i * k.count : recv;
    }
    win[i] = reinterpret_cast<std::byte*>(send);
    wout[i] = reinterpret_cast<std::byte*>(recv);
    for (size_t e = 0; e < b.in * k.count; ++e) send[e] = value(r, e);
  }
  const CallShape shape{k.algorithm->coll, DataType::int32, RedOp::sum, k.root, k.count};
  Choice choice;
  choice.algorithm = k.algorithm;
  choice.tile_bytes = k.tile;
  choice.channels = k.channels;
  std::vector<std::thread> threads;
  std::vector<std::string> errors(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      try {
        const std::unique_ptr<Transport> transport = make_transport(r);
        Program p = k.algorithm->make({n, r, k.root});
        if (k.channels > 1) p = replicate(std::move(p), k.channels);
        const CompiledPlan plan = compile(p, shape, choice, transport.get());
        std::vector<std::byte> scratch(plan.scratch_bytes);
        std::byte* buffers[3] = {win[static_cast<size_t>(r)], wout[static_cast<size_t>(r)], scratch.data()};
        const uint64_t fingerprint = 42;
        Run run(plan, buffers, &fingerprint, 0, {win.data(), wout.data()});
        while (!run.done())
          if (!run.advance()) std::this_thread::yield();
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(r)] = e.what();
      } catch (const FingerprintMismatch& m) {
        errors[static_cast<size_t>(r)] = "fingerprint mismatch with rank " + std::to_string(m.peer);
      }
    });
  for (auto& t : threads) t.join();
  for (int r = 0; r < n; ++r) {
    const auto i = static_cast<size_t>(r);
    ASSERT_EQ(errors[i], "") << "rank " << r;
    const auto want = expected(k, r);
    const auto* got = reinterpret_cast<const int32_t*>(wout[i]);
    for (size_t e = 0; e < want.size(); ++e) ASSERT_EQ(got[e], want[e]) << "rank " << r << " element " << e;
    for (size_t e = 0; want.empty() && !k.in_place && e < out[i].size(); ++e)
      ASSERT_EQ(out[i].data()[e], kPoison) << "rank " << r << " element " << e << " was written";
    for (size_t e = 0; !k.in_place && e < in[i].size(); ++e)
      ASSERT_EQ(in[i].data()[e], value(r, e)) << "rank " << r << ": input changed at " << e;
    ASSERT_TRUE(in[i].guards_intact() && out[i].guards_intact()) << "rank " << r << ": written outside its buffers";
  }
}

}  // namespace muster::test
