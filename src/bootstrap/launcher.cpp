#include "bootstrap/launcher.h"

#include <unistd.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/process.h"

namespace muster {
namespace {

constexpr int kMaxRanks = 1 << 20;

// A launcher's names for what all of them say.
struct Dialect {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;  // ranks on this host; differs from size when the job spans hosts
};
constexpr Dialect kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Dialect kOpenMpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Dialect kMpich = {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Dialect kSlurm = {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr};
constexpr const Dialect* kDialects[] = {&kTorchrun, &kOpenMpi, &kMpich, &kSlurm};

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}
  std::string get(const char* name) const {
    const char* v = name ? environment_(name) : nullptr;
    return v ? v : "";
  }
  bool has(const char* name) const { return !get(name).empty(); }
  int number(const char* name, int low, int high) const { return parse_number(name, get(name), low, high); }

 private:
  const Environment& environment_;
};

// Hydra puts no job's name into the environment: its process on this host, an ancestor of all ranks, names
// the job.
std::string hydra_identity() {
  int pid = getppid();
  const int parent = pid;
  for (int depth = 0; depth < 32 && pid > 1; ++depth) {
    const ProcessStatus p = read_process(pid);
    if (p.name.starts_with("hydra") || p.name.starts_with("mpiexec"))
      return fmt::format("{}@{}", pid, p.start);
    pid = p.parent;
  }
  return fmt::format("{}@{}", parent, read_process(parent).start);
}

std::string job_identity(const Dialect& d, const Variables& v) {
  if (&d == &kTorchrun)
    return fmt::format("{} restart {}", v.get("TORCHELASTIC_RUN_ID"), v.get("TORCHELASTIC_RESTART_COUNT"));
  if (&d == &kOpenMpi) {
    for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
      if (v.has(name)) return v.get(name);
    return fmt::format("{}@{}", getppid(), read_process(getppid()).start);
  }
  if (&d == &kSlurm) return fmt::format("{}.{}", v.get("SLURM_JOB_ID"), v.get("SLURM_STEP_ID"));
  return hydra_identity();
}

bool spans_hosts(const Dialect& d, const Variables& v, int size) {
  if (&d == &kSlurm) {
    for (const char* name : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"})
      if (v.has(name)) return v.number(name, 1, kMaxRanks) > 1;
    return false;
  }
  return v.has(d.local_size) && v.number(d.local_size, 1, kMaxRanks) != size;
}

HostPort meeting_point(const Dialect& d, const Variables& v, int size, const std::string& job) {
  if (v.has("MASTER_ADDR") || v.has("MASTER_PORT")) {
    for (const char* name : {"MASTER_ADDR", "MASTER_PORT"})
      if (!v.has(name))
        fail(Result::invalid_usage,
             "{} is not set, but MASTER_ADDR and MASTER_PORT go together. Set both to a host and port of "
             "rank 0",
             name);
    return {v.get("MASTER_ADDR"), static_cast<uint16_t>(v.number("MASTER_PORT", 1, 65535))};
  }
  if (size == 1) return {};
  if (&d == &kTorchrun)
    fail(Result::invalid_usage,
         "RANK and WORLD_SIZE are set, but not MASTER_ADDR and MASTER_PORT. Set them to rank 0's host and a "
         "free port there");
  if (!spans_hosts(d, v, size)) return {};
  if (&d == &kSlurm && v.has("SLURM_LAUNCH_NODE_IPADDR")) {
    unsigned sum = 0;
    for (const char c : job) sum = sum * 31 + static_cast<unsigned char>(c);
    return {v.get("SLURM_LAUNCH_NODE_IPADDR"), static_cast<uint16_t>(20000 + sum % 10000)};
  }
  fail(Result::invalid_usage,
       "{} started ranks on several hosts, but doesn't say where they can meet. Set MASTER_ADDR to rank 0's "
       "host and MASTER_PORT to a free port there",
       d.launcher);
}

Launch read(const Dialect& d, const Variables& v) {
  Launch l;
  l.launcher = &d == &kTorchrun && !v.has("TORCHELASTIC_RUN_ID") && v.has("MUSTER_JOB_KEY") ? "muster run"
                                                                                            : d.launcher;
  l.size = v.number(d.size, 1, kMaxRanks);
  l.rank = v.number(d.rank, 0, kMaxRanks);
  if (l.rank >= l.size)
    fail(Result::invalid_usage, "{}={} does not fit {}={}: ranks are 0..{}", d.rank, l.rank, d.size, l.size,
         l.size - 1);
  if (v.has(d.local_size)) {
    const int local_size = v.number(d.local_size, 1, kMaxRanks);
    if (local_size > l.size)
      fail(Result::invalid_usage, "{}={} does not fit {}={}", d.local_size, local_size, d.size, l.size);
    if (v.has(d.local_rank) && v.number(d.local_rank, 0, kMaxRanks) >= local_size)
      fail(Result::invalid_usage, "{}={} does not fit {}={}: local ranks are 0..{}", d.local_rank,
           v.get(d.local_rank), d.local_size, local_size, local_size - 1);
  }
  if (v.has(d.local_rank)) l.local_rank = v.number(d.local_rank, 0, l.size - 1);
  const std::string job = job_identity(d, v);
  l.meeting = meeting_point(d, v, l.size, job);
  l.identity = fmt::format("{} job {} size {} at {}:{} user {}", d.launcher, job, l.size, l.meeting.host,
                           l.meeting.port, l.meeting.host.empty() ? static_cast<long>(getuid()) : -1L);
  return l;
}

}  // namespace

Launch read_launch(const Environment& environment) {
  const Variables v(environment);
  for (const Dialect* d : kDialects)
    if (v.has(d->rank) && v.has(d->size)) return read(*d, v);
  for (const Dialect* d : kDialects)
    if (v.has(d->rank) != v.has(d->size))
      fail(Result::invalid_usage, "{}={} is set, but not {}. A launcher sets both",
           v.has(d->rank) ? d->rank : d->size, v.get(v.has(d->rank) ? d->rank : d->size),
           v.has(d->rank) ? d->size : d->rank);
  fail(Result::invalid_usage,
       "no launcher's environment: none of RANK and WORLD_SIZE (muster run, torchrun), OMPI_COMM_WORLD_RANK "
       "and OMPI_COMM_WORLD_SIZE (Open "
       "MPI), PMI_RANK and PMI_SIZE (MPICH), SLURM_PROCID and SLURM_NTASKS (Slurm) is set. Start the program "
       "with one of these, for "
       "example: muster run -n 4 PROGRAM");
}

}  // namespace muster
