// Since when ranks are where they are in their calls: looked at once a second on the process's helper thread,
// so that no call reads a clock.
#pragma once

#include <mutex>
#include <set>

#include "transports/shm/segment_head.h"

namespace muster {

// The ranks of this process. Any thread.
class CallTimes {
 public:
  static CallTimes& of_process();
  void add(RankControl& control);
  void remove(RankControl& control);  // it may be gone afterwards; it need not have been added

 private:
  CallTimes() = default;
  void look();

  std::mutex mutex_;
  std::set<RankControl*> controls_;
  bool looking_ = false;  // the timer is set
};

}  // namespace muster
