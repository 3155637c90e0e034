// What a rank knows of its host and of itself, as far as findings follow from it. Plain data: ranks send it to rank 0, and
// tests make it up. Numbers that aren't known, and limits that don't exist, are kNoLimit; texts that aren't known are empty.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/finding.h"
#include "topology/system_files.h"

namespace muster::doctor {

inline constexpr int64_t kNoLimit = -1;

struct InterfaceFacts {
  std::string name;
  bool up = false;       // and has a carrier
  bool loopback = false;
  int64_t mtu = kNoLimit;                // bytes
  double gbit_per_s = 0;                 // 0: not said
  int64_t rp_filter = 0;                 // 1: strict, packets must come in where answers would go out
  std::vector<std::string> addresses;    // "10.0.0.1/24"
};

struct GidFacts {
  int index = 0;
  std::string address;    // "::ffff:10.0.0.1"
  std::string type;       // as the kernel says: "RoCE v2", "IB/RoCE v1"
  std::string interface;
};

struct RdmaPortFacts {
  std::string device;     // "mlx5_0"
  int port = 1;
  bool up = false;
  bool ethernet = false;  // RoCE; else InfiniBand
  double gbit_per_s = 0;
  std::vector<GidFacts> gids;  // those that are set
};

// Of transports/make_network.h.
struct NetworkFacts {
  std::string name;     // "tcp"
  std::string problem;  // why it can't be used; empty: it can
};

// A control group's limit that leaves the least room, of all above this process.
struct GroupLimit {
  int64_t limit = kNoLimit, used = 0;
  int64_t room() const { return limit > used ? limit - used : 0; }
};

// The files and calls that belong to a host are looked at by one rank of each (whole_host).
struct Facts {
  int rank = 0, local_rank = 0, pid = 0;
  std::string host;             // name
  std::string identity;         // equal for ranks that are to share memory
  uint64_t place = 0;           // equal for processes of one kernel and one network namespace
  bool whole_host = false;

  std::string muster, kernel, ucx, ibverbs, nvidia;  // versions; empty: not there

  int64_t allowed_cpus = kNoLimit, host_cpus = kNoLimit;
  std::vector<int> cpus;        // those allowed, by the system's numbers
  double cpu_quota = 0;         // cores; 0: none
  int64_t memory_bytes = kNoLimit;
  GroupLimit group_memory, group_processes;
  int64_t open_files = kNoLimit, open_files_hard = kNoLimit, processes = kNoLimit, locked_bytes = kNoLimit;
  int64_t shm_bytes = kNoLimit;
  std::string shm_problem;      // why /dev/shm can't be used
  std::string memfd_problem;    // why shared memory can't be made
  int64_t local_ports = kNoLimit;   // TCP ports that the kernel gives out
  int64_t listen_queue = kNoLimit;  // net.core.somaxconn
  std::string port_range;       // MUSTER_PORT_RANGE

  std::vector<InterfaceFacts> interfaces;
  std::string interface, address;   // that ranks meet over; empty: a UNIX socket
  std::string no_address;           // why there is none
  std::string listener;             // where this rank can be reached, see meeting.cpp
  std::vector<RdmaPortFacts> rdma;
  std::vector<NetworkFacts> networks;   // to ranks of other hosts that are allowed, best first
  std::string network_wish;             // NCCL_NET
  std::string network_problem;          // why there are none

  std::vector<std::string> agreement;  // options that must be equal on all ranks
  std::vector<std::string> warnings;   // about what is set
  std::string options_problem;

  std::vector<topology::Finding> findings;  // of the machine: topology/, whole_host only
};

// What files of the system say; `root` stands for "/" (tests, captured systems).
GroupLimit group_memory_limit(const topology::SystemFiles& system);
GroupLimit group_process_limit(const topology::SystemFiles& system);
std::vector<RdmaPortFacts> rdma_ports(const topology::SystemFiles& system);

struct LookOptions {
  std::string root;        // empty: this machine; else only what files below it say
  bool whole_host = true;
  int rank = 0, local_rank = 0;
};
// Doesn't throw for anything that the system says or doesn't.
Facts look(const LookOptions& options);

// For sending, and for `--json`. from_text throws invalid_argument for what isn't one; members that it doesn't know or
// miss are fine, so that ranks of different versions can talk.
std::string to_text(const Facts& f);
Facts facts_from_text(const std::string& text);

}  // namespace muster::doctor
