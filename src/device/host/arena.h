// Memory of mem_alloc: one memfd per process, so that a peer process maps it once and reaches every
// allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/fd.h"

namespace muster {

class Arena {
 public:
  // This process's arena, made on first use. Thread-safe, like all of this class.
  static Arena& of_process();

  void* allocate(size_t bytes);  // page-aligned, zeroed; throws system_error when there is no memory
  // Null is allowed; memory that a forked child inherited stays the parent's. Throws invalid_argument for a pointer that
  // isn't an allocation.
  void release(void* p);
  // Where in the arena [p, p + bytes) lies, if it is inside one allocation.
  std::optional<uint64_t> offset_of(const void* p, size_t bytes) const;

  int descriptor() const;
  size_t size() const;  // of the mapping; sparse
  std::byte* base() const;

 private:
  explicit Arena(const Arena* inherited);
  bool is_inherited(const void* p) const;
  const Arena* inherited_;  // of the process that this one was forked from
  const int fork_generation_;
  struct State;
  std::unique_ptr<State> state_;
};

// A peer process's arena, mapped here.
class PeerArena {
 public:
  PeerArena(const Fd& descriptor, size_t bytes);
  ~PeerArena();
  PeerArena(const PeerArena&) = delete;
  PeerArena& operator=(const PeerArena&) = delete;
  std::byte* base() const { return base_; }

 private:
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace muster
