#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/host.h"
#include "base/options.h"
#include "base/text.h"
#include "comm/state.h"
#include "comm/tuning_profile.h"
#include "say.h"
#include "topology/allowed_cpus.h"
#include "tune.h"

namespace muster::tool {

void set_nothing_forced() {
  for (const char* name :
       {"MUSTER_ALGO", "MUSTER_CHANNELS", "MUSTER_WINDOWS", "MUSTER_REPRODUCIBLE", "NCCL_ALGO",
        "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_SHM_DISABLE"})
    setenv(name, "", 1);
  setenv("MUSTER_TUNING_PROFILE", "", 1);
}

TuneOptions per_experiment(double seconds_for_constants) {
  constexpr double kExperiments = 15;  // about, of the larger list
  return {.per_experiment = std::chrono::duration<double>(seconds_for_constants / kExperiments)};
}

std::string read_text(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

Constants read_constants(const std::string& file) {
  Constants all = Constants::built_in();
  all.override_with(Constants::read(read_text(file), file), file);
  return all;
}

void replace_file(const std::string& file, const std::string& text, const std::string& suffix) {
  const std::string fresh = file + suffix;
  write_file(fresh, text);
  if (std::rename(fresh.c_str(), file.c_str()) != 0) fail_errno(errno, "can't write " + file);
}

std::string where_measured(const Communicator& comm) {
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

std::string where_measured_in(const std::string& profile) {
  constexpr std::string_view kMark = "# ";
  std::ifstream in(profile);
  std::string line;
  std::getline(in, line);  // the version
  std::getline(in, line);
  return line.starts_with(kMark) ? line.substr(kMark.size()) : line;
}

std::string how_to_use(const std::string& profile) {
  return profile == default_tuning_file(Options::inspect())
             ? "New communicators choose by it; without the file all is as before."
             : fmt::format("MUSTER_TUNING_PROFILE={} makes communicators choose by it.", profile);
}

}  // namespace muster::tool
