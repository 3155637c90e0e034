#include "report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "facts_json.h"
#include "muster/muster.h"

namespace muster::doctor {

using nlohmann::ordered_json;

namespace {

constexpr size_t kMostHosts = 16;  // described one by one

std::string plural(size_t n, const char* thing) { return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s"); }

int count_of(std::span<const Located> findings, Severity s) {
  return static_cast<int>(std::count_if(findings.begin(), findings.end(), [&](const Located& l) { return l.finding.severity == s; }));
}

std::string cores(const Facts& f) {
  std::string r;
  if (f.allowed_cpus != kNoLimit)
    r = f.host_cpus != kNoLimit && f.host_cpus != f.allowed_cpus ? fmt::format("{} of {} cores", f.allowed_cpus, f.host_cpus)
                                                                   : plural(static_cast<size_t>(f.allowed_cpus), "core");
  if (f.cpu_quota > 0) r += fmt::format("{}quota of {:g}", r.empty() ? "" : ", ", f.cpu_quota);
  return r;
}

std::string network(const Facts& f) {
  if (!f.no_address.empty()) return "no interface as it was asked for";
  if (f.address.empty()) return f.interfaces.empty() ? "" : "no network";
  for (const InterfaceFacts& i : f.interfaces)
    if (i.name == f.interface)
      return fmt::format("meets over {} ({}, MTU {}{})", f.interface, f.address, i.mtu,
                         i.gbit_per_s > 0 ? fmt::format(", {:g} Gbit/s", i.gbit_per_s) : "");
  return fmt::format("meets over {} ({})", f.interface, f.address);
}

std::string rdma(const Facts& f) {
  std::vector<std::string> ports;
  for (const RdmaPortFacts& p : f.rdma)
    ports.push_back(fmt::format("{}/{} {}{}{}", p.device, p.port, p.ethernet ? "RoCE" : "InfiniBand",
                                p.gbit_per_s > 0 ? fmt::format(" {:g} Gbit/s", p.gbit_per_s) : "", p.up ? "" : " down"));
  return ports.empty() ? "no RDMA" : fmt::format("RDMA: {}", fmt::join(ports, ", "));
}

std::string versions(const Facts& f) {
  const auto one = [](const char* name, const std::string& v) { return fmt::format("{} {}", name, v.empty() ? "none" : v); };
  return fmt::format("{}, {}, {}, {}, {}", one("Muster", f.muster), one("Linux", f.kernel), one("UCX", f.ucx),
                     one("libibverbs", f.ibverbs), one("NVIDIA driver", f.nvidia));
}

std::string about(const JobHost& h) {
  const Facts& f = h.first();
  std::string r = fmt::format("{}{}\n", h.name, h.ranks.size() > 1 ? fmt::format(", {} ranks", h.ranks.size()) : "");
  std::vector<std::string> parts;
  for (const std::string& p : {cores(f), f.memory_bytes == kNoLimit ? "" : bytes_text(f.memory_bytes), network(f), rdma(f)})
    if (!p.empty()) parts.push_back(p);
  r += fmt::format("  {}\n", fmt::join(parts, "; "));
  if (f.whole_host) r += fmt::format("  {}\n", versions(f));
  return r;
}

std::string about_reaches(const Job& job, size_t hosts) {
  if (job.reaches.empty()) return {};
  std::vector<double> us;
  for (const Reach& r : job.reaches)
    if (r.problem.empty()) us.push_back(r.round_trip_us);
  std::string text = fmt::format("Pairs of hosts, both directions, TCP: {} of {} reached", us.size(), hosts * (hosts - 1));
  if (!us.empty()) {
    std::sort(us.begin(), us.end());
    text += fmt::format("; round trips {:.0f} us, at worst {:.0f} us", us[us.size() / 2], us.back());
  }
  return text + "\n";
}

std::string about_network(const Job& job) {
  if (std::ranges::all_of(job.ranks, [](const Facts& f) { return f.networks.empty() && f.network_problem.empty(); })) return {};  // of a captured system
  const NetworkChoice choice = choose_network(job);
  std::string text = fmt::format("Ranks of different hosts are joined by {}{}.", choice.name.empty() ? "nothing: " : choice.name, choice.problem);
  if (const std::string& wish = job.ranks[0].network_wish; !wish.empty() && !choice.name.empty()) text += fmt::format(" NCCL_NET={} asks for it.", wish);
  for (const NetworkFacts& n : choice.passed_over) text += fmt::format(" Not by {}: {}.", n.name, n.problem);
  if (!choice.behind.empty()) text += fmt::format(" It comes before {}.", fmt::join(choice.behind, ", "));
  return text + "\n";
}

// Which hosts and ranks: nothing where there is only one.
std::string whose(const Job& job, const std::vector<JobHost>& hosts, const Located& l) {
  if (job.ranks.size() < 2 || l.ranks.empty()) return {};
  std::vector<std::string> parts;
  for (const JobHost& h : hosts) {
    std::vector<int> mine;
    for (const Facts* f : h.ranks)
      if (std::find(l.ranks.begin(), l.ranks.end(), f->rank) != l.ranks.end()) mine.push_back(f->rank);
    // What a host has once, the rank says that looked at it.
    const bool all = mine.size() == h.ranks.size() || (mine.size() == 1 && h.first().rank == mine[0] && h.first().whole_host);
    if (mine.empty()) continue;
    parts.push_back(all ? h.name : fmt::format("{} (rank{} {})", h.name, mine.size() == 1 ? "" : "s", fmt::join(mine, ", ")));
  }
  if (parts.size() == hosts.size() && hosts.size() > 1) return "all hosts";
  if (parts.size() > 8) return fmt::format("{} and {} more hosts", fmt::join(parts.begin(), parts.begin() + 7, ", "), parts.size() - 7);
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string about(const Job& job, const std::vector<JobHost>& hosts, const Located& l) {
  const Finding& f = l.finding;
  std::string where = whose(job, hosts, l);
  if (!f.where.empty() && f.where != where) where += (where.empty() ? "" : ": ") + f.where;
  std::string text = fmt::format("{:<8} {}{}\n         {}\n", name_of(f.severity), f.id, where.empty() ? "" : "  (" + where + ")", f.text);
  if (!f.remedy.empty()) text += fmt::format("         -> {}\n", f.remedy);
  return text;
}

}  // namespace

int exit_status(std::span<const Located> findings) {
  return count_of(findings, Severity::error) ? 2 : count_of(findings, Severity::warning) ? 1 : 0;
}

std::string text_report(const Job& job, std::span<const Located> findings) {
  const std::vector<JobHost> hosts = hosts_of(job);
  std::string text = job.launcher.empty()
                         ? "This host alone; started by a launcher (muster run, mpirun, srun) it looks at all hosts of the job.\n\n"
                         : fmt::format("{} of {} ({}), {}.\n\n", job.ranks.size(), plural(static_cast<size_t>(job.size), "rank"), job.launcher,
                                       plural(hosts.size(), "host"));
  for (size_t i = 0; i < std::min(hosts.size(), kMostHosts); ++i) text += about(hosts[i]);
  if (hosts.size() > kMostHosts) text += fmt::format("and {} more hosts; --json lists them\n", hosts.size() - kMostHosts);
  text += about_network(job) + about_reaches(job, hosts.size()) + "\n";
  for (const Located& l : findings) text += about(job, hosts, l);
  if (!findings.empty()) text += "\n";
  const int errors = count_of(findings, Severity::error), warnings = count_of(findings, Severity::warning);
  return text + fmt::format("{}, {}, {}.\n", plural(static_cast<size_t>(errors), "error"), plural(static_cast<size_t>(warnings), "warning"),
                            plural(findings.size() - static_cast<size_t>(errors + warnings), "note"));
}

std::string json_report(const Job& job, std::span<const Located> findings) {
  static constexpr const char* kStatus[] = {"fine", "warnings", "errors"};
  const std::vector<JobHost> hosts = hosts_of(job);
  ordered_json j = {{"schema", kSchema}, {"status", kStatus[exit_status(findings)]}, {"launcher", nullptr}, {"size", job.size}};
  if (!job.launcher.empty()) j["launcher"] = job.launcher;
  const NetworkChoice choice = choose_network(job);
  ordered_json passed_over = ordered_json::array();
  for (const NetworkFacts& n : choice.passed_over) passed_over.push_back({{"name", n.name}, {"problem", n.problem}});
  j["network"] = {{"name", nullptr}, {"problem", choice.problem}, {"passed_over", passed_over}, {"behind", choice.behind}};
  if (!choice.name.empty()) j["network"]["name"] = choice.name;
  j["findings"] = ordered_json::array();
  for (const Located& l : findings) {
    const Finding& f = l.finding;
    std::set<std::string> names;
    for (const JobHost& h : hosts)
      for (const Facts* fact : h.ranks)
        if (std::find(l.ranks.begin(), l.ranks.end(), fact->rank) != l.ranks.end()) names.insert(h.name);
    j["findings"].push_back({{"severity", name_of(f.severity)}, {"id", f.id}, {"hosts", names}, {"ranks", l.ranks},
                             {"where", f.where}, {"text", f.text}, {"remedy", f.remedy}});
  }
  j["pairs"] = ordered_json::array();
  for (const Reach& r : job.reaches)
    j["pairs"].push_back({{"from", r.from}, {"to", r.to}, {"reached", r.problem.empty()}, {"round_trip_us", r.round_trip_us}, {"problem", r.problem}});
  j["ranks"] = ordered_json::array();
  for (const Facts& f : job.ranks) {
    ordered_json facts = nlohmann::json(f);
    for (const char* inner : {"findings", "listener", "agreement", "warnings", "place", "options_problem"}) facts.erase(inner);
    j["ranks"].push_back(std::move(facts));
  }
  return j.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace muster::doctor
