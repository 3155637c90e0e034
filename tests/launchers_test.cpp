// Real launchers start ranks with nothing extra to set: Open MPI, MPICH and Slurm where they are installed,
// torchrun's variables as torchrun sets them; on one host, and across hosts.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "bootstrap_support.h"
#include "support/hosts.h"
#include "support/shell.h"

namespace muster {
namespace {

using namespace test;  // NOLINT
using testing::AllOf;
using testing::HasSubstr;

bool installed(const std::string& program) {
  return output_of("command -v " + program + " 2>/dev/null").status == 0;
}

std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

// As a user's shell would: what this process was started with says nothing.
const std::string kUser = "unset OMPI_COMM_WORLD_RANK PMI_RANK SLURM_PROCID RANK WORLD_SIZE; ";
const std::string kOpenMpi = "mpirun.openmpi --allow-run-as-root --oversubscribe ";
const std::string kMpich = "mpiexec.hydra ";

Output run(const std::string& command) { return output_of("exec 2>&1; " + kUser + command); }

// The ranks of the jobs that start this program; it stands for one that doesn't use MPI.
TEST(Job, DISABLED_Rank) {
  const Options options = Options::from_environment();
  for (int round = 0; round < 2; ++round) {
    const Rendezvous r = rendezvous_from_environment(options, in_seconds(30));
    const auto b = Bootstrap::connect(r.id, r.size, r.rank, options, in_seconds(30));
    b->barrier(in_seconds(30));
    std::set<std::string> hosts;
    for (const auto& p : b->peers()) hosts.insert(p.host);
    if (r.rank == 0)
      printf("round %d: %d ranks of %s on %zu hosts\n", round, r.size, r.launcher.c_str(), hosts.size());
    b->close();
  }
}

std::string rank_program() {
  return this_program() + " --gtest_also_run_disabled_tests --gtest_filter=Job.DISABLED_Rank";
}

void expect_job(const Output& o, const std::string& ranks) {
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("round 0: " + ranks), HasSubstr("round 1: " + ranks)));
}

#ifdef PERF_FOLDER
// `host`: a host on which one of the two ranks is.
void expect_bench_to_run(const std::string& launcher, const std::string& host = "") {
  const Output o = run(launcher + PERF_FOLDER "/all_reduce_perf -b 1K -e 1K -n 2 -w 1");
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("#  Rank  0 "), HasSubstr("#  Rank  1 "), HasSubstr(host),
                            HasSubstr("Out of bounds values : 0 OK")));
}
#else
void expect_bench_to_run(const std::string&, const std::string& = "") {}
#endif

void expect_example_to_run(const std::string& launcher, int ranks) {
  const Output o = run(launcher + EXAMPLE_LAUNCHED);
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr(std::to_string(ranks) + " ranks have the sum"));
}

