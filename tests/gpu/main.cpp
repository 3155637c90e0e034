// gpu_check CHECK [--ranks N] [--processes] [--spread] [--quick]: one check of NCCL's interface on GPUs, on
// whatever libnccl.so.2 is loaded. run.sh runs all of them. Status: 0 right, 1 wrong, 2 usage, 77 it can't be
// run here.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "checks.h"

namespace {

// Says what is here.
int tell() {
  int count = 0, driver = 0, runtime = 0, version = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    printf("no GPU: %s\n", cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error));
    return 77;
  }
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  ncclGetVersion(&version);
  for (int d = 0; d < count; ++d) {
    cudaDeviceProp p;
    gpu_check::cuda(cudaGetDeviceProperties(&p, d), "cudaGetDeviceProperties");
    printf("GPU %d: %s, compute capability %d.%d, %d multiprocessors, %.0f GiB\n", d, p.name, p.major,
           p.minor, p.multiProcessorCount, static_cast<double>(p.totalGlobalMem) / (1 << 30));
  }
  printf("driver for CUDA %d.%d, runtime %d.%d, libnccl says %d\n", driver / 1000, driver % 1000 / 10,
         runtime / 1000, runtime % 1000 / 10, version);
  return 0;
}

int usage() {
  fprintf(stderr,
          "gpu_check CHECK [--ranks N] [--processes] [--spread] [--quick]\n"
          "  CHECK       info collectives messages graphs abort bandwidth latency\n"
          "  --ranks N   1 if not said\n"
          "  --processes a process per rank; else a thread\n"
          "  --spread    over all GPUs; else all ranks share the first\n"
          "  --quick     few and small\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, void (*)(const gpu_check::Setup&)> checks = {
      {"collectives", gpu_check::check_collectives}, {"messages", gpu_check::check_messages},
      {"graphs", gpu_check::check_graphs},           {"abort", gpu_check::check_abort},
      {"bandwidth", gpu_check::measure_bandwidth},   {"latency", gpu_check::measure_latency}};
  if (argc < 2) return usage();
  gpu_check::Setup setup;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--ranks" && i + 1 < argc)
      setup.ranks = atoi(argv[++i]);
    else if (word == "--processes")
      setup.kind = gpu_check::Kind::processes;
    else if (word == "--spread")
      setup.spread = true;
    else if (word == "--quick")
      setup.quick = true;
    else
      return usage();
  }
  if (setup.ranks < 1 || setup.ranks > 64) return usage();
  if (!strcmp(argv[1], "info")) return tell();
  const auto check = checks.find(argv[1]);
  if (check == checks.end()) return usage();
  check->second(setup);
  return 0;
}
