// What calls took when `muster tune` made them: for an algorithm and a number of ranks the times of several
// sizes. Prices are put right by them (host_price.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithms.h"

namespace muster {

struct MeasuredRow {
  struct Point {
    uint64_t bytes = 0;  // of data, as nccl-tests counts them (bandwidth.h)
    double us = 0;       // of one call of float32
  };
  const Algorithm* algorithm = nullptr;
  int ranks = 0, cores = 0;
  std::vector<Point> points;

  // "broadcast chain 8 2 8:5.13 32:5.2 ...": collective, algorithm, ranks, cores, then bytes:us. Throws
  // invalid_argument saying what is wrong.
  static MeasuredRow read(std::string_view line);
  bool is_of(const MeasuredRow& other) const {
    return algorithm == other.algorithm && ranks == other.ranks && cores == other.cores;
  }
  std::string to_text() const;
  std::string name() const;  // for people
};

class MeasuredCalls {
 public:
  // In place of one of the same algorithm, ranks and cores. What measures a smaller size as dearer than a
  // larger one is noise: runs of such neighbours get their median (pool adjacent
  // violators: Ayer, Brunk, Ewing, Reid, Silverman 1955; medians, so that a time that is far off doesn't move
  // many), so that times never fall with sizes. Sizes must rise.
  void add(MeasuredRow row);

  // What stands for calls of so many ranks: the row of this algorithm with the nearest number of ranks, as a
  // ratio; where ranks share cores one that was measured so, too, else one with a core for each. Null: none.
  const MeasuredRow* nearest(const Algorithm& algorithm, int ranks, int cores) const;

  // Of several measurements of the same calls, what lies in the middle at each size.
  static MeasuredCalls middle_of(const std::vector<MeasuredCalls>& several);

  const std::vector<MeasuredRow>& rows() const { return rows_; }

 private:
  std::vector<MeasuredRow> rows_;
};

}  // namespace muster
