// How long it takes to make a communicator of many ranks on this machine, and what a rank then costs: ranks are
// threads of processes. Each line is one job of processes that are started for it.
//
//   init_times [PROCESSESxTHREADS[xROOTS]]...        (default: 4x4 16x4 16x16 16x16x4)
//
// time: from a common start until the last rank has its communicator. all_reduce: the first, of one float, and
// the median of 20. memory: proportional set size that init and the calls added. NCCL_DEBUG=INFO shows where
// the time of each rank goes.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "muster/muster.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRanks = 4096;

struct Job {
  int processes = 1, threads = 1, roots = 1;
  int ranks() const { return processes * threads; }
};

// What the processes of a job share.
struct Board {
  std::atomic<int> ids{0}, ready{0}, made{0}, reduced{0}, measured{0}, failed{0};
  muster::UniqueId id[kMostRanks];
  std::atomic<long> memory{0}, sockets{0};          // of all: KiB; sockets
  double init[kMostRanks], first[kMostRanks], median[kMostRanks];  // s
};

long memory_of_process() {
  std::ifstream in("/proc/self/smaps_rollup");
  for (std::string word; in >> word;)
    if (word == "Pss:") {
      long kib = 0;
      in >> kib;
      return kib;
    }
  return 0;
}

long sockets_of_process() {
  long n = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    n += std::filesystem::read_symlink(entry.path(), none).string().starts_with("socket:");
  return n;
}

void wait_for(const std::atomic<int>& value, int goal, const Board& board) {
  while (value < goal && !board.failed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

void run_rank(const Job& job, Board& board, int rank, std::vector<muster::Communicator>& keep, int thread) {
  wait_for(board.ready, job.processes, board);
  const auto begin = Clock::now();
  auto comm = muster::Communicator::init(job.ranks(), rank, std::span(board.id, static_cast<size_t>(job.roots)));
  board.init[rank] = seconds_since(begin);
  ++board.made;
  wait_for(board.made, job.ranks(), board);
  std::vector<double> times;
  for (int i = 0; i < 21; ++i) {
    float value = 1;
    const auto before = Clock::now();
    comm.all_reduce(&value, &value, 1, muster::DataType::float32, muster::RedOp::sum);
    times.push_back(seconds_since(before));
    if (value != static_cast<float>(job.ranks())) throw std::runtime_error("an all_reduce with a wrong result");
  }
  board.first[rank] = times[0];
  std::nth_element(times.begin() + 1, times.begin() + 11, times.end());
  board.median[rank] = times[11];
  ++board.reduced;
  keep[static_cast<size_t>(thread)] = std::move(comm);
}

int run_process(const Job& job, Board& board, int process) {
  try {
    if (process < job.roots) {  // roots are anywhere; here one in each of the first processes
      board.id[process] = muster::make_unique_id();
      ++board.ids;
    }
    wait_for(board.ids, job.roots, board);
    const long memory = memory_of_process(), sockets = sockets_of_process();
    std::vector<muster::Communicator> all(static_cast<size_t>(job.threads));
    std::vector<std::thread> threads;
    for (int t = 0; t < job.threads; ++t)
      threads.emplace_back([&, t] {
        try {
          run_rank(job, board, process * job.threads + t, all, t);
        } catch (const std::exception& e) {
          if (board.failed++ == 0) fmt::print(stderr, "rank {}: {}\n", process * job.threads + t, e.what());
        }
      });
    ++board.ready;
    for (auto& t : threads) t.join();
    wait_for(board.reduced, job.ranks(), board);
    board.memory += memory_of_process() - memory;
    board.sockets += sockets_of_process() - sockets;
    ++board.measured;
    wait_for(board.measured, job.processes, board);
    return board.failed ? 1 : 0;
  } catch (const std::exception& e) {
    if (board.failed++ == 0) fmt::print(stderr, "process {}: {}\n", process, e.what());
    return 1;
  }
}

bool run(const Job& job) {
  void* p = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  auto& board = *new (p) Board;
  for (int i = 0; i < job.processes; ++i)
    if (fork() == 0) _exit(run_process(job, board, i));
  bool good = true;
  for (int i = 0; i < job.processes; ++i) {
    int status = -1;
    wait(&status);
    good = good && status == 0;
  }
  const auto most = [&](const double* values) { return *std::max_element(values, values + job.ranks()); };
  if (good)
    fmt::print("{:>5} {:>9} x {:<7} {:>5} {:>9.3f} {:>10.2f} {:>9.2f} {:>12.0f} {:>8.2f}\n", job.ranks(), job.processes, job.threads,
               job.roots, most(board.init), most(board.first) * 1e3, most(board.median) * 1e3,
               static_cast<double>(board.memory.load()) / job.ranks(), static_cast<double>(board.sockets.load()) / job.ranks());
  std::fflush(stdout);
  munmap(p, sizeof(Board));
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Job> jobs;
  for (int i = 1; i < argc; ++i) {
    Job j;
    if (std::sscanf(argv[i], "%dx%dx%d", &j.processes, &j.threads, &j.roots) < 2 || j.processes < 1 || j.threads < 1 ||
        j.roots < 1 || j.roots > j.processes || j.ranks() > kMostRanks) {
      fmt::print(stderr, "init_times: '{}' isn't PROCESSESxTHREADS[xROOTS], with up to {} ranks and a root per process\n", argv[i],
                 kMostRanks);
      return 2;
    }
    jobs.push_back(j);
  }
  if (jobs.empty()) jobs = {{4, 4, 1}, {16, 4, 1}, {16, 16, 1}, {16, 16, 4}};
  fmt::print("{:>5} {:>9} x {:<7} {:>5} {:>9} {:>10} {:>9} {:>12} {:>8}\n", "ranks", "processes", "threads", "roots", "time s",
             "first ms", "median ms", "KiB per rank", "sockets");
  bool good = true;
  for (const Job& j : jobs) good = run(j) && good;
  return good ? 0 : 1;
}
