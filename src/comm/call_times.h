// Since when ranks are where they are in their calls: looked at once a second on the process's helper thread,
// so that no call reads a clock.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "transports/shm/segment.h"

namespace muster {

// The ranks of this process. Any thread.
class CallTimes {
 public:
  static CallTimes& of_process();
  // Until nobody else holds the segment.
  void add(const std::shared_ptr<Segment>& segment, int place);

 private:
  struct Place {
    std::weak_ptr<Segment> segment;
    int place;
  };
  CallTimes() = default;
  void look();

  std::mutex mutex_;
  std::vector<Place> places_;
  bool looking_ = false;  // the timer is set
};

}  // namespace muster
