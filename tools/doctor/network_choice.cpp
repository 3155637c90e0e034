// Which network a job would take, from what each of its ranks could use.
#include <fmt/format.h>

#include <algorithm>

#include "findings.h"
#include "transports/make_network.h"

namespace muster::doctor {
namespace {

std::vector<std::string> usable(const Facts& f) {
  std::vector<std::string> names;
  for (const NetworkFacts& n : f.networks)
    if (n.problem.empty()) names.push_back(n.name);
  return names;
}

// Why a rank can't use it; empty: it can.
std::string problem_of(const Facts& f, const std::string& name) {
  for (const NetworkFacts& n : f.networks)
    if (n.name == name) return n.problem;
  return f.network_wish.empty() ? "it has no such network" : fmt::format("NCCL_NET={} there", f.network_wish);
}

}  // namespace

NetworkChoice choose_network(const Job& job) {
  NetworkChoice choice;
  std::vector<std::vector<std::string>> offers;
  for (const Facts& f : job.ranks) {
    if (f.networks.empty() && f.network_problem.empty()) continue;  // a captured system, another version
    offers.push_back(usable(f));
    if (choice.problem.empty() && offers.back().empty())
      choice.problem = !f.network_problem.empty() ? f.network_problem : fmt::format("rank {} on {} can use none", f.rank, f.host);
  }
  if (offers.empty()) return choice;
  if (choice.problem.empty()) choice.name = common_network(offers).value_or("");
  if (choice.name.empty() && choice.problem.empty()) choice.problem = "there is none that all ranks can use";
  for (const NetworkFacts& n : job.ranks[0].networks) {
    if (n.name == choice.name) continue;
    std::string why = n.problem;
    for (const Facts& f : job.ranks)
      if (const std::string theirs = problem_of(f, n.name); why.empty() && !theirs.empty())
        why = fmt::format("not on rank {} ({}): {}", f.rank, f.host, theirs);
    if (why.empty())
      choice.behind.push_back(n.name);
    else
      choice.passed_over.push_back({n.name, why});
  }
  return choice;
}

}  // namespace muster::doctor
