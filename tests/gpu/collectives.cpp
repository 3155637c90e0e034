#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "checks.h"

namespace gpu_check {
namespace {

// A type of NCCL's as the bits of its numbers.
struct Type {
  const char* name;
  ncclDataType_t code;
  size_t bytes;
  int exponent_bits, fraction_bits;  // 0: an integer
};

constexpr Type kTypes[] = {
    {"int8", ncclInt8, 1, 0, 0},
    {"uint8", ncclUint8, 1, 0, 0},
    {"int32", ncclInt32, 4, 0, 0},
    {"uint32", ncclUint32, 4, 0, 0},
    {"int64", ncclInt64, 8, 0, 0},
    {"uint64", ncclUint64, 8, 0, 0},
    {"float16", ncclFloat16, 2, 5, 10},
    {"float32", ncclFloat32, 4, 8, 23},
    {"float64", ncclFloat64, 8, 11, 52},
    {"bfloat16", ncclBfloat16, 2, 8, 7},
    {"float8e4m3", ncclFloat8e4m3, 1, 4, 3},
    {"float8e5m2", ncclFloat8e5m2, 1, 5, 2},
};

// The bits of a whole number from 0 to 16 that the type has exactly.
uint64_t bits_of(const Type& type, int value) {
  if (type.exponent_bits == 0 || value == 0) return static_cast<uint64_t>(value);
  const int exponent = std::ilogb(static_cast<double>(value));
  const uint64_t bias = (uint64_t{1} << (type.exponent_bits - 1)) - 1;
  const uint64_t fraction =
      (static_cast<uint64_t>(value) << type.fraction_bits >> exponent) - (uint64_t{1} << type.fraction_bits);
  return ((static_cast<uint64_t>(exponent) + bias) << type.fraction_bits) | fraction;
}

struct Op {
  const char* name;
  ncclRedOp_t code;
};
constexpr Op kOps[] = {
    {"sum", ncclSum}, {"prod", ncclProd}, {"max", ncclMax}, {"min", ncclMin}, {"avg", ncclAvg}};

// Small whole numbers, so that no order of additions rounds, in any type.
int contribution(ncclRedOp_t op, int rank, size_t i) {
  const size_t at = i % 8191 + static_cast<size_t>(rank);
  if (op == ncclSum) return at % 3 == 0;
  if (op == ncclProd) return 1 + (at % 8 == 0);
  if (op == ncclAvg) return 1 + (i % 2 == 0);  // of all ranks alike
  return static_cast<int>(at * 5 % 7);
}

int combined(ncclRedOp_t op, int ranks, size_t i) {
  int value = contribution(op, 0, i);
  for (int r = 1; r < ranks; ++r) {
    const int other = contribution(op, r, i);
    if (op == ncclSum) value += other;
    if (op == ncclProd) value *= other;
    if (op == ncclMax) value = std::max(value, other);
    if (op == ncclMin) value = std::min(value, other);
  }
  return value;
}

void put(const Type& type, std::vector<char>& bytes, size_t i, int value) {
  const uint64_t bits = bits_of(type, value);
  memcpy(bytes.data() + i * type.bytes, &bits, type.bytes);  // little-endian
}

// From `offset` elements into both buffers.
void all_reduce(Rank& r, const Type& type, const Op& op, size_t count, size_t offset, bool in_place) {
  const size_t all = count + offset;
  std::vector<char> values(all * type.bytes), got(all * type.bytes, char(0x55));
  for (size_t i = 0; i < count; ++i) put(type, values, offset + i, contribution(op.code, r.rank, i));
  r.upload(r.in, values.data(), values.size());
  r.upload(r.out, got.data(), got.size());
  const size_t skip = offset * type.bytes;
  char* result = (in_place ? r.in : r.out) + skip;
  nccl(ncclAllReduce(r.in + skip, result, count, type.code, op.code, r.comm, r.stream), "ncclAllReduce",
       r.comm);
  r.download(got.data() + skip, result, count * type.bytes);
  for (size_t i = 0; i < count; ++i) {
    put(type, values, offset + i, combined(op.code, r.ranks, i));
    const char* want = values.data() + (offset + i) * type.bytes;
    const char* have = got.data() + (offset + i) * type.bytes;
    if (memcmp(want, have, type.bytes) == 0) continue;
    if (op.code == ncclAvg && type.bytes >= 4 && type.exponent_bits) {  // a sum of thirds rounds
      double w = 0, h = 0;
      float narrow;
      if (type.bytes == 4) {
        memcpy(&narrow, want, 4);
        w = narrow;
        memcpy(&narrow, have, 4);
        h = narrow;
      } else {
        memcpy(&w, want, 8);
        memcpy(&h, have, 8);
      }
      if (std::fabs(w - h) < 1e-6) continue;
    }
    uint64_t w = 0, h = 0;
    memcpy(&w, want, type.bytes);
    memcpy(&h, have, type.bytes);
    char text[160];
    snprintf(text, sizeof text, "element %zu of %zu is 0x%llx, 0x%llx is right (offset %zu%s)", i, count,
             static_cast<unsigned long long>(h), static_cast<unsigned long long>(w), offset,
             in_place ? ", in place" : "");
    fail(std::string("all-reduce ") + op.name + " of " + type.name, text);
  }
}

// 32-bit numbers: which rank's element, and whose it is.
uint32_t number(int rank, size_t i) { return static_cast<uint32_t>(rank) << 24 | static_cast<uint32_t>(i); }

using Values = std::vector<uint32_t>;

void compare(const char* what, const Values& want, const Values& have) {
  for (size_t i = 0; i < want.size(); ++i)
    if (want[i] != have[i])
      fail(what, "element " + std::to_string(i) + " of " + std::to_string(want.size()) + " is " +
                     std::to_string(have[i]) + ", " + std::to_string(want[i]) + " is right");
}

// Those that move or add numbers, with `count` elements per rank.
void others(Rank& r, size_t count) {
  const size_t n = static_cast<size_t>(r.ranks), me = static_cast<size_t>(r.rank);
  const int root = r.ranks - 1;
  Values values(n * count), have(n * count);
  for (size_t i = 0; i < values.size(); ++i) values[i] = number(r.rank, i);
  r.upload(r.in, values.data(), 4 * values.size());
  const auto result = [&](size_t elements) -> const Values& {
    have.resize(elements);
    r.download(have.data(), r.out, 4 * elements);
    return have;
  };
  const auto sum = [&](size_t i) {
    uint32_t s = 0;
    for (int rank = 0; rank < r.ranks; ++rank) s += number(rank, i);
    return s;
  };
  Values want;

  nccl(ncclAllGather(r.in, r.out, count, ncclUint32, r.comm, r.stream), "ncclAllGather", r.comm);
  for (size_t i = 0; i < n * count; ++i) want.push_back(number(static_cast<int>(i / count), i % count));
  compare("all-gather", want, result(n * count));

  nccl(ncclReduceScatter(r.in, r.out, count, ncclUint32, ncclSum, r.comm, r.stream), "ncclReduceScatter",
       r.comm);
  want.clear();
  for (size_t i = 0; i < count; ++i) want.push_back(sum(me * count + i));
  compare("reduce-scatter", want, result(count));

  nccl(ncclBroadcast(r.in, r.out, count, ncclUint32, root, r.comm, r.stream), "ncclBroadcast", r.comm);
  want.clear();
  for (size_t i = 0; i < count; ++i) want.push_back(number(root, i));
  compare("broadcast", want, result(count));

  nccl(ncclReduce(r.in, r.out, count, ncclUint32, ncclSum, root, r.comm, r.stream), "ncclReduce", r.comm);
  if (r.rank == root) {
    want.clear();
    for (size_t i = 0; i < count; ++i) want.push_back(sum(i));
    compare("reduce", want, result(count));
  }

  nccl(ncclAlltoAll(r.in, r.out, count, ncclUint32, r.comm, r.stream), "ncclAlltoAll", r.comm);
  want.clear();
  for (size_t i = 0; i < n * count; ++i)
    want.push_back(number(static_cast<int>(i / count), me * count + i % count));
  compare("all-to-all", want, result(n * count));

  nccl(ncclGather(r.in, r.out, count, ncclUint32, root, r.comm, r.stream), "ncclGather", r.comm);
  if (r.rank == root) {
    want.clear();
    for (size_t i = 0; i < n * count; ++i) want.push_back(number(static_cast<int>(i / count), i % count));
    compare("gather", want, result(n * count));
  }

  nccl(ncclScatter(r.in, r.out, count, ncclUint32, root, r.comm, r.stream), "ncclScatter", r.comm);
  want.clear();
  for (size_t i = 0; i < count; ++i) want.push_back(number(root, me * count + i));
  compare("scatter", want, result(count));
}

}  // namespace

void check_collectives(const Setup& setup) {
  const size_t most =
      setup.quick ? 1 << 20 : std::max(size_t{20'000'000}, 4 * 300'007 * static_cast<size_t>(setup.ranks));
  run_ranks(setup, most, [](Rank& r) {
    size_t calls = 0;
    for (const Type& type : kTypes)
      for (const Op& op : kOps) {
        if (r.quick && (&type - kTypes + &op - kOps) % 5 != 0) continue;  // each type and each operation
        all_reduce(r, type, op, r.quick ? 257 : 5003, 0, false);
        ++calls;
      }
    const Type& floats = kTypes[7];
    for (const size_t count : {1, 31, 4096, 100'003, 5'000'000}) {
      if (r.quick && count > 5000) break;
      for (const bool in_place : {false, true}) all_reduce(r, floats, kOps[0], count, 0, in_place);
      all_reduce(r, kTypes[9], kOps[0], count, 1, false);  // two bytes off
      calls += 3;
    }
    for (const size_t count : {1, 1000, 300'007}) {
      if (r.quick && count > 5000) break;
      others(r, count);
      calls += 7;
    }
    if (r.rank == 0) printf("%zu calls by %d ranks: every element is right\n", calls, r.ranks);
  });
}

void check_messages(const Setup& setup) {
  const size_t count = setup.quick ? 300 : 100'000;
  run_ranks(setup, 4 * count * static_cast<size_t>(setup.ranks), [count](Rank& r) {
    const size_t n = static_cast<size_t>(r.ranks);
    Values values(n * count), have(n * count), want;
    for (size_t i = 0; i < values.size(); ++i) values[i] = number(r.rank, i);
    r.upload(r.in, values.data(), 4 * values.size());
    // To each rank, this one too, its part, as two messages.
    const size_t first = count / 3;
    nccl(ncclGroupStart(), "ncclGroupStart");
    for (size_t peer = 0; peer < n; ++peer)
      for (const auto& [from, elements] : {std::pair{size_t{0}, first}, std::pair{first, count - first}}) {
        const size_t at = 4 * (peer * count + from);
        nccl(ncclSend(r.in + at, elements, ncclUint32, static_cast<int>(peer), r.comm, r.stream), "ncclSend",
             r.comm);
        nccl(ncclRecv(r.out + at, elements, ncclUint32, static_cast<int>(peer), r.comm, r.stream), "ncclRecv",
             r.comm);
      }
    nccl(ncclGroupEnd(), "ncclGroupEnd", r.comm);
    r.download(have.data(), r.out, 4 * have.size());
    for (size_t i = 0; i < n * count; ++i)
      want.push_back(number(static_cast<int>(i / count), static_cast<size_t>(r.rank) * count + i % count));
    compare("messages of all pairs", want, have);
    if (r.rank == 0) printf("%d ranks sent each other two messages of %zu bytes\n", r.ranks, 2 * count);
  });
}

}  // namespace gpu_check
