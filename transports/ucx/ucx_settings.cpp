#include "transports/ucx/ucx_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"

namespace muster {
namespace {

constexpr size_t kUcxHeaders = 4096;  // in front of a segment, more than they are

// NCCL_IB_HCA: "mlx5_0:1,mlx5_1": prefixes; '=' in front: exact names; '^': all others. UCX wants each "device:port".
std::vector<std::string> chosen_hcas(std::string wish, const std::vector<std::string>& devices) {
  bool exclude = false, exact = false;
  for (; !wish.empty() && (wish[0] == '^' || wish[0] == '='); wish.erase(0, 1)) (wish[0] == '^' ? exclude : exact) = true;
  std::vector<std::string> chosen;
  for (const std::string& device : devices) {
    std::string port = "1";
    bool named = false;
    for (const std::string_view w : split(wish, ',')) {
      const size_t colon = w.find(':');
      const std::string_view name = w.substr(0, colon);
      if (name.empty() || (exact ? device != name : !device.starts_with(name))) continue;
      named = true;
      if (colon != std::string_view::npos) port = w.substr(colon + 1);
    }
    if (named != exclude) chosen.push_back(device + ":" + (exclude ? "1" : port));
  }
  return chosen;
}

std::string joined(const std::vector<std::string>& words) {
  std::string s;
  for (const std::string& w : words) s += (s.empty() ? "" : ",") + w;
  return s;
}

}  // namespace

std::vector<UcxSetting> ucx_settings(const Options& options, const std::vector<std::string>& interfaces,
                                     const std::vector<std::string>& rdma_devices, const std::function<bool(const char*)>& user_sets) {
  std::vector<UcxSetting> settings;
  const auto set = [&](const char* name, std::string value) {
    if (!user_sets((std::string("UCX_") + name).c_str())) settings.push_back({name, std::move(value)});
  };
  const std::string net = lower(options.text("NCCL_NET"));
  const bool rdma = !rdma_devices.empty() && !options.flag("NCCL_IB_DISABLE") && net != "socket";
  // Never UCX's shared memory: whoever shares memory with this rank isn't reached by a network.
  set("TLS", rdma ? "ib,tcp" : "tcp");
  if (!rdma) {
    // Rendezvous lands in place but waits for an answer first. All-reduce of two ranks over loopback: 256 KiB 229 us without it,
    // 334 us with it; 16 MiB 17.6 and 22.9 ms.
    set("RNDV_THRESH", "inf");
    // All of them share a message that is long enough for several segments. By one interface it goes in one: that is copied from
    // where it was received, while UCX puts segments together in memory of its own first. UCX 1.13, messages of 256 KiB over
    // loopback: 2.6 GB/s, and 3.5 in one segment.
    if (interfaces.size() > 1)
      set("MAX_EAGER_LANES", std::to_string(interfaces.size()));
    else
      set("TCP_RX_SEG_SIZE", std::to_string(kUcxSlotBytes + kUcxHeaders));
  }
  std::vector<std::string> devices;
  const std::string& hca = options.text("NCCL_IB_HCA");
  if (rdma && !hca.empty()) devices = chosen_hcas(hca, rdma_devices);
  if (rdma && hca.empty() && !interfaces.empty())
    for (const std::string& d : rdma_devices) devices.push_back(d + ":1");
  if (!devices.empty() || !interfaces.empty()) {
    devices.insert(devices.end(), interfaces.begin(), interfaces.end());
    set("NET_DEVICES", joined(devices));
  }
  if (options.is_set("MUSTER_PORT_RANGE")) set("TCP_PORT_RANGE", options.text("MUSTER_PORT_RANGE"));
  if (options.integer("NCCL_IB_GID_INDEX") >= 0) set("IB_GID_INDEX", std::to_string(options.integer("NCCL_IB_GID_INDEX")));
  if (options.is_set("NCCL_IB_TC")) set("IB_TRAFFIC_CLASS", std::to_string(options.integer("NCCL_IB_TC")));
  if (options.is_set("NCCL_IB_SL")) set("IB_SL", std::to_string(options.integer("NCCL_IB_SL")));
  if (options.is_set("NCCL_IB_RETRY_CNT")) set("RC_RETRY_COUNT", std::to_string(options.integer("NCCL_IB_RETRY_CNT")));
  if (options.is_set("NCCL_IB_TIMEOUT"))  // 4.096 us * 2^n, which UCX wants in seconds
    set("RC_TIMEOUT", fmt::format("{}us", static_cast<uint64_t>(4.096 * static_cast<double>(uint64_t{1} << std::clamp<int64_t>(options.integer("NCCL_IB_TIMEOUT"), 0, 31)))));
  return settings;
}

std::vector<std::string> list_rdma_devices() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", error)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace muster
