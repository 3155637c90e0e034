// What this process maps once for all its communicators.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "device/host/arena.h"
#include "transports/shm/segment.h"

namespace muster {

// Values live as long as somebody has them.
template <class T>
class Registry {
 public:
  std::shared_ptr<T> find(uint64_t key) {
    const std::lock_guard lock(mutex_);
    const auto it = map_.find(key);
    return it == map_.end() ? nullptr : it->second.lock();
  }
  // The value of `key`: made by `make` unless there is one.
  template <class Make>
  std::shared_ptr<T> get(uint64_t key, Make make) {
    const std::lock_guard lock(mutex_);
    if (const auto it = map_.find(key); it != map_.end())
      if (auto value = it->second.lock()) return value;
    if (map_.size() >= 2 * living_) {  // now and then, so that it takes no longer with many
      std::erase_if(map_, [](const auto& e) { return e.second.expired(); });
      living_ = std::max<size_t>(16, map_.size());
    }
    std::shared_ptr<T> value = make();
    map_[key] = value;
    return value;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<T>> map_;
  size_t living_ = 16;
};

Registry<Segment>& segments();       // by communicator
Registry<PeerArena>& peer_arenas();  // by process

}  // namespace muster
