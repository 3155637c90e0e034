#include "perf/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include "perf/split.h"

namespace muster::perf {
namespace {

bool launched() {
  // Each launcher's variable for the rank: others are also set where nothing was launched (e.g. by salloc).
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* value = std::getenv(name); value && *value) return true;
  return false;
}

std::string first_match(const char* path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key))
      return line.substr(std::min(line.size(), line.find_first_not_of(" \t:", key.size())));
  return {};
}

// Bytes that may still be used on this host, by the kernel's and the container's account.
size_t free_memory() {
  size_t bytes =
      static_cast<size_t>(std::strtoull(first_match("/proc/meminfo", "MemAvailable").c_str(), nullptr, 10))
      << 10;
  size_t limit = 0, used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit &&
      std::ifstream("/sys/fs/cgroup/memory.current") >> used)
    bytes = std::min(bytes, limit > used ? limit - used : 0);
  return bytes;
}

template <class T>
std::vector<T> all_gather(Communicator* world, const T& mine) {
  std::vector<T> all(world ? static_cast<size_t>(world->size()) : 1);
  if (world)
    world->all_gather(&mine, all.data(), sizeof(T), DataType::uint8);
  else
    all[0] = mine;
  return all;
}

}  // namespace

Job join_job(const Args& args) {
  Communicator world;
  if (launched()) world = Communicator::from_environment({.name = "world"});
  const int world_rank = world ? world.rank() : 0;
  const int ranks_here = args.threads * args.ranks_per_thread;

  ProcessInfo mine;
  mine.pid = getpid();
  mine.color = split_color(world_rank, std::getenv("NCCL_TESTS_SPLIT"), std::getenv("NCCL_TESTS_SPLIT_MASK"));
  mine.memory = free_memory();
  gethostname(mine.host, sizeof mine.host - 1);
  first_match("/proc/cpuinfo", "model name").copy(mine.processor, sizeof mine.processor - 1);
  const std::vector<ProcessInfo> all = all_gather(world ? &world : nullptr, mine);

  Job job;
  job.prints = world_rank == 0;
  job.everyone = all;
  std::map<std::string, size_t> processes_of_host;
  for (const ProcessInfo& p : all) ++processes_of_host[p.host];
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].color != mine.color) continue;
    if (static_cast<int>(i) == world_rank) job.process = static_cast<int>(job.processes.size());
    job.processes.push_back(all[i]);
    ProcessInfo& p = job.processes.back();
    p.memory /= processes_of_host[p.host] * static_cast<size_t>(ranks_here);
  }
  job.nranks = static_cast<int>(job.processes.size()) * ranks_here;

  Communicator processes = std::move(world);  // of this job, a rank each
  if (job.processes.size() < all.size()) {
    job.world = std::move(processes);
    processes = job.world.split(mine.color, world_rank);
  }
  if (processes && ranks_here == 1) {  // they have met already
    job.ranks.push_back(std::move(processes));
    return job;
  }
  if (job.process == 0) job.id = make_unique_id();
  if (processes) processes.broadcast(&job.id, &job.id, sizeof job.id, DataType::uint8, 0);
  if (args.parallel_init)
    job.ranks.resize(static_cast<size_t>(ranks_here));
  else
    job.ranks = make_communicators(job, 0, ranks_here);
  if (processes) processes.destroy();
  return job;
}

size_t sum_over_jobs(Job& job, size_t of_this_job) {
  if (!job.world) return of_this_job;
  size_t sum = 0;
  for (const size_t n : all_gather(&job.world, job.process == 0 ? of_this_job : 0)) sum += n;
  return sum;
}

std::vector<Communicator> make_communicators(const Job& job, int begin, int end) {
  std::vector<Communicator> made;
  group_start();
  for (int i = begin; i < end; ++i)
    made.push_back(Communicator::init(job.nranks, job.first_rank() + i, job.id));
  group_end();
  return made;
}

}  // namespace muster::perf
