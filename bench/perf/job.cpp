#include "perf/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>

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

// `mine` is equally long in all processes.
template <class T>
std::vector<T> all_gather(Communicator* world, const std::vector<T>& mine) {
  if (!world) return mine;
  std::vector<T> all(mine.size() * static_cast<size_t>(world->size()));
  world->all_gather(mine.data(), all.data(), mine.size() * sizeof(T), DataType::uint8);
  return all;
}

void require_same_memory(const std::vector<ProcessInfo>& all) {
  for (const ProcessInfo& p : all)
    if ((p.gpus > 0) != (all[0].gpus > 0))
      throw Error(
          Result::invalid_usage,
          fmt::format(
              "process {} on {} finds {} GPUs, and process {} on {} finds {}: --buffers says which memory "
              "is meant on all of them",
              all[0].pid, all[0].host, all[0].gpus, p.pid, p.host, p.gpus));
}

// NCCL_TESTS_DEVICE: the GPU of every process's first rank.
std::optional<int> first_device() {
  const char* text = std::getenv("NCCL_TESTS_DEVICE");
  if (!text || !*text) return std::nullopt;
  const char* const end = text + std::strlen(text);
  int device = 0;
  const auto [rest, error] = std::from_chars(text, end, device);
  if (error != std::errc() || rest != end || device < 0)
    throw Error(Result::invalid_usage,
                fmt::format("NCCL_TESTS_DEVICE='{}' can't be read: the number of a GPU is wanted", text));
  return device;
}

// Of each of this process's ranks, the `process`-th of all. Ranks of a host take its GPUs in turn.
std::vector<int> choose_devices(const std::vector<ProcessInfo>& all, size_t process, int ranks_here,
                                bool on_gpus) {
  const ProcessInfo& mine = all[process];
  int first = 0;
  for (size_t i = 0; i < process; ++i) first += std::string_view(all[i].host) == mine.host ? ranks_here : 0;
  if (on_gpus) first = first_device().value_or(first);
  std::vector<int> devices;
  for (int i = 0; i < ranks_here; ++i) devices.push_back(on_gpus ? (first + i) % mine.gpus : first + i);
  return devices;
}

std::vector<DeviceInfo> describe(const std::vector<int>& devices, const Gpus* gpus) {
  const std::string processor = gpus ? "" : first_match("/proc/cpuinfo", "model name");
  std::vector<DeviceInfo> all;
  for (const int device : devices) {
    DeviceInfo& d = all.emplace_back();
    d.device = device;
    const GpuName name = gpus ? gpus->name(device) : GpuName{device, "host", processor};
    std::snprintf(d.address, sizeof d.address, "%s", name.address.c_str());
    std::snprintf(d.model, sizeof d.model, "%s", name.model.c_str());
  }
  return all;
}

// Bytes of its GPU that each of this process's ranks may use at least. devices: of everyone's ranks.
size_t free_gpu_memory(const std::vector<ProcessInfo>& all, const std::vector<DeviceInfo>& devices,
                       size_t process, int ranks_here, const Gpus& gpus) {
  const auto per_process = static_cast<size_t>(ranks_here);
  size_t least = SIZE_MAX;
  for (size_t mine = process * per_process; mine < (process + 1) * per_process; ++mine) {
    size_t sharing = 0;
    for (size_t i = 0; i < devices.size(); ++i)
      sharing += std::string_view(all[i / per_process].host) == all[process].host &&
                 std::string_view(devices[i].address) == devices[mine].address;
    least = std::min(least, gpus.free_memory(devices[mine].device) / sharing);
  }
  return least;
}

}  // namespace

Job join_job(const Args& args, const Gpus* gpus) {
  Communicator world;
  if (launched()) world = Communicator::from_environment({.name = "world"});
  const int world_rank = world ? world.rank() : 0;
  const int ranks_here = args.threads * args.ranks_per_thread;

  ProcessInfo mine;
  mine.pid = getpid();
  mine.color = split_color(world_rank, std::getenv("NCCL_TESTS_SPLIT"), std::getenv("NCCL_TESTS_SPLIT_MASK"));
  mine.memory = free_memory();
  mine.gpus = gpus ? gpus->count() : 0;
  gethostname(mine.host, sizeof mine.host - 1);
  Communicator* const others = world ? &world : nullptr;
  std::vector<ProcessInfo> all = all_gather(others, std::vector{mine});
  require_same_memory(all);

  Job job;
  job.devices_here = choose_devices(all, static_cast<size_t>(world_rank), ranks_here, gpus != nullptr);
  job.devices = all_gather(others, describe(job.devices_here, gpus));
  if (gpus) {
    const size_t memory =
        free_gpu_memory(all, job.devices, static_cast<size_t>(world_rank), ranks_here, *gpus);
    const std::vector<size_t> of_all = all_gather(others, std::vector{memory});
    for (size_t i = 0; i < all.size(); ++i) all[i].memory = of_all[i];
    job.gpu_ranks.resize(static_cast<size_t>(ranks_here));
  }
  job.prints = world_rank == 0;
  job.everyone = all;
  std::map<std::string, size_t> processes_of_host;
  for (const ProcessInfo& p : all) ++processes_of_host[p.host];
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].color != mine.color) continue;
    if (static_cast<int>(i) == world_rank) job.process = static_cast<int>(job.processes.size());
    job.processes.push_back(all[i]);
    ProcessInfo& p = job.processes.back();
    if (!gpus) p.memory /= processes_of_host[p.host] * static_cast<size_t>(ranks_here);
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
  for (const size_t n : all_gather(&job.world, std::vector{job.process == 0 ? of_this_job : 0})) sum += n;
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
