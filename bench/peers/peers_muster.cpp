// Muster under the common method; start it with `muster run -n N`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "method.h"
#include "muster/muster.h"

namespace {

class Muster : public peers::Library {
 public:
  explicit Muster(bool mem_alloc) : mem_alloc_(mem_alloc), comm_(muster::Communicator::from_environment()) {}
  ~Muster() override { comm_.destroy(); }
  Muster(const Muster&) = delete;
  Muster& operator=(const Muster&) = delete;

  const char* name() const override { return mem_alloc_ ? "muster-alloc" : "muster"; }
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }

  void run(peers::Collective collective, const float* send, float* recv, size_t count) override {
    constexpr auto type = muster::DataType::float32;
    constexpr auto sum = muster::RedOp::sum;
    switch (collective) {
      case peers::Collective::all_reduce:
        comm_.all_reduce(send, recv, count, type, sum);
        break;
      case peers::Collective::reduce_scatter:
        comm_.reduce_scatter(send, recv, count, type, sum);
        break;
      case peers::Collective::all_gather:
        comm_.all_gather(send, recv, count, type);
        break;
      case peers::Collective::broadcast:
        comm_.broadcast(send, recv, count, type, peers::kRoot);
        break;
      case peers::Collective::all_to_all:
        comm_.all_to_all(send, recv, count, type);
        break;
    }
  }
  void barrier() override { comm_.barrier(); }
  double max(double value) override {
    double result = 0;
    comm_.all_reduce(&value, &result, 1, muster::DataType::float64, muster::RedOp::max);
    return result;
  }
  void* allocate(size_t bytes) override {
    return mem_alloc_ ? muster::mem_alloc(bytes) : Library::allocate(bytes);
  }
  void release(void* memory) override { mem_alloc_ ? muster::mem_free(memory) : Library::release(memory); }

 private:
  bool mem_alloc_;
  muster::Communicator comm_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Muster under the common method; start it with `muster run -n N`"};
  peers::Options options;
  peers::add_options(app, options);
  std::string memory = "malloc";
  app.add_option("--memory", memory, "Where buffers come from: malloc, or alloc (muster::mem_alloc)")
      ->check(CLI::IsMember({"malloc", "alloc"}));
  CLI11_PARSE(app, argc, argv);
  try {
    Muster muster(memory == "alloc");
    return peers::measure(muster, options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "peers_muster: %s\n", e.what());
    return 1;
  }
}