// A folder that goes with the scope.
class Folder {
 public:
  Folder() {
    EXPECT_TRUE(mkdtemp(path_.data()));
    chmod(path_.c_str(), 0755);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_ = "/tmp/muster-launchers-XXXXXX";
};

// Stands for ssh: runs what it is asked to on the host it is asked for.
void write_agent(const std::string& path, const Hosts& hosts) {
  std::ofstream script(path);
  script << "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1; shift\ncase $host in\n";
  for (int h = 0; h < hosts.size(); ++h)
    script << hosts.name(h) << ") exec " << hosts.inside(h) << " sh -c \"$*\" ;;\n";
  script << "esac\necho \"no host $host\" >&2; exit 1\n";
  script.close();
  chmod(path.c_str(), 0755);
}

TEST(OpenMpi, OnOneHost) {
  if (!installed("mpirun.openmpi")) GTEST_SKIP() << "no mpirun.openmpi (openmpi-bin)";
  expect_bench_to_run(kOpenMpi + "-n 2 ");
  expect_example_to_run(kOpenMpi + "-n 3 ", 3);
  expect_job(run(kOpenMpi + "-n 3 " + rank_program()), "3 ranks of Open MPI on 1 hosts");
}

TEST(OpenMpi, ProgramsThatUseMpiThemselves) {
#ifdef MPI_RANKS_OPENMPI
  if (!installed("mpirun.openmpi")) GTEST_SKIP() << "no mpirun.openmpi (openmpi-bin)";
  for (const char* first : {"muster", "mpi"}) {
    const Output o = run(kOpenMpi + "-n 3 " MPI_RANKS_OPENMPI " " + first);
    EXPECT_EQ(o.status, 0) << o.text;
    EXPECT_THAT(o.text, HasSubstr("3 ranks: sums 3 and 3"));
  }
#else
  GTEST_SKIP() << "built without Open MPI's mpicxx (libopenmpi-dev)";
#endif
}

TEST(OpenMpi, AcrossHosts) {
  if (!installed("mpirun.openmpi")) GTEST_SKIP() << "no mpirun.openmpi (openmpi-bin)";
  NEED_HOSTS();
  const Hosts hosts({.hosts = 3, .strays = true});
  const Folder folder;
  write_agent(folder / "agent", hosts);
  const std::string mpirun = hosts.inside(0) + kOpenMpi + "--mca plm_rsh_agent " + (folder / "agent") +
                             " --mca oob_tcp_if_include 10.77.0.0/24 -H ";
  expect_job(run(mpirun + "host0:1,host1:2 -n 3 " + rank_program()), "3 ranks of Open MPI on 2 hosts");
  // None where mpirun is.
  expect_job(run(mpirun + "host2:1,host1:1 -n 2 " + rank_program()), "2 ranks of Open MPI on 2 hosts");
  expect_bench_to_run(mpirun + "host0:1,host1:1 -n 2 ", "host1");
  expect_example_to_run(mpirun + "host0:1,host1:1 -n 2 ", 2);
}

TEST(Mpich, OnOneHost) {
  if (!installed("mpiexec.hydra")) GTEST_SKIP() << "no mpiexec.hydra (mpich)";
  expect_bench_to_run(kMpich + "-n 2 ");
  expect_example_to_run(kMpich + "-n 3 ", 3);
  expect_job(run(kMpich + "-n 3 " + rank_program()), "3 ranks of MPICH on 1 hosts");
}

TEST(Mpich, ProgramsThatUseMpiThemselves) {
#ifdef MPI_RANKS_MPICH
  if (!installed("mpiexec.hydra")) GTEST_SKIP() << "no mpiexec.hydra (mpich)";
  for (const char* first : {"muster", "mpi"}) {
    const Output o = run(kMpich + "-n 3 " MPI_RANKS_MPICH " " + first);
    EXPECT_EQ(o.status, 0) << o.text;
    EXPECT_THAT(o.text, HasSubstr("3 ranks: sums 3 and 3"));
  }
#else
  GTEST_SKIP() << "built without MPICH's mpicxx (libmpich-dev)";
#endif
}

TEST(Mpich, AcrossHosts) {
  if (!installed("mpiexec.hydra")) GTEST_SKIP() << "no mpiexec.hydra (mpich)";
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2, .strays = true});
  const Folder folder;
  write_agent(folder / "agent", hosts);
  const std::string mpiexec =
      hosts.inside(0) + kMpich + "-launcher ssh -launcher-exec " + (folder / "agent") + " -hosts ";
  expect_job(run(mpiexec + "host0:1,host1:2 -n 3 " + rank_program()), "3 ranks of MPICH on 2 hosts");
  expect_bench_to_run(mpiexec + "host0:1,host1:1 -n 2 ", "host1");
  expect_example_to_run(mpiexec + "host0:1,host1:1 -n 2 ", 2);
}

TEST(Torchrun, SetsTheseVariables) {
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2, .ipv4 = false, .ipv6 = true, .strays = true});
  std::string command;
  for (int rank = 0; rank < 4; ++rank)
    command += fmt::format(
        "RANK={0} WORLD_SIZE=4 LOCAL_RANK={1} LOCAL_WORLD_SIZE=2 GROUP_RANK={2} ROLE_RANK={0} "
        "MASTER_ADDR=host0 MASTER_PORT=29500 "
        "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 {3} {4} & ",
        rank, rank % 2, rank / 2, hosts.inside(rank / 2), rank_program());
  expect_job(run(command + "wait"), "4 ranks of torchrun on 2 hosts");
}

