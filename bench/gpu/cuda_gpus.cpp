// The GPUs that the CUDA runtime finds.
#include <fmt/format.h>

#include <cstring>

#include "gpu/nccl_rank.h"

namespace muster::perf {
namespace {

class CudaGpus : public Gpus {
 public:
  explicit CudaGpus(int count) : count_(count) {}

  int count() const override { return count_; }

  GpuName name(int device) const override {
    cudaDeviceProp p;
    require(cudaGetDeviceProperties(&p, device), "cudaGetDeviceProperties");
    return {device, fmt::format("{:04x}:{:02x}:{:02x}", p.pciDomainID, p.pciBusID, p.pciDeviceID), p.name};
  }

  size_t free_memory(int device) const override {
    const OnDevice on(device);
    size_t free = 0, total = 0;
    require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
  }

  std::vector<std::unique_ptr<GpuRank>> make_ranks(std::span<Communicator> meeting,
                                                   std::span<const int> devices, const Args& args) override {
    std::vector<std::unique_ptr<NcclRank>> ranks;
    for (size_t i = 0; i < meeting.size(); ++i)
      ranks.push_back(
          std::make_unique<NcclRank>(devices[i], meeting[i].rank(), meeting[i].size(), args.null_stream));
    const ncclUniqueId id = agree_on_id(meeting);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (args.cta_policy) config.CTAPolicy = *args.cta_policy;
    require(ncclGroupStart(), "ncclGroupStart");
    for (auto& rank : ranks) rank->init(id, config);
    require(ncclGroupEnd(), "ncclGroupEnd");
    return {std::make_move_iterator(ranks.begin()), std::make_move_iterator(ranks.end())};
  }

 private:
  // Rank 0's, on all ranks.
  static ncclUniqueId agree_on_id(std::span<Communicator> meeting) {
    std::vector<ncclUniqueId> ids(meeting.size());
    if (meeting[0].rank() == 0) require(ncclGetUniqueId(&ids[0]), "ncclGetUniqueId");
    muster::group_start();
    for (size_t i = 0; i < meeting.size(); ++i)
      meeting[i].broadcast(&ids[i], &ids[i], sizeof ids[i], DataType::uint8, 0);
    muster::group_end();
    return ids[0];
  }

  const int count_;
};

}  // namespace

std::unique_ptr<Gpus> find_gpus(std::string& why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    why = fmt::format("the CUDA runtime finds no GPU: {} ({})", cudaGetErrorName(error),
                      cudaGetErrorString(error));
    return nullptr;
  }
  if (count == 0) {
    why = "the CUDA runtime finds no GPU";
    return nullptr;
  }
  return std::make_unique<CudaGpus>(count);
}

}  // namespace muster::perf
