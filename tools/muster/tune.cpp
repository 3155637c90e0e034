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
  double seconds = 20;
  bool as_rank = false;
};

constexpr double kExperiments = 16;  // about, of both jobs

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
  TuneOptions options;
  options.per_experiment = std::chrono::duration<double>(o.seconds / kExperiments);
  const Constants tuned = tune_host(comm, read_so_far(o.output), options);
  if (comm.rank() == 0) replace_file(o.output, profile_text(tuned, where(comm)));
  comm.barrier();
  comm.destroy();
  return 0;
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
  // Then more ranks than cores; four on each of two, so that many cores don't make too many ranks.
  const int crowded = std::min(cores, 2);
  for (const int n : {ranks, 4 * crowded}) {
    RunOptions job;
    if (n != ranks) stay_on(crowded);
    job.ranks = n;
    job.command = {
        this_program(), "tune", "--as-rank", "--output", o.output, "--seconds", fmt::format("{}", o.seconds)};
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
  command->callback([o, &status] { status = o->as_rank ? run_as_rank(*o) : tune(*o); });
}

}  // namespace muster::tool
