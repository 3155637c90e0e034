// `muster run`: the command line.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "commands.h"
#include "run.h"

namespace muster::tool {
namespace {
// CLI11 gives what follows "--" back to the parent command. So it gets to see another word, which it takes
// for the program; the rest is left alone.
char g_end_of_options[] = "\x01--";
}  // namespace

void mark_end_of_options(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], "run") != 0) return;
  char** dashes =
      std::find_if(argv, argv + argc, [](const char* word) { return std::strcmp(word, "--") == 0; });
  if (dashes != argv + argc) *dashes = g_end_of_options;
}

void add_run(CLI::App& app, int& status) {
  CLI::App* run = app.add_subcommand(
      "run",
      "Start PROGRAM as the ranks of one job on this machine, with the environment of "
      "torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT)");
  auto job = std::make_shared<RunOptions>();
  run->add_option("-n,--ranks", job->ranks, "Number of ranks")->required()->check(CLI::Range(1, 4096));
  run->add_flag("--prefix", job->prefix,
                "Write [RANK] before each line that a rank prints; lines of ranks never mix");
  run->add_flag("--no-bind{false}", job->bind,
                "Let ranks run on all cores, instead of each on its share, or on one where they are a multiple of the "
                "cores");
  run->add_option("--grace", job->grace_seconds,
                  "Seconds between asking ranks to end (SIGTERM) and killing them")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  run->prefix_command();
  run->footer(
      "  muster run -n 4 [--prefix] [--] PROGRAM [ARGUMENT...]\n\n"
      "Rank 0 reads the standard input. Signals are passed on to all ranks. When a rank fails the others are "
      "ended and\n"
      "the exit status is that of the first failing rank: its own, or 128 + the signal that killed it.");
  run->callback([run, job, &status] {
    job->command = run->remaining();
    const bool marked = !job->command.empty() && job->command.front() == g_end_of_options;
    if (marked) job->command.erase(job->command.begin());
    std::replace(job->command.begin(), job->command.end(), std::string(g_end_of_options), std::string("--"));
    if (job->command.empty())
      throw CLI::ValidationError("PROGRAM", "no program to run; e.g. muster run -n 4 ./program");
    if (!marked && job->command.front().starts_with("-"))
      throw CLI::ValidationError(job->command.front(),
                                 "is no option of muster run; options of the program follow its name");
    status = run_job(*job);
  });
}

}  // namespace muster::tool
