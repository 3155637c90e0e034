// A program that uses both MPI and Muster, as its launcher started it. Argument: whose communicator comes
// first.
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "muster/muster.h"

namespace {

int sum_of_ranks(muster::Communicator& c) {
  int mine = c.rank(), sum = -1;
  c.all_reduce(&mine, &sum, 1, muster::DataType::int32, muster::RedOp::sum);
  return sum;
}

// The id travels by MPI, as in programs written for NCCL.
int by_broadcast(int rank, int size) {
  muster::UniqueId id{};
  if (rank == 0) id = muster::make_unique_id();
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  muster::Communicator c = muster::Communicator::init(size, rank, id);
  const int sum = sum_of_ranks(c);
  c.destroy();
  return sum;
}

int by_environment() {
  muster::Communicator c = muster::Communicator::from_environment();
  const int sum = sum_of_ranks(c);
  c.destroy();
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const bool muster_first = argc > 1 && std::string(argv[1]) == "muster";
  try {
    const int before = muster_first ? by_environment() : -1;
    MPI_Init(&argc, &argv);
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int first = muster_first ? before : by_environment(), second = by_broadcast(rank, size);
    if (rank == 0) std::printf("%d ranks: sums %d and %d\n", size, first, second);
    MPI_Finalize();
    const int right = size * (size - 1) / 2;
    return first == right && second == right ? 0 : 1;
  } catch (const muster::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
