// `muster doctor`: what stands in the way of communication on this host or in this job, and what may be set.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log_options.h"
#include "base/options.h"
#include "base/text.h"
#include "bootstrap/launcher.h"
#include "commands.h"
#include "doctor/facts.h"
#include "doctor/findings.h"
#include "doctor/meeting.h"
#include "doctor/report.h"
#include "option_words.h"
#include "options_page.h"
#include "say.h"

namespace muster::tool {
namespace {

void print_set(const Option& o, const Options::Value& v) {
  if (!v.set) return;
  const std::string value = o.type == OptionType::secret ? "" : fmt::format("to '{}' ", printable(v.text, 200));
  fmt::print("{:<29}  now set {}({}){}{}\n", "", value, v.source, o.no_effect ? ", no effect: " : "", o.no_effect ? o.no_effect : "");
}

void print_options(const Options& options) {
  fmt::print("What Muster can be told by environment variables and files (NCCL_CONF_FILE or ~/.nccl.conf, /etc/nccl.conf).\n"
             "* = must be equal on all ranks.\n\n");
  fmt::print("{:<29}  {:<8}  {:<18}  {}\n", "NAME", "TYPE", "DEFAULT", "MEANING");
  const auto table = option_table();
  for (size_t i = 0; i < table.size(); ++i) {
    const Option& o = table[i];
    if (o.no_effect) continue;
    const std::string type = words_for(o.type);
    fmt::print("{:<28}{}  {:<8}  {:<18}  {}\n", o.name, o.must_agree ? '*' : ' ', type.substr(0, type.find(',')),
               *o.default_value ? o.default_value : "-", o.help);
    print_set(o, options.values()[i]);
  }
  size_t without = 0, set = 0;
  for (size_t i = 0; i < table.size(); ++i) {
    if (!table[i].no_effect) continue;
    ++without;
    if (!options.values()[i].set) continue;
    if (!set++) fmt::print("\nSet, without effect:\n");
    fmt::print("{}\n", table[i].name);
    print_set(table[i], options.values()[i]);
  }
  fmt::print("\n{} more variables of NCCL's are accepted without effect; docs/options.md lists them, and why.\n", without);
}

void print_problems(const Options& options) {
  std::vector<OptionNote> notes = options.notes();
  if (options.problem().empty()) log_settings(options, notes);  // throws what can't be read
  bool first = true;
  for (const OptionNote& note : notes) {
    if (!note.warning) continue;
    if (std::exchange(first, false)) fmt::print("\nLook at:\n");
    fmt::print("{}\n", printable(note.text));
  }
  if (!options.problem().empty()) fail(Result::invalid_usage, "{}", options.problem());
}

struct DoctorOptions {
  bool options = false, markdown = false, json = false;
  std::string root;
  double seconds = 30;
};

// Nothing where no launcher started this.
std::optional<Launch> launch_of_this() {
  const Environment environment = [](const char* name) { return std::getenv(name); };  // NOLINT(concurrency-mt-unsafe)
  return is_launched(environment) ? std::optional(read_launch(environment)) : std::nullopt;
}

// The exit status. Rank 0 speaks for all; others only when they couldn't reach it.
int examine(const DoctorOptions& o) {
  doctor::Job job;
  std::optional<Launch> launch;
  if (o.root.empty()) {
    try {
      launch = launch_of_this();
    } catch (const Error& e) {
      job.meeting_problem = e.what();
    }
  }
  doctor::LookOptions look{o.root, true, 0, 0};
  if (launch)  // the launcher doesn't know of hosts that NCCL_HOSTID makes
    look = {"", launch->rank == 0 || launch->local_rank == 0 || Options::inspect().is_set("NCCL_HOSTID"), launch->rank, launch->local_rank};
  doctor::Facts facts = doctor::look(look);
  if (launch && launch->size > 1) {
    const auto patience = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(o.seconds));
    job = doctor::meet(*launch, std::move(facts), Deadline::after(patience));
    if (launch->rank != 0 && job.meeting_problem.empty()) return 0;
  } else {
    if (launch) job.launcher = launch->launcher;
    job.ranks = {std::move(facts)};
  }
  const std::vector<doctor::Located> findings = doctor::diagnose(job);
  say(o.json ? doctor::json_report(job, findings) : doctor::text_report(job, findings));
  return doctor::exit_status(findings);
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Look for what stands in the way on this host or, started by a launcher (muster run, mpirun, srun), in the job");
  command->footer("Exit status: 0 nothing but notes, 1 warnings, 2 errors.");
  const auto o = std::make_shared<DoctorOptions>();
  command->add_flag("--json", o->json, fmt::format("Print JSON for scripts, schema {}", doctor::kSchema));
  command->add_option("--timeout", o->seconds, "Seconds that the ranks of a job have to meet")->check(CLI::Range(0.1, 1e6))->capture_default_str();
  command->add_option("--root", o->root, "Look at a captured file system instead of this machine: sys, proc below this folder")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory);
  CLI::Option* const options = command->add_flag(
      "--options", o->options, "List every option with its type, default and meaning, its value and where it comes from");
  command->add_flag("--markdown", o->markdown, "Print the reference page (docs/options.md) instead")->needs(options);
  for (const char* name : {"--json", "--root", "--timeout"}) options->excludes(command->get_option(name));
  command->callback([o, &status] {
    if (o->markdown) return fmt::print("{}", options_page());
    if (!o->options) {
      status = examine(*o);
      return;
    }
    const Options all = Options::inspect();
    print_options(all);
    print_problems(all);
  });
}

}  // namespace muster::tool
