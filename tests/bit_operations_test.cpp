// Bitwise and logical reductions through communicators: every type and collective, by every algorithm, exact on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "algorithms/algorithms.h"
#include "base/math.h"
#include "kernels_reference.h"
#include "muster/muster.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::run_process_ranks;
using test::run_threads;
using test::Variable;

using Bytes = std::vector<unsigned char>;
constexpr unsigned char kPoison = 0x5a;
constexpr size_t kGuard = 64;

// Zeros of both signs, NaNs, and any bits: what logical operations must tell apart.
uint64_t value(DataType type, int rank, size_t i) {
  const uint64_t bits = mix64(static_cast<uint64_t>(rank) * 1000003 + i * 7919 + static_cast<uint64_t>(type) + 1), size = size_of(type);
  const uint64_t sign = reference::is_integer(type) ? 0 : uint64_t{1} << (8 * size - 1);
  if (i % 3 == 0) return bits % 2 ? sign : 0;
  if (i % 11 == 1 && sign) return sign - 1;
  return bits >> (64 - 8 * size);
}

Bytes values(DataType type, int rank, size_t count) {
  const size_t size = size_of(type);
  Bytes v(count * size);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t x = value(type, rank, i);
    std::memcpy(&v[i * size], &x, size);
  }
  return v;
}

Bytes expected(DataType type, RedOp op, int n, size_t count) {
  const size_t size = size_of(type);
  Bytes v(count * size);
  std::vector<uint64_t> column(static_cast<size_t>(n));
  for (size_t i = 0; i < count; ++i) {
    for (int r = 0; r < n; ++r) column[static_cast<size_t>(r)] = value(type, r, i);
    const uint64_t x = reference::reduce({type, op}, column);
    std::memcpy(&v[i * size], &x, size);
  }
  return v;
}

void expect_bytes(const Bytes& guarded, const unsigned char* want, size_t bytes, const std::string& what) {
  for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(guarded[kGuard + i], want[i]) << what << ": byte " << i;
  for (size_t i = 0; i < kGuard; ++i)
    ASSERT_TRUE(guarded[i] == kPoison && guarded[kGuard + bytes + i] == kPoison) << what << ": written outside";
}

void reductions(Communicator& c, DataType type, RedOp op, size_t count) {
  const int n = c.size(), me = c.rank();
  const auto nn = static_cast<size_t>(n), mine = static_cast<size_t>(me);
  const size_t bytes = count * size_of(type);
  const std::string what = std::string(name_of(op)) + " " + name_of(type) + " count " + std::to_string(count) + " rank " +
                           std::to_string(me) + " of " + std::to_string(n);
  const Bytes in = values(type, me, nn * count), want = expected(type, op, n, nn * count);
  const auto fresh = [&] { return Bytes(bytes + 2 * kGuard, kPoison); };
  Bytes out = fresh();
  c.all_reduce(in.data(), out.data() + kGuard, count, type, op);
  expect_bytes(out, want.data(), bytes, "all_reduce " + what);
  out = fresh();
  std::memcpy(out.data() + kGuard, in.data(), bytes);
  c.all_reduce(out.data() + kGuard, out.data() + kGuard, count, type, op);
  expect_bytes(out, want.data(), bytes, "all_reduce in place " + what);
  out = fresh();
  c.reduce_scatter(in.data(), out.data() + kGuard, count, type, op);
  expect_bytes(out, want.data() + mine * bytes, bytes, "reduce_scatter " + what);
  const int root = n - 1;
  out = fresh();
  c.reduce(in.data(), out.data() + kGuard, count, type, op, root);
  const Bytes untouched(bytes, kPoison);
  expect_bytes(out, me == root ? want.data() : untouched.data(), bytes, "reduce " + what);
}

void every_type(Communicator& c, const std::vector<size_t>& counts) {
  for (int t = 0; t < kDataTypes; ++t)
    for (int o = static_cast<int>(RedOp::bit_and); o < kRedOps; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<RedOp>(o);
      if (!is_defined(op, type)) continue;
      for (const size_t count : counts) {
        reductions(c, type, op, count);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
}

TEST(BitOperations, ExactOnThreads) {
  for (const int n : {1, 2, 3, 5})
    run_threads(n, [](Communicator& c, int) { every_type(c, {1, 13, 1000, 4099}); });
}

TEST(BitOperations, ExactOnProcesses) {
  for (const int n : {1, 2, 4})
    run_process_ranks(n, [](Communicator& c, int) { every_type(c, {1, 77, 3001}); });
}

// Partial results combine in any grouping, so every algorithm gives these bits.
TEST(BitOperations, TheSameByEveryAlgorithm) {
  for (const Algorithm& a : algorithms()) {
    if (!reduces(a.coll)) continue;
    const Variable forced("MUSTER_ALGO", std::string(a.name));
    for (const int n : {2, 3, 4})
      run_threads(n, [](Communicator& c, int) {
        for (const DataType type : {DataType::int8, DataType::uint64, DataType::bfloat16, DataType::float32})
          for (const RedOp op : {RedOp::bit_xor, RedOp::logical_and, RedOp::logical_xor})
            if (is_defined(op, type))
              for (const size_t count : {size_t{7}, size_t{900}}) reductions(c, type, op, count);
      });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace muster
