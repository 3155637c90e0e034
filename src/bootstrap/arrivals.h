// A thread's side of an endpoint: it waits for authenticated connections that the service accepts for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "bootstrap/service.h"

namespace muster {

class Arrivals {
 public:
  Arrivals(Service& service, const EndpointName& name, const Key& key);
  ~Arrivals();  // closes the endpoint
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  std::optional<Arrival> wait(Deadline deadline);  // empty: expired

 private:
  Service& service_;
  const EndpointName name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Arrival> queue_;
};

}  // namespace muster
