// What options say of TCP connections between ranks.
#pragma once

#include <chrono>
#include <string>

#include "base/options.h"

namespace muster::tcp {

inline constexpr int kMostStreams = 64;  // NCCL's limit of sockets between two ranks

struct Settings {
  int streams = 1;      // per pair of ranks and rail
  int send_buffer = 0;  // bytes that the kernel may hold for a stream; 0: as many as it finds right
  int receive_buffer = 0;
  std::string congestion;  // the congestion control to use; empty: as the system has it
  std::chrono::milliseconds most_silence{};  // of a peer's host
  bool names_interfaces = false;  // NCCL_SOCKET_IFNAME does: connections come from their addresses
  int family = 0;       // AF_INET, AF_INET6; 0: either
  int low_port = 0, high_port = 0;  // to listen at; 0: the kernel's choice

  // Throws invalid_usage.
  static Settings from(const Options& options);
};

// Of a stream before it connects or listens, and of one that stands.
void size_buffers(int fd, const Settings& settings);
void tune(int fd, const Settings& settings);
// It sends and gets by this interface alone. False where this process may not say so.
bool bind_to_device(int fd, const std::string& device);

// For how long its peer's host has been silent although something is under way to it. A stopped process's host answers.
class Silence {
 public:
  // Asks the kernel; 0 where it isn't silent. `under_way`: something is, or waits to be sent.
  std::chrono::milliseconds lasts(int fd, bool* under_way);

 private:
  std::chrono::steady_clock::time_point since_{};
};

}  // namespace muster::tcp
