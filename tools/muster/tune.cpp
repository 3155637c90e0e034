// `muster tune`: measures this machine for the planner, by jobs of this program whose ranks run as any
// other's do; or, started by a launcher, the job that it is in (tune_job.cpp).
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "comm/tune.h"
#include "comm/tuning_profile.h"
#include "commands.h"
#include "plan/solve_constant.h"
#include "run.h"
#include "say.h"
#include "topology/allowed_cpus.h"
#include "tune.h"

namespace muster::tool {
namespace {

// Each job that measures calls runs so often, times apart, since processes differ: the middle counts. The
// first gets more of the time, for the largest sizes, which vary least.
constexpr double kShares[] = {0.6, 0.2, 0.2};

std::string this_program() {
  std::string path(4096, '\0');
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size());
  if (n < 0) fail_errno(errno, "can't tell where this program is");
  path.resize(static_cast<size_t>(n));
  return path;
}

// This process, and those that it starts, use the first `cores` of what they may.
void stay_on(int cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const std::vector<int> allowed = allowed_cpus();
  for (int i = 0; i < cores; ++i) CPU_SET(static_cast<size_t>(allowed[static_cast<size_t>(i)]), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) fail_errno(errno, "can't choose cores to run on");
}

int run_as_rank(const TuneCommand& o) {
  Communicator comm = Communicator::from_environment();
  Constants tuned = read_constants(o.known);
  if (o.constants_seconds > 0) tuned = tune_host(comm, std::move(tuned), per_experiment(o.constants_seconds));
  tuned = tune_calls(comm, std::move(tuned), std::chrono::duration<double>(o.calls_seconds));
  if (comm.rank() == 0) replace_file(o.output, profile_text(tuned, where_measured(comm)));
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

std::vector<std::string> rank_command(const TuneCommand& o, const std::string& output,
                                      double constants_seconds, double calls_seconds) {
  return {this_program(),
          "tune",
          "--as-rank",
          "--known",
          o.output,
          "--output",
          output,
          "--constants-seconds",
          fmt::format("{}", constants_seconds),
          "--calls-seconds",
          fmt::format("{}", calls_seconds)};
}

// The exit status.
int run_tune_job(const TuneJob& job, std::vector<std::string> command) {
  if (job.cores < static_cast<int>(allowed_cpus().size())) stay_on(job.cores);
  RunOptions run;
  run.ranks = job.ranks;
  run.command = std::move(command);
  return run_job(run);
}

int measure_constants(const TuneCommand& o, const std::vector<TuneJob>& jobs) {
  for (const TuneJob& job : jobs)
    if (job.constants)
      if (const int status = run_tune_job(job, rank_command(o, o.output, kForConstants / 2 * o.seconds, 0)))
        return status;
  return 0;
}

int measure_calls(const TuneCommand& o, const std::vector<TuneJob>& jobs) {
  double all_ranks = 0;  // more of them take longer
  for (const TuneJob& job : jobs) all_ranks += job.ranks;
  const std::string part = o.output + ".part";
  Constants all = read_constants(o.output);
  std::vector<MeasuredCalls> found;
  double spread = 0;
  for (const double share : kShares)
    for (const TuneJob& job : jobs) {
      const double seconds = share * (1 - kForConstants) * o.seconds * job.ranks / all_ranks;
      const int status = run_tune_job(job, rank_command(o, part, 0, seconds));
      if (!status) {
        const Constants one = read_constants(part);
        found.push_back(one.calls());
        if (const Constant& c = one.get("host.spread"); c.kind == "measured" && c.value >= spread) {
          spread = c.value;
          set_measured(all, "host.spread", spread, c.source);
        }
      }
      std::remove(part.c_str());
      if (status) return status;
    }
  all.calls() = MeasuredCalls::middle_of(found);
  replace_file(o.output, profile_text(all, where_measured_in(o.output)));
  return 0;
}

int tune(TuneCommand o) {
  constexpr int kMostRanks = 16;  // more find the same
  const int cores = static_cast<int>(allowed_cpus().size());
  const int ranks = o.ranks > 0 ? o.ranks : std::min(cores, kMostRanks);
  if (ranks > cores)
    fail(Result::invalid_argument, "--ranks {}: this process may use {} cores, and each rank needs its own",
         ranks, cores);
  replace_file(o.output, "");
  const std::vector<TuneJob> jobs = jobs_of(ranks, cores);
  int status = measure_constants(o, jobs);
  if (!status) status = measure_calls(o, jobs);
  if (status) {
    std::remove(o.output.c_str());
    return status;
  }
  say(read_text(o.output) + "\nWritten to " + o.output + ". " + how_to_use(o.output) + "\n");
  return 0;
}

int tune_this(TuneCommand o) {
  set_nothing_forced();
  if (o.output.empty()) o.output = default_tuning_file(Options::inspect());
  if (o.output.empty())
    fail(Result::invalid_usage,
         "HOME isn't set, so there is no place for the profile: --output FILE says where it goes");
  if (!in_a_job()) return tune(std::move(o));
  if (o.ranks > 0)
    fail(Result::invalid_usage, "--ranks {}: a launcher has started the ranks that measure. Leave it out",
         o.ranks);
  return tune_job(o);
}

}  // namespace

void add_tune(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "tune",
      "Measure this machine or, started by a launcher (muster run, mpirun, srun), the hosts "
      "and the network of the job, in under a minute, and write the profile by which "
      "the planner then chooses (docs/planner.md)");
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
  command->add_option("--known", o->known)->group("");
  command->add_option("--constants-seconds", o->constants_seconds)->group("");
  command->add_option("--calls-seconds", o->calls_seconds)->group("");
  command->callback([o, &status] { status = o->as_rank ? run_as_rank(*o) : tune_this(*o); });
}

}  // namespace muster::tool
