#include "comm/cuda/meeting_tables.h"

#include <utility>

#include "base/error.h"
#include "bootstrap/wire.h"
#include "device/host/arena.h"

namespace muster::cuda {

std::string MeetingTables::mine() {
  if (const std::string refusal = stream_words_refusal(device_); !refusal.empty())
    fail(Result::invalid_usage, "{}", refusal);
  if (!own_) {
    own_ = make_host_mailbox(device_, meeting_table_bytes(static_cast<int>(setting_.peers.size())), &offset_);
    household_.keep(own_);
    own_on_host_ = Arena::of_process().base() + offset_;
  }
  return Writer().u64(offset_).take();
}

void MeetingTables::hear(std::span<const std::string> tables) {
  if (executor()) return;
  const size_t bytes = meeting_table_bytes(static_cast<int>(setting_.peers.size()));
  std::vector<std::shared_ptr<std::byte>> all;
  for (size_t r = 0; r < tables.size(); ++r) {
    const GpuPeer& peer = setting_.peers[r];
    if (!peer.arena)
      fail(Result::invalid_usage, "{} shares no host memory with this rank (MUSTER_WINDOWS=0, or see the log)", peer.name);
    const uint64_t offset = Reader(tables[r]).u64();
    all.push_back(peer.same_process ? reached().find(reinterpret_cast<uint64_t>(peer.arena.get() + offset))
                                    : reach_host_mailbox(device_, peer.arena, offset, bytes));
    if (!all.back()) fail(Result::remote_error, "{} has left", peer.name);
  }
  executor_ = std::make_unique<CopyExecutor>(device_, setting_.rank, std::move(all), own_on_host_);
  seen_.store(executor_.get(), std::memory_order_release);
}

}  // namespace muster::cuda
