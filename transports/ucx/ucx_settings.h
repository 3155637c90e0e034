// What UCX is told about which transports and devices to use: what the user says in UCX_* variables, else what NCCL's say,
// else what is best here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/options.h"

namespace muster {

struct UcxSetting {
  std::string name;  // without UCX_
  std::string value;
};

// `interfaces`: NetworkSetup's. `rdma_devices`: the names there are, "mlx5_0". `user_sets`: whether the variable of that name is
// in the environment; UCX reads it itself, and no setting of that name is returned.
std::vector<UcxSetting> ucx_settings(const Options& options, const std::vector<std::string>& interfaces,
                                     const std::vector<std::string>& rdma_devices, const std::function<bool(const char*)>& user_sets);

// Messages are as long as this at most, unless MUSTER_SLOT_BYTES says otherwise.
inline constexpr size_t kUcxSlotBytes = 256 << 10;

// Of /sys/class/infiniband.
std::vector<std::string> list_rdma_devices();

}  // namespace muster
