#include "plan/bandwidth.h"

namespace muster {

double data_bytes(Coll coll, int nranks, uint64_t count, size_t element_bytes) {
  const double bytes = static_cast<double>(count) * static_cast<double>(element_bytes);
  return splits_count(coll) || coll == Coll::send_recv ? bytes : bytes * nranks;
}

double bus_factor(Coll coll, int nranks) {
  const double n = nranks;
  switch (even(coll)) {
    case Coll::all_reduce:
      return 2 * (n - 1) / n;
    case Coll::reduce_scatter:
    case Coll::all_gather:
    case Coll::all_to_all:
    case Coll::gather:
    case Coll::scatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

}  // namespace muster
