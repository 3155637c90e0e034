// How much each rank sends to each other one in alltoallv_perf: more to ranks further on, or as a file says.
//
// NCCL_TESTS_ALLTOALLV_SPREAD         0 = the same to all, 1 = in proportion to the distance (to itself:
// nothing), or a
//                                     mixture of both (default 1)
// NCCL_TESTS_ALLTOALLV_MATRIX_FILE    a square of numbers: row i, column j = bytes from rank i to rank j. It
// may have
//                                     more rows and columns than there are ranks
// NCCL_TESTS_ALLTOALLV_MATRIX_SCALE   multiplies them (default 1)
// NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY  1 = each row is followed by every rank's bytes and bandwidths
//
// All messages are rounded down to 16 bytes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perf/collective.h"

namespace muster::perf {

class Pattern {
 public:
  // Throws invalid_usage for values that can't be read, naming variable, file and place.
  static Pattern from_environment();

  // Throws invalid_usage where a matrix has too few rows for the ranks, or -b and -e don't suit it.
  void check(const Args& args, int nranks) const;

  // `total`: bytes that a rank sends in all, without a matrix.
  size_t bytes(int from, int to, int nranks, size_t total) const;

  // For Collective.
  Layout layout(size_t bytes, size_t element, int rank, int nranks) const;
  Contents sent(const Layout& layout, const Place& place) const;
  Contents expected(const Layout& layout, const Place& place) const;
  std::string summary(size_t bytes, size_t element, int nranks, double seconds) const;

 private:
  bool has_matrix() const { return !matrix_.empty(); }
  size_t sent_by(int rank, int nranks, size_t total) const;
  size_t received_by(int rank, int nranks, size_t total) const;
  size_t largest(int nranks, size_t total) const;  // that a rank sends or receives

  double spread_ = 1, scale_ = 1;
  bool print_summary_ = false;
  std::string file_;
  std::vector<std::vector<size_t>> matrix_;  // bytes, rounded
};

}  // namespace muster::perf
