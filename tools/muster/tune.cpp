// `muster tune`: measures this machine for the planner, by jobs of this program whose ranks run as any
// other's do.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/host.h"
#include "base/options.h"
#include "base/text.h"
#include "comm/state.h"
#include "comm/tune.h"
#include "comm/tuning_profile.h"
#include "commands.h"
#include "run.h"
#include "say.h"
#include "topology/allowed_cpus.h"

namespace muster::tool {
namespace {

struct TuneCommand {
  std::string output;
  int ranks = 0;
  double seconds = 45;
  bool as_rank = false;
  double constants_seconds = 0, calls_seconds = 0;  // of a rank's own job
};

constexpr double kExperiments = 14;     // about, of the larger list
constexpr double kForConstants = 0.25;  // of the time; the rest is for whole calls

std::string this_program() {
  std::string path(4096, '\0');
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size());
  if (n < 0) fail_errno(errno, "can't tell where this program is");
  path.resize(static_cast<size_t>(n));
  return path;
}

Constants read_so_far(const std::string& file) {
  Constants all = Constants::built_in();
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  all.override_with(Constants::read(text.str(), file), file);
  return all;
}

// The first job writes the file anew, the second adds to what the first found.
void replace_file(const std::string& file, const std::string& text) {
  const std::string fresh = file + ".new";
  write_file(fresh, text);
  if (std::rename(fresh.c_str(), file.c_str()) != 0) fail_errno(errno, "can't write " + file);
}

// This process, and those that it starts, use the first `cores` of what they may.
void stay_on(int cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const std::vector<int> allowed = allowed_cpus();
  for (int i = 0; i < cores; ++i) CPU_SET(static_cast<size_t>(allowed[static_cast<size_t>(i)]), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) fail_errno(errno, "can't choose cores to run on");
}

std::string where(const Communicator& comm) {
  std::string model;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; model.empty() && std::getline(info, line);)
    if (line.starts_with("model name"))
      model = std::string(trim(std::string_view(line).substr(line.find(':') + 1)));
  return fmt::format("{:%F %T} UTC on host {}: {}, {} cores, topology {:016x}",
                     fmt::gmtime(std::time(nullptr)), host_name(),
                     model.empty() ? "processor of unknown model" : model, allowed_cpus().size(),
                     comm.impl()->family->hosts.hash);
}

int run_as_rank(const TuneCommand& o) {
  Communicator comm = Communicator::from_environment();
  Constants tuned = read_so_far(o.output);
  if (o.constants_seconds > 0)
    tuned = tune_host(comm, std::move(tuned),
                      {.per_experiment = std::chrono::duration<double>(o.constants_seconds / kExperiments)});
  tuned = tune_calls(comm, std::move(tuned), std::chrono::duration<double>(o.calls_seconds));
  if (comm.rank() == 0) replace_file(o.output, profile_text(tuned, where(comm)));
  comm.barrier();
  comm.destroy();
  return 0;
}

struct TuneJob {
  int ranks = 0, cores = 0;
  bool constants = false;  // else only calls
};

// Ranks with a core each, twice as many each time; then more ranks than cores, on two cores, so that many
// cores don't make too many ranks. The largest of both measure constants, before others use them.
std::vector<TuneJob> jobs_of(int ranks, int cores) {
  std::vector<TuneJob> jobs = {{ranks, cores, true}};
  for (int n = 2; n < ranks; n *= 2) jobs.push_back({n, cores, false});
  const int few = std::min(cores, 2);
  jobs.push_back({4 * few, few, true});
  for (int n = few + 1; n < 4 * few; ++n) jobs.push_back({n, few, false});
  return jobs;
}

int tune(TuneCommand o) {
  // What a user has set for programs must not steer what is measured.
  for (const char* name :
       {"MUSTER_ALGO", "MUSTER_CHANNELS", "MUSTER_WINDOWS", "MUSTER_REPRODUCIBLE", "NCCL_ALGO",
        "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_SHM_DISABLE"})
    setenv(name, "", 1);
  setenv("MUSTER_TUNING_PROFILE", "", 1);
  if (o.output.empty()) o.output = default_tuning_file(Options::inspect());
  if (o.output.empty())
    fail(Result::invalid_usage,
         "HOME isn't set, so there is no place for the profile: --output FILE says where it goes");
  constexpr int kMostRanks = 16;  // more find the same
  const int cores = static_cast<int>(allowed_cpus().size());
  const int ranks = o.ranks > 0 ? o.ranks : std::min(cores, kMostRanks);
  if (ranks > cores)
    fail(Result::invalid_argument, "--ranks {}: this process may use {} cores, and each rank needs its own",
         ranks, cores);
  replace_file(o.output, "");
  const std::vector<TuneJob> jobs = jobs_of(ranks, cores);
  double all_ranks = 0;  // more of them take longer
  for (const TuneJob& one : jobs) all_ranks += one.ranks;
  for (const TuneJob& one : jobs) {
    if (one.cores < cores) stay_on(one.cores);
    RunOptions job;
    job.ranks = one.ranks;
    job.command = {this_program(),
                   "tune",
                   "--as-rank",
                   "--output",
                   o.output,
                   "--constants-seconds",
                   fmt::format("{}", one.constants ? kForConstants / 2 * o.seconds : 0),
                   "--calls-seconds",
                   fmt::format("{}", (1 - kForConstants) * o.seconds * one.ranks / all_ranks)};
    if (const int status = run_job(job)) {
      std::remove(o.output.c_str());
      return status;
    }
  }
  std::ifstream in(o.output);
  std::stringstream text;
  text << in.rdbuf();
  say(text.str() +
      fmt::format("\nWritten to {}. {}\n", o.output,
                  o.output == default_tuning_file(Options::inspect())
                      ? "New communicators choose by it; without the file all is as before."
                      : fmt::format("MUSTER_TUNING_PROFILE={} makes communicators choose by it.", o.output)));
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("tune",
                                         "Measure this machine in under a minute, and write the profile by "
                                         "which the planner then chooses (docs/planner.md)");
  const auto o = std::make_shared<TuneCommand>();
  command
      ->add_option("--output", o->output,
                   "The profile; without it ~/.muster.tuning, which communicators find by themselves")
      ->type_name("FILE");
  command
      ->add_option("--ranks", o->ranks,
                   "Ranks that measure together, each on a core of its own; without it as many as there are "
                   "cores, up to 16")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->add_option("--seconds", o->seconds, "About how long to measure")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command->add_flag("--as-rank", o->as_rank)->group("");  // how it starts its own ranks
  command->add_option("--constants-seconds", o->constants_seconds)->group("");
  command->add_option("--calls-seconds", o->calls_seconds)->group("");
  command->callback([o, &status] { status = o->as_rank ? run_as_rank(*o) : tune(*o); });
}

}  // namespace muster::tool
