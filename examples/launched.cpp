// One rank per process, started by whatever starts processes: `mpirun -n 4 example_launched`, `srun -n 4
// ...`, `torchrun --no-python --nproc-per-node 4 ...` or `muster run -n 4 ...`, on one host or many. Nothing
// is to be set.
#include <cstdio>
#include <vector>

#include "muster/muster.h"

int main() try {
  muster::Communicator comm = muster::Communicator::from_environment();
  const auto ranks = static_cast<size_t>(comm.size());
  std::vector<float> ones(100'000, 1), sum(ones.size());
  comm.all_reduce(ones.data(), sum.data(), sum.size(), muster::DataType::float32, muster::RedOp::sum);
  for (const float x : sum)
    if (x != static_cast<float>(ranks)) {
      fprintf(stderr, "rank %d: %g in place of %zu\n", comm.rank(), static_cast<double>(x), ranks);
      return 1;
    }
  if (comm.rank() == 0) printf("%zu ranks have the sum\n", ranks);
  comm.destroy();
  return 0;
} catch (const muster::Error& e) {
  fprintf(stderr, "%s\n", e.what());
  return 1;
}