// A process that ends with the scope.
class Daemon {
 public:
  explicit Daemon(const std::string& command) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
    _exit(127);
  }
  ~Daemon() {
    kill(pid_, SIGTERM);
    for (int i = 0; i < 500 && waitpid(pid_, nullptr, WNOHANG) == 0; ++i) {
      if (i == 300) kill(pid_, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

 private:
  pid_t pid_;
};

// A cluster of Slurm's, one node per host; the files of all are in one folder.
class Slurm {
 public:
  explicit Slurm(const Hosts& hosts) : hosts_(hosts) {
    for (const char* f : {"state", "munge"}) std::filesystem::create_directory(folder_ / f);
    chmod((folder_ / "munge").c_str(), 0755);
    std::ofstream(folder_ / "munge/key") << std::string(128, 'k');
    chmod((folder_ / "munge/key").c_str(), 0400);
    std::ofstream conf(folder_ / "slurm.conf");
    conf << "ClusterName=test\nSlurmctldHost=host0\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/"
            "munge\nAuthInfo=socket="
         << folder_ / "munge/socket"
         << "\nStateSaveLocation=" << folder_ / "state"
         << "\nSlurmdSpoolDir=" << folder_ / "spool-%n"
         << "\nSlurmctldPidFile=" << folder_ / "slurmctld.pid"
         << "\nSlurmdPidFile=" << folder_ / "slurmd-%n.pid"
         << "\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/"
            "cons_tres\nSelectTypeParameters=CR_CPU\n"
            "MpiDefault=none\nSwitchType=switch/none\nJobCompType=jobcomp/"
            "none\nReturnToService=2\nSlurmdParameters=config_overrides\nSlurmctldTimeout=300\n"
            "SlurmdTimeout=300\nMessageTimeout=60\n";
    for (int h = 0; h < hosts.size(); ++h) conf << "NodeName=" << hosts.name(h) << " CPUs=8 State=UNKNOWN\n";
    conf << "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
    conf.close();
    setenv("SLURM_CONF", (folder_ / "slurm.conf").c_str(), 1);
    const auto start = [&](int host, const std::string& program, const std::string& log) {
      daemons_.push_back(
          std::make_unique<Daemon>(hosts.inside(host) + program + " >>" + (folder_ / log) + " 2>&1"));
    };
    start(0,
          "munged --foreground --force --socket=" + (folder_ / "munge/socket") +
              " --key-file=" + (folder_ / "munge/key") + " --pid-file=" + (folder_ / "munge/pid") +
              " --seed-file=" + (folder_ / "munge/seed") + " --log-file=" + (folder_ / "munge/log"),
          "munged.out");
    eventually([&] { return std::filesystem::exists(folder_ / "munge/socket"); });
    start(0, "slurmctld -D", "slurmctld.out");
    for (int h = 0; h < hosts.size(); ++h) start(h, "slurmd -D -N " + hosts.name(h), "slurmd.out");
    up_ = eventually([&] {
      return run(hosts.inside(0) + "sinfo -h -t idle -o %D").text == std::to_string(hosts.size()) + "\n";
    });
  }
  ~Slurm() {
    while (!daemons_.empty()) daemons_.pop_back();  // the first, munged, last
    unsetenv("SLURM_CONF");
  }
  // Empty when all nodes are there, or what the daemons said.
  std::string trouble() const {
    return up_ ? ""
               : output_of("tail -n 30 " + (folder_ / "*.out") + " " + (folder_ / "munge/log") + " 2>&1")
                     .text;
  }
  std::string srun() const { return hosts_.inside(0) + "srun -D /tmp "; }

 private:
  const Hosts& hosts_;
  Folder folder_;
  std::vector<std::unique_ptr<Daemon>> daemons_;
  bool up_ = false;
};

TEST(Srun, OnOneHostAndAcrossHosts) {
  for (const char* program : {"slurmctld", "slurmd", "srun", "munged"})
    if (!installed(program)) GTEST_SKIP() << "no " << program << " (slurmctld, slurmd, slurm-client, munge)";
  NEED_HOSTS();
  const Hosts hosts({.hosts = 2});
  const Slurm slurm(hosts);
  ASSERT_EQ(slurm.trouble(), "");
  expect_bench_to_run(slurm.srun() + "-N 1 -n 2 ");
  expect_job(run(slurm.srun() + "-N 1 -n 3 " + rank_program()), "3 ranks of Slurm on 1 hosts");
  expect_job(run(slurm.srun() + "-N 2 -n 3 " + rank_program()), "3 ranks of Slurm on 2 hosts");
  expect_bench_to_run(slurm.srun() + "-N 2 -n 2 ", "host1");
  expect_example_to_run(slurm.srun() + "-N 2 -n 3 ", 3);
  expect_job(run(slurm.srun() + "-w host1 -n 2 --mpi=pmi2 " + rank_program()), "2 ranks of Slurm on 1 hosts");
  expect_job(run(slurm.srun() + "-N 2 -n 4 --mpi=pmi2 " + rank_program()), "4 ranks of Slurm on 2 hosts");
}

}  // namespace
}  // namespace muster
