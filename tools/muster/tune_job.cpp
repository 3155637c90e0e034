// `muster tune` as the ranks of a job: what its hosts and their network take.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/host.h"
#include "bootstrap/launcher.h"
#include "comm/state.h"
#include "comm/tuning_profile.h"
#include "say.h"
#include "tune.h"

namespace muster::tool {
namespace {

constexpr double kForNetwork = 0.3;  // of the time, where there are several hosts

// The same text on all ranks: `root`'s.
std::string shared(Communicator& comm, std::string text, int root) {
  uint64_t bytes = text.size();
  comm.broadcast(&bytes, &bytes, 1, DataType::uint64, root);
  text.resize(bytes);
  comm.broadcast(text.data(), text.data(), bytes, DataType::uint8, root);
  return text;
}

Constants shared(Communicator& comm, const Constants& constants, int root) {
  Constants all = Constants::built_in();
  all.override_with(Constants::read(shared(comm, profile_text(constants, ""), root), "the job's profile"),
                    "the job's profile");
  return all;
}

// A job's hosts by its ranks.
struct JobHosts {
  std::vector<int> host_of;  // by rank
  int measured = 0;          // that with most ranks: it measures what calls inside a host take
  explicit JobHosts(const Communicator& comm) {
    const PlanInputs& in = comm.impl()->inputs;
    host_of = in.placement ? in.placement->host_of : std::vector<int>(static_cast<size_t>(in.nranks));
    std::vector<int> ranks(static_cast<size_t>(count()));
    for (const int h : host_of) ++ranks[static_cast<size_t>(h)];
    measured = static_cast<int>(std::max_element(ranks.begin(), ranks.end()) - ranks.begin());
  }
  int count() const { return *std::max_element(host_of.begin(), host_of.end()) + 1; }
  int first_rank(int host) const {
    return static_cast<int>(std::find(host_of.begin(), host_of.end(), host) - host_of.begin());
  }
};

// Ranks of one host: as many of them as have a core each, then all.
Constants tune_one_host(Communicator& host, double seconds) {
  const int cores = host.impl()->inputs.cores;
  const bool crowded = host.size() > cores;
  Communicator apart = host.split(host.rank() < cores ? 0 : Communicator::kNoColor, 0);
  const double share = crowded ? seconds / 2 : seconds;
  const auto measure = [&](Communicator& ranks, Constants known) {
    known = tune_host(ranks, std::move(known), per_experiment(kForConstants * share));
    return tune_calls(ranks, std::move(known), std::chrono::duration<double>((1 - kForConstants) * share));
  };
  Constants known = Constants::built_in();
  if (apart) known = measure(apart, std::move(known));
  if (!crowded) return known;
  known = shared(host, known, 0);
  return measure(host, std::move(known));
}

// One rank of each host, so that each finds it: rank 0's; where hosts have disks of their own, theirs. How
// many hosts wrote.
int write_on_hosts(Communicator& comm, const std::string& file, const std::string& text,
                   const JobHosts& hosts) {
  int64_t wrote = 0, all = 0;
  std::string problem;
  const auto write = [&] {
    try {
      replace_file(file, text, fmt::format(".new-{}-{}", host_name(), getpid()));
      wrote = 1;
    } catch (const Error& e) {
      problem = e.what();
    }
  };
  if (comm.rank() == 0) write();
  comm.barrier();
  if (comm.rank() != 0 && comm.rank() == hosts.first_rank(hosts.host_of[static_cast<size_t>(comm.rank())]) &&
      read_text(file) != text)
    write();
  int64_t failed = problem.empty() ? 0 : 1, failures = 0;
  comm.all_reduce(&wrote, &all, 1, DataType::int64, RedOp::sum);
  comm.all_reduce(&failed, &failures, 1, DataType::int64, RedOp::sum);
  if (failed) fail(Result::system_error, "rank {} (host {}): {}", comm.rank(), host_name(), problem);
  if (failures)
    fail(Result::system_error, "{} of {} hosts couldn't write {}; they say why", failures, hosts.count(),
         file);
  return static_cast<int>(all);
}

}  // namespace

bool in_a_job() {
  const Environment environment = [](const char* name) {
    return std::getenv(name);
  };  // NOLINT(concurrency-mt-unsafe)
  return is_launched(environment) && read_launch(environment).size > 1;
}

int tune_job(const TuneCommand& o) {
  Communicator comm = Communicator::from_environment();
  const std::string file = shared(comm, o.output, 0);
  const JobHosts hosts(comm);
  const bool several = hosts.count() > 1;
  const int mine = hosts.host_of[static_cast<size_t>(comm.rank())];
  Communicator host = comm.split(mine, 0);
  Constants tuned = Constants::built_in();
  if (mine == hosts.measured) tuned = tune_one_host(host, (several ? 1 - kForNetwork : 1) * o.seconds);
  tuned = shared(comm, tuned, hosts.first_rank(hosts.measured));
  tuned = tune_network(comm, std::move(tuned), std::chrono::duration<double>(kForNetwork * o.seconds));
  const std::string where =
      where_measured(comm) +
      (several ? fmt::format("; {} ranks on {} hosts", comm.size(), hosts.count()) : "");
  const std::string text = shared(comm, profile_text(tuned, where), 0);
  const int wrote = write_on_hosts(comm, file, text, hosts);
  if (comm.rank() == 0)
    say(text + fmt::format("\nWritten to {}{}. {}\n", file,
                           wrote > 1 ? fmt::format(" on each of {} hosts that don't share it", wrote) : "",
                           how_to_use(file)));
  comm.destroy();
  return 0;
}

}  // namespace muster::tool
