#include "bootstrap/arrivals.h"

#include <algorithm>
#include <chrono>

namespace muster {

Arrivals::Arrivals(Service& service, const EndpointName& name, const Key& key)
    : service_(service), name_(name) {
  service_.loop().call([&] {
    service_.open(name_, key, [this](Arrival a) {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(a));
      changed_.notify_one();
    });
  });
}

Arrivals::~Arrivals() {
  service_.loop().call([&] { service_.close(name_); });
}

std::optional<Arrival> Arrivals::wait(Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (queue_.empty()) {
    if (deadline.expired()) return std::nullopt;
    service_.require_accepting();
    changed_.wait_for(lock, std::min<std::chrono::nanoseconds>(deadline.nap(), std::chrono::milliseconds(200)));
  }
  Arrival a = std::move(queue_.front());
  queue_.pop_front();
  return a;
}

}  // namespace muster
