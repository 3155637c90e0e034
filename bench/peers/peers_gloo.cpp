// Gloo under the common method: its TCP transport, ranks as child processes over the loopback interface or, one each time
// this is started, over a network.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fork_ranks.h"
#include "method.h"

namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;

class Gloo : public peers::Library {
 public:
  Gloo(int rank, int size, const std::string& store_path, const std::string& interface, Algorithm algorithm)
      : algorithm_(algorithm), context_(std::make_shared<gloo::rendezvous::Context>(rank, size)) {
    gloo::rendezvous::FileStore store(store_path);
    gloo::transport::tcp::attr attr;
    attr.iface = interface;
    auto device = gloo::transport::tcp::CreateDevice(attr);
    context_->setTimeout(std::chrono::minutes(5));
    context_->connectFullMesh(store, device);
  }
  const char* name() const override { return algorithm_ == Algorithm::BCUBE ? "gloo-bcube" : "gloo"; }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  bool supports(peers::Collective collective) const override {
    return algorithm_ != Algorithm::BCUBE || collective == peers::Collective::all_reduce;
  }

  void run(peers::Collective collective, const float* send, float* recv, size_t count) override {
    float* in = const_cast<float*>(send);  // Gloo's options take mutable inputs; it doesn't write them
    const size_t all = count * static_cast<size_t>(size());
    switch (collective) {
      case peers::Collective::all_reduce:
        all_reduce(in, recv, count);
        break;
      case peers::Collective::reduce_scatter:
        reduce_scatter(send, recv, count);
        break;
      case peers::Collective::all_gather: {
        gloo::AllgatherOptions options(context_);
        options.setInput(in, count);
        options.setOutput(recv, all);
        gloo::allgather(options);
        break;
      }
      case peers::Collective::broadcast: {
        gloo::BroadcastOptions options(context_);
        options.setOutput(recv, count);
        options.setRoot(peers::kRoot);
        gloo::broadcast(options);
        break;
      }
      case peers::Collective::all_to_all: {
        gloo::AlltoallOptions options(context_);
        options.setInput(in, all);
        options.setOutput(recv, all);
        gloo::alltoall(options);
        break;
      }
    }
  }
  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  double max(double value) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(&value, 1);
    options.setReduceFunction(
        [](void* c, const void* a, const void* b, size_t n) { gloo::max<double>(c, a, b, n); });
    gloo::allreduce(options);
    return value;
  }

 private:
  void all_reduce(float* send, float* recv, size_t count) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(algorithm_);
    options.setInput(send, count);
    options.setOutput(recv, count);
    options.setReduceFunction(
        [](void* c, const void* a, const void* b, size_t n) { gloo::sum<float>(c, a, b, n); });
    gloo::allreduce(options);
  }

  // Gloo's reduce-scatter works in place, destroys its input and is bound to one buffer: the copies in and
  // out of a work buffer are what it costs to keep the input.
  void reduce_scatter(const float* send, float* recv, size_t count) {
    const size_t all = count * static_cast<size_t>(size());
    if (scatter_count_ != count) {
      scatter_.reset();
      work_.resize(all);
      scatter_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
          context_, std::vector<float*>{work_.data()}, static_cast<int>(all),
          std::vector<int>(static_cast<size_t>(size()), static_cast<int>(count)));
      scatter_count_ = count;
    }
    std::memcpy(work_.data(), send, all * sizeof(float));
    scatter_->run();
    std::memcpy(recv, work_.data(), count * sizeof(float));
  }

  Algorithm algorithm_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::vector<float> work_;
  std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scatter_;
  size_t scatter_count_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Gloo under the common method; starts its own ranks"};
  peers::Options options;
  peers::add_options(app, options);
  int ranks = 2;
  std::string algorithm = "default", interface = "lo", store;
  int only = -1;
  app.add_option("-n,--ranks", ranks, "Number of ranks")->check(CLI::PositiveNumber);
  app.add_option("--algorithm", algorithm, "All-reduce: default (ring) or bcube (halving-doubling)")
      ->check(CLI::IsMember({"default", "bcube"}));
  app.add_option("--rank", only, "Run this rank alone; others are started the same way")->check(CLI::NonNegativeNumber);
  app.add_option("--store", store, "With --rank: a folder that all ranks see, empty at first");
  app.add_option("--interface", interface, "Network interface of the connections");
  CLI11_PARSE(app, argc, argv);
  const auto run_rank = [&](int rank, const std::string& folder) {
    Gloo gloo(rank, ranks, folder, interface, algorithm == "bcube" ? Algorithm::BCUBE : Algorithm::UNSPECIFIED);
    gloo.barrier();
    if (rank == 0) std::filesystem::remove_all(folder);  // all have met; nothing is left however this ends
    const int result = peers::measure(gloo, options);
    gloo.barrier();  // nobody closes its sockets while another still waits for the last message
    return result;
  };
  if (only >= 0) return run_rank(only, store);

  std::string directory = (std::filesystem::temp_directory_path() / "peers-gloo-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) {
    std::perror("peers_gloo: cannot make a directory for the rendezvous");
    return 1;
  }
  const int status = peers::fork_ranks(ranks, [&](int rank) { return run_rank(rank, directory); });
  std::filesystem::remove_all(directory);
  return status;
}
