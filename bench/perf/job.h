// Who takes part: the processes that a launcher started, the threads of each, and the ranks of each thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/muster.h"
#include "perf/args.h"
#include "perf/gpus.h"

namespace muster::perf {

// One process, as every process knows it. Sent between processes as bytes.
struct ProcessInfo {
  int pid = 0;
  int color = 0;      // NCCL_TESTS_SPLIT: processes of one colour make a job of their own
  size_t memory = 0;  // bytes that one rank may use for its buffers
  int gpus = 0;       // that the process finds; 0 where its ranks are on host memory
  char host[64] = {};
};

// What one rank runs on, likewise.
struct DeviceInfo {
  int device = 0;  // of its host; on host memory the rank's place there
  char address[16] = "host";
  char model[96] = {};
};

struct Job {
  // All processes that were started together, and those of this one's colour: by rank, and this one's place
  // among them.
  std::vector<ProcessInfo> everyone, processes;
  std::vector<DeviceInfo> devices;  // of everyone's ranks, rank by rank
  std::vector<int> devices_here;    // of this process's ranks
  int process = 0;
  bool prints = false;  // this process prints the table: the first of all
  int nranks = 0;

  // Communicators of this process's ranks, thread by thread. Empty until made: by join, or with -p by the
  // threads.
  std::vector<Communicator> ranks;
  std::vector<std::unique_ptr<GpuRank>>
      gpu_ranks;  // the same of GPUs, made by the threads; empty on host memory
  UniqueId id{};
  Communicator world;  // of everyone, a rank each; only where there are several jobs

  int first_rank() const { return process * (nranks / static_cast<int>(processes.size())); }
};

// Meets the other processes. gpus: null on host memory. Throws muster::Error.
Job join_job(const Args& args, const Gpus* gpus);

// The sum over all jobs of a number that the processes of each job agree on. Every process calls it.
size_t sum_over_jobs(Job& job, size_t of_this_job);

// The communicators of the ranks [begin, end) of this process, made in one group.
std::vector<Communicator> make_communicators(const Job& job, int begin, int end);

}  // namespace muster::perf
