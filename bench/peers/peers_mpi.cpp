// An MPI library under the common method; built once per implementation, which PEERS_MPI_NAME names.
#include <mpi.h>

#include <CLI/CLI.hpp>

#include "method.h"

namespace {

class Mpi : public peers::Library {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  const char* name() const override { return PEERS_MPI_NAME; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void run(peers::Collective collective, const float* send, float* recv, size_t elements) override {
    const int count = static_cast<int>(elements);
    switch (collective) {
      case peers::Collective::all_reduce:
        MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case peers::Collective::reduce_scatter:
        MPI_Reduce_scatter_block(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case peers::Collective::all_gather:
        MPI_Allgather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case peers::Collective::broadcast:
        MPI_Bcast(recv, count, MPI_FLOAT, peers::kRoot, MPI_COMM_WORLD);
        break;
      case peers::Collective::all_to_all:
        MPI_Alltoall(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    }
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  double max(double value) override {
    double result = 0;
    MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return result;
  }

 private:
  int rank_ = 0, size_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{PEERS_MPI_NAME " under the common method; start it with that library's mpirun"};
  peers::Options options;
  peers::add_options(app, options);
  CLI11_PARSE(app, argc, argv);

  MPI_Init(&argc, &argv);  // errors end the job: MPI_ERRORS_ARE_FATAL is the default
  Mpi mpi;
  const int status = peers::measure(mpi, options);
  MPI_Finalize();
  return status;
}
