// What follows from facts. Pure functions, so that each finding has a test.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "facts.h"
#include "topology/finding.h"

namespace muster::doctor {

using topology::Finding;
using topology::Severity;

// How one host's rank reached another host's: a connection from the first to the second, both of which proved that they
// know the job's key, and a message longer than any packet there and back.
struct Reach {
  int from = 0, to = 0;      // ranks
  double round_trip_us = 0;  // of a short message, the shortest of a few
  std::string problem;       // why not; empty: reached
  bool connected = false;    // and then the long message was lost
};

struct Job {
  int size = 1;
  std::string launcher;       // empty: none
  std::vector<Facts> ranks;   // of those that came, ascending
  std::vector<int> silent;    // that connected to rank 0, but nothing longer than a packet came from them
  std::vector<Reach> reaches;
  std::string meeting_problem;  // why the ranks couldn't be asked
};

// Ranks of one identity, in the order of their lowest ranks.
struct JobHost {
  std::string name;
  std::vector<const Facts*> ranks;
  const Facts& first() const { return *ranks[0]; }
};
std::vector<JobHost> hosts_of(const Job& job);

// What would join ranks of different hosts, and why that.
struct NetworkChoice {
  std::string name;                       // empty: nothing would
  std::vector<NetworkFacts> passed_over;  // that come before it, and why not; all where nothing would
  std::vector<std::string> behind;        // that would do, too
  std::string problem;                    // why nothing would
};
NetworkChoice choose_network(const Job& job);

// A finding, and who has it.
struct Located {
  Finding finding;
  std::vector<int> ranks;  // empty: the job as a whole
};

std::vector<Finding> examine_host(const Facts& f);  // of facts that a host has once
std::vector<Finding> examine_rank(const Facts& f);  // of a process
std::vector<Located> examine_job(const Job& job);   // of ranks and hosts together

// All of them, those that are alike put together, the gravest first.
std::vector<Located> diagnose(const Job& job);

// "4 GiB", "64 KiB"
std::string bytes_text(int64_t bytes);

}  // namespace muster::doctor
