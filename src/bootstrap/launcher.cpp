#include "bootstrap/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/most_ranks.h"
#include "base/process.h"
#include "bootstrap/launcher_hosts.h"

namespace muster {
namespace {


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

// Hydra puts no job's name into the environment: its process on this host, an ancestor of all ranks, was started with the
// address of mpiexec, which names the job on all hosts and says where one of them is.
struct Hydra {
  std::string identity;
  std::string control;  // mpiexec's HOST:PORT; empty: not found
};
Hydra find_hydra() {
  int pid = getppid();
  const int parent = pid;
  for (int depth = 0; depth < 32 && pid > 1; ++depth) {
    const ProcessStatus p = read_process(pid);
    if (p.name.starts_with("hydra") || p.name.starts_with("mpiexec")) {
      std::ifstream in(fmt::format("/proc/{}/cmdline", pid));
      for (std::string word; std::getline(in, word, '\0');)
        if (word == "--control-port" && std::getline(in, word, '\0')) return {word, word};
      return {fmt::format("{}@{}", pid, p.start), ""};
    }
    pid = p.parent;
  }
  return {fmt::format("{}@{}", parent, read_process(parent).start), ""};
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
  return find_hydra().identity;
}

bool spans_hosts(const Dialect& d, const Variables& v, int size) {
  if (&d == &kSlurm) {
    for (const char* name : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"})
      if (v.has(name)) return v.number(name, 1, kMostRanks) > 1;
    return false;
  }
  return v.has(d.local_size) && v.number(d.local_size, 1, kMostRanks) != size;
}

// Where a launcher's own words say that rank 0 may be. It is on the first host nearly always.
constexpr size_t kMostHosts = 4;
std::vector<std::string> hosts_of(const Dialect& d, const Variables& v) {
  std::vector<std::string> hosts;
  const auto add = [&](const std::vector<std::string>& more) {
    for (const std::string& h : more)
      if (std::find(hosts.begin(), hosts.end(), h) == hosts.end()) hosts.push_back(h);
  };
  if (&d == &kOpenMpi) {
    add(contact_addresses(v.get("OMPI_MCA_orte_hnp_uri")));
    add(expand_hosts(v.get("OMPI_MCA_orte_node_regex"), kMostHosts));
  } else if (&d == &kSlurm) {
    for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"})
      if (hosts.empty()) add(expand_hosts(v.get(name), 1));
    if (v.has("SLURM_LAUNCH_NODE_IPADDR")) add({v.get("SLURM_LAUNCH_NODE_IPADDR")});
  } else if (&d == &kMpich) {
    const std::string control = find_hydra().control;
    if (const size_t colon = control.rfind(':'); colon != control.npos && colon > 0) add({control.substr(0, colon)});
  }
  return hosts;
}

void find_meeting(Launch& l, const Dialect& d, const Variables& v, const std::string& job) {
  l.meeting_set = v.has("MASTER_ADDR") || v.has("MASTER_PORT");
  if (l.meeting_set) {
    for (const char* name : {"MASTER_ADDR", "MASTER_PORT"})
      if (!v.has(name))
        fail(Result::invalid_usage,
             "{} is not set, but MASTER_ADDR and MASTER_PORT go together. Set both to a host and port of "
             "rank 0",
             name);
    l.meeting = {{v.get("MASTER_ADDR"), static_cast<uint16_t>(v.number("MASTER_PORT", 1, 65535))}};
    return;
  }
  if (l.size == 1) return;
  if (&d == &kTorchrun)
    fail(Result::invalid_usage,
         "RANK and WORLD_SIZE are set, but not MASTER_ADDR and MASTER_PORT. Set them to rank 0's host and a "
         "free port there");
  if (!spans_hosts(d, v, l.size)) return;
  unsigned sum = 0;
  for (const char c : job) sum = sum * 31 + static_cast<unsigned char>(c);
  for (const std::string& host : hosts_of(d, v)) l.meeting.push_back({host, static_cast<uint16_t>(20000 + sum % 10000)});
  if (l.meeting.empty())
    fail(Result::invalid_usage,
         "{} started ranks on several hosts, but doesn't say where they can meet. Set MASTER_ADDR to rank 0's "
         "host and MASTER_PORT to a free port there",
         d.launcher);
}

Launch read(const Dialect& d, const Variables& v) {
  Launch l;
  l.launcher = &d == &kTorchrun && !v.has("TORCHELASTIC_RUN_ID") && v.has("MUSTER_JOB_KEY") ? "muster run"
                                                                                            : d.launcher;
  l.size = v.number(d.size, 1, kMostRanks);
  l.rank = v.number(d.rank, 0, kMostRanks);
  if (l.rank >= l.size)
    fail(Result::invalid_usage, "{}={} does not fit {}={}: ranks are 0..{}", d.rank, l.rank, d.size, l.size,
         l.size - 1);
  if (v.has(d.local_size)) {
    const int local_size = v.number(d.local_size, 1, kMostRanks);
    if (local_size > l.size)
      fail(Result::invalid_usage, "{}={} does not fit {}={}", d.local_size, local_size, d.size, l.size);
    if (v.has(d.local_rank) && v.number(d.local_rank, 0, kMostRanks) >= local_size)
      fail(Result::invalid_usage, "{}={} does not fit {}={}: local ranks are 0..{}", d.local_rank,
           v.get(d.local_rank), d.local_size, local_size, local_size - 1);
  }
  if (v.has(d.local_rank)) l.local_rank = v.number(d.local_rank, 0, l.size - 1);
  const std::string job = job_identity(d, v);
  find_meeting(l, d, v, job);
  l.identity = fmt::format("{} job {} size {}", d.launcher, job, l.size);
  // What a launcher says of its hosts may differ between them.
  if (l.meeting_set) l.identity += fmt::format(" at {}:{}", l.meeting[0].host, l.meeting[0].port);
  if (l.meeting.empty()) l.identity += fmt::format(" user {}", getuid());
  return l;
}

// Slurm's srun speaks MPICH's protocol, too, and sets its variables, but not where the other ranks are.
bool is_srun_speaking_pmi(const Variables& v) {
  return v.has("SLURM_PROCID") && v.has("SLURM_NTASKS") && !v.has(kMpich.local_size) &&
         v.get("SLURM_PROCID") == v.get(kMpich.rank);
}

}  // namespace

bool is_launched(const Environment& environment) {
  const Variables v(environment);
  return std::any_of(std::begin(kDialects), std::end(kDialects), [&](const Dialect* d) { return v.has(d->rank) || v.has(d->size); });
}

Launch read_launch(const Environment& environment) {
  const Variables v(environment);
  for (const Dialect* d : kDialects)
    if (v.has(d->rank) && v.has(d->size) && !(d == &kMpich && is_srun_speaking_pmi(v))) return read(*d, v);
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
