// What the ranks send and what must come out.
//
// Element i of rank r is a function of r and i alone, so every rank knows what every other sends. The values
// are made such that sums and products are exact in every order, in every element type: floats use so few
// bits of their mantissa (or, with many ranks, so few non-zero contributions) that no partial result is ever
// rounded. Results are therefore compared bit by bit; only the average of floats, which divides, may be 2
// units in the last place off (1 for float8). Integers are hashed bits, and wrap. Values repeat after kPeriod
// elements, a prime: data that lands in the wrong place is wrong data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "muster/types.h"

namespace muster::perf {

inline constexpr size_t kPeriod = 65521;

// The content of a stretch of a buffer: elements first, first + 1, ... of what one rank sends, or of the
// reduction of what all ranks send.
struct Content {
  static constexpr int kReduced = -1;
  static constexpr int kUntouched = -2;  // the poison that was there before
  int source = kReduced;                 // a rank, or one of the above
  size_t first = 0;
  size_t count = 0;
};

class Data {
 public:
  static constexpr int kPoison = 0xa5;

  Data(DataType type, RedOp op, int nranks);

  // Rank's operator: for mulsum with its factor.
  ReduceOp op_of(int rank) const;

  // `run` makes the values of one run differ from those of another.
  void write(void* destination, const Content& content, size_t run);
  // Elements of [found, found + count) that are not as `content` says.
  size_t count_wrong(const void* found, const Content& content, size_t run);

  static void poison(void* destination, size_t bytes);

 private:
  const std::vector<std::byte>& period_of(int source);
  uint64_t bits_of(int source, size_t index) const;
  uint64_t reduced(size_t index) const;
  uint64_t integer_of(int rank, size_t index) const;
  double float_of(int rank, size_t index) const;  // after the factor of mulsum
  uint64_t integer_factor(int rank) const;
  double float_factor(int rank) const;

  DataType type_;
  RedOp op_;
  int nranks_;
  size_t element_;
  std::map<int, std::vector<std::byte>> periods_;
};

}  // namespace muster::perf
