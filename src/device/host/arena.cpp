#include "device/host/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/error.h"
#include "base/lasting_memory.h"
#include "base/fork.h"
#include "base/memory_file.h"
#include "base/math.h"
#include "muster/muster.h"

namespace muster {
namespace {
constexpr size_t kPage = 4096;
}

struct Arena::State {
  Fd fd;
  std::byte* base = nullptr;
  size_t bytes = 0;
  mutable std::shared_mutex mutex;
  std::map<size_t, size_t> used;  // offset -> bytes
  std::map<size_t, size_t> free;  // offset -> bytes; neighbours are merged
};

// The process keeps its arena until it ends: peers may still be reading. A forked child gets one of its own, since
// parent and child would hand out the same pages; what it inherited stays mapped and readable.
Arena& Arena::of_process() {
  static std::mutex mutex;
  static std::atomic<Arena*> arena{nullptr};
  Arena* a = arena.load(std::memory_order_acquire);
  if (a && a->fork_generation_ == fork_generation()) return *a;
  std::lock_guard lock(mutex);
  a = arena.load(std::memory_order_relaxed);
  if (!a || a->fork_generation_ != fork_generation()) {
    a = new Arena(a);
    arena.store(a, std::memory_order_release);
  }
  return *a;
}

bool Arena::is_inherited(const void* p) const {
  for (const Arena* a = inherited_; a; a = a->inherited_)
    if (p >= a->state_->base && p < a->state_->base + a->state_->bytes) return true;
  return false;
}

Arena::Arena(const Arena* inherited) : inherited_(inherited), fork_generation_(fork_generation()), state_(std::make_unique<State>()) {
  State& s = *state_;
  // Address space, not memory: as much as the machine could ever fill, so that it is mapped once and never grown.
  struct sysinfo info{};
  sysinfo(&info);
  s.bytes = align_up(static_cast<size_t>(info.totalram) * info.mem_unit, size_t{1} << 30);
  s.fd = create_memory_file("muster-memory", "the memory arena", s.bytes);
  void* p = mmap(nullptr, s.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s.fd.get(), 0);
  if (p == MAP_FAILED)
    fail_errno(errno, fmt::format("mapping the memory arena of {} bytes", s.bytes), "Check the limit on address space (ulimit -v)");
  s.base = static_cast<std::byte*>(p);
  s.free[0] = s.bytes;
}

void* Arena::allocate(size_t bytes) {
  State& s = *state_;
  const size_t need = std::max(align_up(bytes, kPage), kPage);
  if (need < bytes) fail(Result::invalid_argument, "mem_alloc of {} bytes: no machine has that much memory", bytes);
  std::unique_lock lock(s.mutex);
  for (auto it = s.free.begin(); it != s.free.end(); ++it) {
    if (it->second < need) continue;
    const size_t offset = it->first;
    int r;
    do r = fallocate(s.fd.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(need));
    while (r != 0 && errno == EINTR);
    if (r != 0)
      fail_errno(errno, fmt::format("mem_alloc of {} bytes", bytes), "Free memory or raise the memory limit of this container");
    if (it->second > need) s.free[offset + need] = it->second - need;
    s.free.erase(offset);
    s.used[offset] = need;
    LastingMemory::of_process().add({s.base + offset, need}, true, nullptr);
    return s.base + offset;
  }
  fail(Result::system_error, "mem_alloc of {} bytes: the arena of {} bytes (this machine's memory) has no gap that large", bytes, s.bytes);
}

void Arena::release(void* p) {
  if (!p || is_inherited(p)) return;  // the pages are the parent's
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  const auto offset = static_cast<size_t>(static_cast<std::byte*>(p) - s.base);
  const auto it = s.used.find(offset);
  if (static_cast<std::byte*>(p) < s.base || it == s.used.end())
    fail(Result::invalid_argument, "mem_free of {}: not the start of memory from mem_alloc, or freed before", p);
  size_t at = offset, bytes = it->second;
  LastingMemory::of_process().end_within({s.base + at, bytes});  // before other pages come there
  s.used.erase(it);
  fallocate(s.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at), static_cast<off_t>(bytes));
  auto next = s.free.lower_bound(at);
  if (next != s.free.end() && at + bytes == next->first) {
    bytes += next->second;
    next = s.free.erase(next);
  }
  if (next != s.free.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == at) {
      before->second += bytes;
      return;
    }
  }
  s.free[at] = bytes;
}

std::optional<uint64_t> Arena::offset_of(const void* p, size_t bytes) const {
  const State& s = *state_;
  const auto* b = static_cast<const std::byte*>(p);
  if (b < s.base || b >= s.base + s.bytes) return std::nullopt;
  const auto offset = static_cast<size_t>(b - s.base);
  std::shared_lock lock(s.mutex);
  auto it = s.used.upper_bound(offset);
  if (it == s.used.begin()) return std::nullopt;
  --it;
  if (offset + bytes > it->first + it->second) return std::nullopt;
  return offset;
}

int Arena::descriptor() const { return state_->fd.get(); }
size_t Arena::size() const { return state_->bytes; }
std::byte* Arena::base() const { return state_->base; }

PeerArena::PeerArena(const Fd& descriptor, size_t bytes) : bytes_(bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor.get(), 0);
  if (p == MAP_FAILED)
    fail_errno(errno, fmt::format("mapping a peer's memory arena of {} bytes", bytes), "Check the limit on address space (ulimit -v)");
  base_ = static_cast<std::byte*>(p);
}
PeerArena::~PeerArena() {
  if (base_) munmap(base_, bytes_);
}

void* mem_alloc(size_t bytes) { return Arena::of_process().allocate(bytes); }
void mem_free(void* p) { Arena::of_process().release(p); }

}  // namespace muster
