#include "comm/gpu_window_meeting.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/wire.h"
#include "comm/cta_policy.h"
#include "comm/gpu_setting.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

// What a rank says of its part.
struct GpuPart {
  uint64_t address = 0;
  std::string shared;    // for other processes
  std::string table;     // GpuRank::meeting_table()
  std::string obstacle;  // why copy engines can't have to do with it

  std::string write() const { return Writer().u64(address).text(shared).text(table).text(obstacle).take(); }
  static GpuPart read(const std::string& text) {
    Reader r(text);
    GpuPart p;
    p.address = r.u64();
    p.shared = r.text();
    p.table = r.text();
    p.obstacle = r.text();
    if (!r.ok() || !r.at_end()) p.obstacle = "a rank's part of the window can't be read";
    return p;
  }
};

// The text of what f throws; empty: nothing. What isn't reached costs speed only.
template <class F>
std::string obstacle_in(F f) {
  try {
    f();
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

// A communicator stays with one GPU: that of its first call on GPU memory, or of its first window there.
void bind_to_gpu_of(Impl& comm, const void* memory) {
  const GpuLibrary& gpus = *gpu_library();
  const GpuPointer at = gpus.inspect(memory);
  if (at.kind != GpuPointer::Kind::device) return;
  const int device = comm.gpu_device.load();
  if (device >= 0 && device != at.device)
    fail(Result::invalid_argument,
         "register_window on {}: the memory at {} is of {}, and communicator {} is on {}. A communicator stays with one GPU",
         comm.rank_name(comm.rank), memory, gpus.describe(at.device), comm.name, gpus.describe(device));
  comm.gpu_device.store(at.device);
}

bool has_other_processes(const Impl& comm) {
  return std::any_of(comm.ranks.begin(), comm.ranks.end(), [](const Impl::Rank& r) { return !r.same_process; }) &&
         !comm.inputs.same_process;
}

// Of this rank.
std::string own_obstacle(Impl& comm, const Window::Impl& window, GpuPart* mine) {
  if (comm.shown && comm.shown->spans_hosts()) return "its ranks are on several hosts";
  if (!window.symmetric) return "it isn't registered with NCCL_WIN_COLL_SYMMETRIC";
  if (!wants_copy_engines(comm.options, comm.config))
    return fmt::format("the CTA policy of {} isn't zero", comm.rank_name(comm.rank));
  if (gpu_library()->inspect(window.base).kind != GpuPointer::Kind::device) return "it is managed memory";
  return obstacle_in([&] { mine->table = require_gpu_rank(comm).meeting_table(); });
}

// The first rank's obstacle.
std::string first_of(const Impl& comm, std::span<const std::string> obstacles) {
  for (size_t r = 0; r < obstacles.size(); ++r)
    if (!obstacles[r].empty()) return fmt::format("{} (said by {})", obstacles[r], comm.rank_name(static_cast<int>(r)));
  return {};
}

std::shared_ptr<std::byte> reach_part(const Impl& comm, size_t r, const GpuPart& part) {
  if (static_cast<int>(r) == comm.rank || comm.inputs.same_process || comm.ranks[r].same_process)
    return {std::shared_ptr<void>(), reinterpret_cast<std::byte*>(part.address)};
  if (part.shared.empty() || !comm.ranks[r].here) return nullptr;
  return gpu_library()->reach(part.shared, comm.gpu_device.load(), comm.rank_name(static_cast<int>(r)));
}

}  // namespace

std::string describe_gpu_part(Impl& comm, Window::Impl& window) {
  const GpuLibrary* const gpus = gpu_library();
  if (!gpus || window.bytes == 0 || !gpus->holds(window.base)) return {};
  bind_to_gpu_of(comm, window.base);
  GpuPart mine;
  mine.address = reinterpret_cast<uint64_t>(window.base);
  mine.obstacle = own_obstacle(comm, window, &mine);
  if (has_other_processes(comm)) {
    const std::string why = obstacle_in([&] {
      const GpuOffer offer = gpus->share(window.base, window.bytes);
      mine.shared = offer.text;
      window.offer = offer.keep;
    });
    if (mine.obstacle.empty()) mine.obstacle = why;
  }
  return mine.write();
}

std::shared_ptr<GpuWindow> meet_in_gpu_window(Impl& comm, const Window::Impl& window, Exchange& exchange,
                                              std::span<const std::string> parts, std::span<const uint64_t> sizes) {
  auto made = std::make_shared<GpuWindow>();
  made->base = static_cast<std::byte*>(window.base);
  made->least = *std::min_element(sizes.begin(), sizes.end());
  made->parts.resize(parts.size());
  std::vector<std::string> obstacles, tables;
  std::string unreached;
  for (size_t r = 0; r < parts.size(); ++r) {
    const GpuPart part = parts[r].empty() ? GpuPart{} : GpuPart::read(parts[r]);
    obstacles.push_back(parts[r].empty() ? "its part isn't memory of a GPU" : part.obstacle);
    tables.push_back(part.table);
    if (parts[r].empty()) continue;
    const std::string why = obstacle_in([&] { made->parts[r] = reach_part(comm, r, part); });
    if (unreached.empty()) unreached = why;
  }
  made->obstacle = first_of(comm, obstacles);
  if (made->obstacle.empty() && unreached.empty())
    unreached = obstacle_in([&] { require_gpu_rank(comm).hear_tables(tables); });
  obstacles = exchange.all_gather(unreached);
  if (made->obstacle.empty()) made->obstacle = first_of(comm, obstacles);
  comm.gpu_windows.add(made);
  log_info(Topic::reg, "communicator {}: window {} is GPU memory{}{}", comm.name, made->number,
           made->obstacle.empty() ? ", and copy engines copy to it" : "; copy engines don't copy to it: ", made->obstacle);
  return made;
}

}  // namespace muster
