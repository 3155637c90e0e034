// What the two ways of `muster tune` share: measuring this machine by jobs of its own (tune.cpp), and the job
// that it was started in (tune_job.cpp).
#pragma once

#include <string>

#include "comm/tune.h"
#include "muster/muster.h"
#include "plan/constants.h"

namespace muster::tool {

struct TuneCommand {
  std::string output;
  int ranks = 0;
  double seconds = 50;
  bool as_rank = false;  // of a job that `muster tune` started
  std::string known;     // what it has found so far
  double constants_seconds = 0, calls_seconds = 0;
};

inline constexpr double kForConstants = 0.25;  // of the time; the rest is for whole calls

// The same in all ranks of a launcher's job of several ranks.
bool in_a_job();
int tune_job(const TuneCommand& command);

// What a user has set for programs must not steer what is measured.
void set_nothing_forced();
TuneOptions per_experiment(double seconds_for_constants);
std::string read_text(const std::string& file);  // empty: there is none
// The built-in ones, and over them what the file has.
Constants read_constants(const std::string& file);
// At once: whoever reads it has the old text or the new one. `suffix` is of the new file's name until it is
// complete.
void replace_file(const std::string& file, const std::string& text, const std::string& suffix = ".new");
// When, on what processor and topology: for people.
std::string where_measured(const Communicator& comm);
std::string where_measured_in(const std::string& profile);  // the same, of a profile that says so
std::string how_to_use(const std::string& profile);

}  // namespace muster::tool
