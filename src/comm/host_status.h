// What the ranks of a host have published of themselves, read from outside their processes: nothing is asked
// of them, so they may be stopped or spin. Communicators of one rank publish nothing, since they wait for
// nobody.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/types.h"
#include "plan/planner.h"
#include "transports/shm/segment_head.h"

namespace muster {

enum class ProcessState {
  running,
  stopped,  // by a signal
  traced,   // stopped by a debugger
  silent,   // its helper thread hasn't run for seconds: frozen, or starved of processor time
  gone      // ended
};
std::string_view name_of(ProcessState s);

struct CallStatus {
  uint64_t number = 0;             // 1, 2, ...; 0: none yet
  std::optional<CallShape> shape;  // nothing: too long ago, or being written
  double seconds_ago = 0;          // at most, and to about a second
};

struct WaitStatus {
  RankWait::Kind kind = RankWait::none;
  int peer = -1;  // -1: not one alone
  double seconds = 0;
};

struct RankStatus {
  int rank = 0;
  int pid = 0;  // as this process numbers it; of one that is gone, as it numbered itself
  ProcessState process = ProcessState::running;
  bool left = false;    // has destroyed its communicator
  bool moving = false;  // started or finished calls while it was looked at
  CallStatus started, finished;
  std::optional<WaitStatus> wait;  // longer than some 20 ms
};

struct CommunicatorStatus {
  uint64_t id = 0;
  uint64_t parent = 0;  // the one it was made of; 0: none
  std::string name;
  int size = 0;
  Result error = Result::success;
  bool revoked = false;
  std::vector<RankStatus> ranks;  // ascending
  std::vector<int> elsewhere;     // ranks of other hosts
  std::vector<int> joining;       // ranks of this host that haven't come in yet
};

struct HostStatus {
  std::vector<CommunicatorStatus> communicators;  // each behind the one it was made of
  std::vector<std::string> problems;              // what couldn't be read, and why
};

// Of the processes of this user, or of `pids` if there are any. What moves is seen by looking twice, so far
// apart.
HostStatus read_host_status(std::span<const int> pids, std::chrono::milliseconds apart);

}  // namespace muster
