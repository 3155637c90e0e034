// A program's own memory as adapters know it: registered when it is first sent from, and kept, since
// registering takes longer than copying a message.
//
// Why what is kept is always right, although nothing here sees a program unmap memory: only ranges of
// LastingMemory are registered, which the program has promised to leave in place until it says otherwise, and
// a registration is kept by the range's life. Every use asks whether anything has ended since the last one;
// what has is forgotten first. So memory that comes to the place of other memory is another range, or none.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>

#include "base/lasting_memory.h"

namespace muster {

class Registrations {
 public:
  struct Limits {
    size_t ranges = 1024;
    size_t bytes = SIZE_MAX;  // of all ranges; registered memory can't be swapped
    bool only_shared =
        false;  // others aren't registered: fork() may take their pages from adapters (kernels before 5.12)
    static Limits of_machine();  // half of its memory
  };
  // Of this kernel, for whatever memory.
  static bool fork_is_harmless();
  // Makes a range known to adapters for as long as the result lives. Throws Error where it can't be.
  using Register = std::function<std::shared_ptr<const void>(std::span<const std::byte>)>;

  Registrations(Register make, Limits limits, const LastingMemory& memory = LastingMemory::of_process())
      : register_(std::move(make)), limits_(limits), memory_(memory), ended_(memory.ended()) {}

  // What the adapter knows these bytes by; null: they must be copied. To be held as long as the adapter may
  // read them, since the least recently used registrations give way to others.
  std::shared_ptr<const void> find(const std::byte* p, size_t bytes);
  // Lets go of what has ended. Cheap where nothing has.
  void sweep() {
    if (memory_.ended() != ended_) [[unlikely]]
      forget_ended();
  }
  size_t ranges() const { return by_life_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Known {
    LastingMemory::Range range;
    std::shared_ptr<const void> registration;  // null: it can't be
    size_t bytes() const { return registration ? range.end - range.begin : 0; }
  };
  void forget_ended();
  void forget(std::list<Known>::iterator it);
  Known make(const LastingMemory::Range& range);

  const Register register_;
  const Limits limits_;
  const LastingMemory& memory_;
  uint64_t ended_;
  std::list<Known> known_;  // most recently used first
  std::unordered_map<uint64_t, std::list<Known>::iterator> by_life_;
  size_t bytes_ = 0;
};

}  // namespace muster
