#include "perf/data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "perf/numbers.h"

namespace muster::perf {
namespace {

uint64_t hash(uint64_t index, uint64_t salt) {
  uint64_t x = index * 0x9e3779b97f4a7c15 + salt * 0xd1b54a32d192ed03 + 0x632be59bd9b4e019;
  x = (x ^ x >> 32) * 0xbea225f9eb34556d;
  x = (x ^ x >> 29) * 0xbea225f9eb34556d;
  return x ^ x >> 32;
}
// Salts beyond any rank, for what is the same on all ranks.
constexpr uint64_t kTurn = uint64_t{1} << 40, kScale = kTurn + 1;

// How much room a float type has. Sums stay exact while the contributions' magnitudes, in units of 2^scale,
// add up to `units` at most; products while at most `threes` factors have a mantissa other than 1 (namely
// 3/2), and the other factors' exponents add up to `exponents` at most, either way. A factor of 2 or 1/2
// (mulsum) fits on top.
struct Room {
  uint64_t units;
  int lowest_scale, highest_scale;
  int threes, exponents;
};
Room room_of(DataType type) {
  switch (type) {
    case DataType::float8_e4m3:
      return {16, -5, 3, 2, 6};
    case DataType::float8_e5m2:
      return {8, -12, 10, 1, 13};
    case DataType::float16:
      return {2048, -13, 3, 6, 11};
    case DataType::bfloat16:
      return {256, -20, 20, 5, 120};
    case DataType::float32:
      return {uint64_t{1} << 24, -20, 20, 15, 115};
    default:
      return {uint64_t{1} << 53, -20, 20, 33, 1000};
  }
}

}  // namespace

Data::Data(DataType type, RedOp op, int nranks)
    : type_(type), op_(op), nranks_(nranks), element_(size_of(type)) {}

uint64_t Data::integer_factor(int rank) const {
  return op_ == RedOp::pre_mul_sum ? 1 + static_cast<uint64_t>(rank) % 5 : 1;
}
double Data::float_factor(int rank) const {
  return op_ == RedOp::pre_mul_sum ? std::ldexp(1.0, rank % 3 - 1) : 1;
}

ReduceOp Data::op_of(int rank) const {
  if (op_ != RedOp::pre_mul_sum) return ReduceOp(op_);
  const uint64_t bits = is_float(type_) ? encode(float_factor(rank), type_) : integer_factor(rank);
  return ReduceOp::pre_mul_sum(&bits, type_);
}

uint64_t Data::integer_of(int rank, size_t index) const {
  const uint64_t bits = hash(index, static_cast<uint64_t>(rank));
  return op_ == RedOp::prod ? bits | 1 : bits;  // products of even numbers would soon be all zero
}

double Data::float_of(int rank, size_t index) const {
  const Room room = room_of(type_);
  const uint64_t h = hash(index, static_cast<uint64_t>(rank));
  const auto n = static_cast<uint64_t>(nranks_);
  const uint64_t turn =
      (static_cast<uint64_t>(rank) + hash(index, kTurn)) % n;  // who may use scarce room, here
  const double sign = h >> 63 ? -1 : 1;
  if (op_ == RedOp::prod) {
    const auto exponents = static_cast<uint64_t>(room.exponents);
    int exponent = 0;
    if (turn < exponents) exponent = 1 + static_cast<int>(h % std::clamp<uint64_t>(exponents / n, 1, 3));
    if (h >> 62 & 1) exponent = -exponent;
    return sign * std::ldexp(turn < static_cast<uint64_t>(room.threes) ? 1.5 : 1.0, exponent);
  }
  const int scales = room.highest_scale - room.lowest_scale + 1;
  const int scale = room.lowest_scale + static_cast<int>(hash(index, kScale) % static_cast<uint64_t>(scales));
  uint64_t units;
  if (op_ == RedOp::min || op_ == RedOp::max)
    units = 1 + h % room.units;
  else if (n <= room.units)
    units = 1 + h % (room.units / n);
  else
    units = turn < room.units;
  return units == 0 ? 0.0 : sign * std::ldexp(static_cast<double>(units), scale);
}

uint64_t Data::reduced(size_t index) const {
  if (is_float(type_)) {
    double value = float_of(0, index);
    for (int r = 1; r < nranks_; ++r) {
      const double x = float_of(r, index);
      switch (op_) {
        case RedOp::prod:
          value *= x;
          break;
        case RedOp::min:
          value = std::min(value, x);
          break;
        case RedOp::max:
          value = std::max(value, x);
          break;
        default:
          value += x;
          break;
      }
    }
    return encode(op_ == RedOp::avg ? value / nranks_ : value, type_);
  }
  const int unused = static_cast<int>(64 - 8 * element_);
  const auto as_signed = [&](uint64_t v) { return static_cast<int64_t>(v << unused) >> unused; };
  const auto as_unsigned = [&](uint64_t v) { return v << unused >> unused; };
  const auto less = [&](uint64_t a, uint64_t b) {
    return is_signed(type_) ? as_signed(a) < as_signed(b) : as_unsigned(a) < as_unsigned(b);
  };
  uint64_t value = integer_of(0, index) * integer_factor(0);
  for (int r = 1; r < nranks_; ++r) {
    const uint64_t x = integer_of(r, index) * integer_factor(r);
    switch (op_) {
      case RedOp::prod:
        value *= x;
        break;
      case RedOp::min:
        value = less(x, value) ? x : value;
        break;
      case RedOp::max:
        value = less(value, x) ? x : value;
        break;
      default:
        value += x;
        break;
    }
  }
  if (op_ != RedOp::avg) return value;
  return is_signed(type_) ? static_cast<uint64_t>(as_signed(value) / nranks_)
                          : as_unsigned(value) / static_cast<uint64_t>(nranks_);
}

uint64_t Data::bits_of(int source, size_t index) const {
  if (source == Content::kReduced) return reduced(index);
  if (is_float(type_)) return encode(float_of(source, index) / float_factor(source), type_);
  return integer_of(source, index);
}

const std::vector<std::byte>& Data::period_of(int source) {
  auto [it, fresh] = periods_.try_emplace(source);
  if (fresh) {
    it->second.resize(kPeriod * element_);
    for (size_t i = 0; i < kPeriod; ++i) {
      const uint64_t bits = bits_of(source, i);
      std::memcpy(&it->second[i * element_], &bits,
                  element_);  // the low bytes: these machines are little-endian
    }
  }
  return it->second;
}

void Data::poison(void* destination, size_t bytes) { std::memset(destination, kPoison, bytes); }

void Data::write(void* destination, const Content& content, size_t run) {
  auto* to = static_cast<std::byte*>(destination);
  if (content.source == Content::kUntouched) return poison(to, content.count * element_);
  const std::vector<std::byte>& period = period_of(content.source);
  size_t index = (content.first + run * 7919) % kPeriod;
  for (size_t left = content.count; left > 0;) {
    const size_t n = std::min(left, kPeriod - index);
    std::memcpy(to, &period[index * element_], n * element_);
    to += n * element_;
    left -= n;
    index = 0;
  }
}

size_t Data::count_wrong(const void* found, const Content& content, size_t run) {
  const auto* at = static_cast<const std::byte*>(found);
  size_t wrong = 0;
  if (content.source == Content::kUntouched) {
    for (size_t i = 0; i < content.count; ++i) {
      const std::byte* e = at + i * element_;
      wrong += std::any_of(e, e + element_, [](std::byte b) { return b != std::byte{kPoison}; });
    }
    return wrong;
  }
  const bool may_round = content.source == Content::kReduced && op_ == RedOp::avg && is_float(type_);
  const uint64_t tolerance = may_round ? (element_ == 1 ? 1 : 2) : 0;
  const std::vector<std::byte>& period = period_of(content.source);
  size_t index = (content.first + run * 7919) % kPeriod;
  for (size_t left = content.count; left > 0;) {
    const size_t n = std::min(left, kPeriod - index);
    const std::byte* expected = &period[index * element_];
    if (std::memcmp(at, expected, n * element_) != 0)
      for (size_t i = 0; i < n; ++i) {
        uint64_t a = 0, b = 0;
        std::memcpy(&a, at + i * element_, element_);
        std::memcpy(&b, expected + i * element_, element_);
        wrong += a != b && (tolerance == 0 || ulps_between(a, b, type_) > tolerance);
      }
    at += n * element_;
    left -= n;
    index = 0;
  }
  return wrong;
}

}  // namespace muster::perf
