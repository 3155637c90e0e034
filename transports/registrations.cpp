#include "transports/registrations.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace muster {

Registrations::Limits Registrations::Limits::of_machine() {
  Limits l;
  l.bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE)) / 2;
  return l;
}

bool Registrations::fork_is_harmless() {
  utsname system{};
  int major = 0, minor = 0;
  if (uname(&system) != 0) return false;
  const char* const end = system.release + std::strlen(system.release);
  const auto [dot, error] = std::from_chars(system.release, end, major);
  if (error == std::errc() && dot != end) std::from_chars(dot + 1, end, minor);
  return major > 5 || (major == 5 && minor >= 12);
}

std::shared_ptr<const void> Registrations::find(const std::byte* p, size_t bytes) {
  sweep();
  if (!known_.empty() && known_.front().range.holds(p, bytes)) return known_.front().registration;
  const LastingMemory::Range range = memory_.find(p, bytes);
  if (range.life == 0) return nullptr;
  if (const auto found = by_life_.find(range.life); found != by_life_.end()) {
    known_.splice(known_.begin(), known_, found->second);
    return known_.front().registration;
  }
  known_.push_front(make(range));
  by_life_[range.life] = known_.begin();
  bytes_ += known_.front().bytes();
  while (known_.size() > limits_.ranges || bytes_ > limits_.bytes) forget(std::prev(known_.end()));
  return known_.front().registration;  // which is never the one that gives way: make() sees to that
}

// A range that can't be registered is remembered as such until something is given back.
Registrations::Known Registrations::make(const LastingMemory::Range& range) {
  Known k{range, nullptr};
  const size_t bytes = range.end - range.begin;
  if (bytes > limits_.bytes || (limits_.only_shared && !range.shared)) return k;
  try {
    k.registration = register_({reinterpret_cast<const std::byte*>(range.begin), bytes});
    log_info(Topic::net, "{} bytes at {:#x} are registered to be sent from where they are", bytes,
             range.begin);
  } catch (const Error& e) {
    log_info(Topic::net, "{} bytes at {:#x} are copied to be sent: {}", bytes, range.begin, e.what());
  }
  return k;
}

void Registrations::forget(std::list<Known>::iterator it) {
  bytes_ -= it->bytes();
  by_life_.erase(it->range.life);
  known_.erase(it);
}

void Registrations::forget_ended() {
  ended_ = memory_.ended();  // first: what ends meanwhile is seen the next time
  bool given_back = false;
  for (auto it = known_.begin(); it != known_.end();)
    if (const auto i = it++; !memory_.lives(i->range.life)) {
      given_back |= i->registration != nullptr;
      forget(i);
    }
  if (!given_back) return;
  for (auto it = known_.begin(); it != known_.end();)
    if (const auto i = it++; !i->registration) forget(i);
}

}  // namespace muster
