// Findings about the ranks of a job together.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "bootstrap/root.h"
#include "findings.h"

namespace muster::doctor {
namespace {

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMost)));
  return fmt::format("{}{}", fmt::join(first, ", "), names.size() > kMost ? fmt::format(" and {} more", names.size() - kMost) : "");
}

constexpr const char* kLostPackets =
    "Something between the hosts drops long packets: give all interfaces the same MTU, no larger than that of the switches and tunnels "
    "between them (ip link set IFACE mtu 1500), and let ICMP \"fragmentation needed\" pass";

class JobExaminer {
 public:
  explicit JobExaminer(const Job& job) : job_(job), hosts_(hosts_of(job)) {
    for (const Facts& f : job.ranks) by_rank_[f.rank] = &f;
  }
  std::vector<Located> examine() {
    missing_ranks();
    split_hosts();
    reaches();
    versions();
    options();
    if (hosts_.size() > 1) networks();
    processes();
    return std::move(found_);
  }

 private:
  void add(Severity s, std::string id, std::string where, std::string text, std::string remedy, std::vector<int> ranks = {}) {
    found_.push_back({{s, std::move(id), std::move(where), std::move(text), std::move(remedy)}, std::move(ranks)});
  }

  void missing_ranks() {
    if (!job_.meeting_problem.empty()) add(Severity::error, "no-meeting", "", job_.meeting_problem, "");
    if (!job_.silent.empty())
      add(Severity::error, "long-messages-lost", "",
          fmt::format("{} connected to rank 0, but what they say of their hosts, a few packets, doesn't get through", describe_ranks(job_.silent)),
          kLostPackets);
    std::vector<int> missing;
    for (int r = 0; r < job_.size; ++r)
      if (!by_rank_.contains(r) && std::find(job_.silent.begin(), job_.silent.end(), r) == job_.silent.end()) missing.push_back(r);
    if (missing.empty() || !job_.meeting_problem.empty()) return;
    const auto zero = by_rank_.find(0);
    add(Severity::error, "rank-missing", "",
        fmt::format("{} of {} ranks didn't reach rank 0{} in time: {}", missing.size(), job_.size,
                    zero == by_rank_.end() || zero->second->address.empty()
                        ? ""
                        : fmt::format(" at {} ({})", zero->second->address, zero->second->interface),
                    describe_ranks(missing)),
        "What they say on their standard error tells more; firewalls, and another interface by NCCL_SOCKET_IFNAME, are the usual "
        "reasons");
  }

  // Ranks that say they are on one host share memory over a UNIX socket, which belongs to a network namespace.
  void split_hosts() {
    for (const JobHost& h : hosts_) {
      std::map<uint64_t, std::vector<int>> places;
      for (const Facts* f : h.ranks) places[f->place].push_back(f->rank);
      if (places.size() < 2) continue;
      std::vector<std::string> parts;
      for (const auto& [place, ranks] : places) parts.push_back(describe_ranks(ranks));
      add(Severity::error, "host-in-parts", h.name,
          fmt::format("{} count as one host, {}, but are in {} network namespaces or on {} machines, and can't share memory", 
                      fmt::join(parts, "; "), h.name, places.size(), places.size()),
          "Containers of one job: --network=host, or an NCCL_HOSTID of its own for each. Machines with one name and a copied "
          "boot id or NCCL_HOSTID: tell them apart by NCCL_HOSTID");
    }
    std::map<std::string, int> names;
    for (const JobHost& h : hosts_) ++names[h.first().host];
    for (const auto& [name, count] : names)
      if (count > 1)
        add(Severity::note, "same-host-name", name,
            fmt::format("{} hosts have the name {}; they are told apart by boot id or NCCL_HOSTID, messages name ranks", count, name), "");
  }

  const std::string& host_name_of(int rank) const {
    static const std::string unknown = "?";
    for (const JobHost& h : hosts_)
      if (std::any_of(h.ranks.begin(), h.ranks.end(), [&](const Facts* f) { return f->rank == rank; })) return h.name;
    return unknown;
  }

  void reaches() {
    std::map<int, std::vector<const Reach*>> refused, lost;  // by target
    for (const Reach& r : job_.reaches)
      if (!r.problem.empty()) (r.connected ? lost : refused)[r.to].push_back(&r);
    const auto describe = [&](int rank) {
      const Facts* f = by_rank_.contains(rank) ? by_rank_.at(rank) : nullptr;
      return fmt::format("{} (rank {}{})", host_name_of(rank), rank,
                         f && !f->address.empty() ? fmt::format(", {} on {}", f->address, f->interface) : "");
    };
    const auto sources = [&](const std::vector<const Reach*>& list) {
      std::vector<std::string> names;
      for (const Reach* r : list) names.push_back(host_name_of(r->from));
      return some_of(names);
    };
    for (const auto& [to, list] : refused)
      add(Severity::error, "unreachable", host_name_of(to),
          fmt::format("{} can't be reached from {}: {}", describe(to), sources(list), list[0]->problem),
          "Open the hosts' firewalls to each other (all TCP ports, or those of MUSTER_PORT_RANGE), or choose an interface that "
          "joins all hosts by NCCL_SOCKET_IFNAME",
          {to});
    for (const auto& [to, list] : lost)
      add(Severity::error, "long-messages-lost", host_name_of(to),
          fmt::format("{} can be connected to from {}, but a message of several packets doesn't get through: {}", describe(to),
                      sources(list), list[0]->problem),
          kLostPackets, {to});
  }

  // "1.0 on a, b; 2.0 on c"; empty where all have the same.
  std::string difference(std::string Facts::* version) const {
    std::map<std::string, std::vector<std::string>> by_version;
    for (const JobHost& h : hosts_)
      for (const Facts* f : h.ranks)
        if (f->whole_host) by_version[f->*version].push_back(h.name);
    if (by_version.size() < 2) return {};
    std::vector<std::string> parts;
    for (const auto& [v, names] : by_version) parts.push_back(fmt::format("{} on {}", v.empty() ? "none" : v, some_of(names)));
    return fmt::format("{}", fmt::join(parts, "; "));
  }

  void versions() {
    const auto compare = [&](Severity s, const char* what, std::string Facts::* version, const std::string& remedy) {
      if (const std::string d = difference(version); !d.empty())
        add(s, "versions-differ", what, fmt::format("hosts have different versions of {}: {}", what, d), remedy);
    };
    std::map<std::string, std::vector<int>> muster;
    for (const Facts& f : job_.ranks) muster[f.muster].push_back(f.rank);
    if (muster.size() > 1) {
      std::vector<std::string> parts;
      for (const auto& [v, ranks] : muster) parts.push_back(fmt::format("{} on {}", v, describe_ranks(ranks)));
      add(Severity::error, "versions-differ", "Muster",
          fmt::format("ranks have different versions of Muster: {}", fmt::join(parts, "; ")), "Use the same on all: they refuse each other");
    }
    compare(Severity::warning, "UCX", &Facts::ucx, "Install the same on all hosts, or none: what joins the hosts is agreed upon");
    compare(Severity::warning, "libibverbs", &Facts::ibverbs, "Install the same on all hosts (rdma-core), or none");
    compare(Severity::note, "NVIDIA's driver", &Facts::nvidia, "");
    compare(Severity::note, "Linux", &Facts::kernel, "");
  }

  // As the ranks of a communicator would find it.
  void options() {
    const Facts* first = nullptr;
    for (const Facts& f : job_.ranks) {
      if (!first) first = &f;
      std::vector<std::string> mine, theirs;
      for (const std::string& a : f.agreement)
        if (std::find(first->agreement.begin(), first->agreement.end(), a) == first->agreement.end()) mine.push_back(a);
      for (const std::string& a : first->agreement)
        if (std::find(f.agreement.begin(), f.agreement.end(), a) == f.agreement.end()) theirs.push_back(a);
      if (mine.empty() && theirs.empty()) continue;
      add(Severity::error, "options-differ", "",
          fmt::format("rank {} has {}, rank {} has {}: these must be equal on all ranks", first->rank, fmt::join(theirs, " "),
                      f.rank, fmt::join(mine, " ")),
          "Pass it to all ranks: mpirun -x NAME (Open MPI), mpiexec -genv NAME VALUE (MPICH), srun --export=ALL", {f.rank});
      return;  // one is enough to see
    }
  }

  const InterfaceFacts* chosen(const Facts& f) const {
    for (const InterfaceFacts& i : f.interfaces)
      if (i.name == f.interface) return &i;
    return nullptr;
  }

  void networks() {
    if (const NetworkChoice choice = choose_network(job_); !choice.problem.empty())
      add(Severity::error, "no-common-network", "", fmt::format("nothing joins ranks of different hosts: {}", choice.problem),
          "NCCL_NET and NCCL_NET_PLUGIN alike on all ranks, or unset: TCP is always there");
    std::map<int64_t, std::vector<std::string>> by_mtu;
    std::map<size_t, std::vector<std::string>> by_ports;
    std::map<std::string, std::vector<std::string>> by_kind;
    for (const JobHost& h : hosts_) {
      for (const Facts* f : h.ranks) {
        const InterfaceFacts* i = chosen(*f);
        if (f->no_address.empty() && f->place != job_.ranks[0].place && (!i || i->loopback))
          add(Severity::error, "loopback-only", h.name,
              fmt::format("rank {} on {} has {}, which other hosts can't reach", f->rank, h.name,
                          i ? fmt::format("only {} ({})", f->address, i->name) : "no network interface"),
              "Bring an interface to the other hosts up and give it an address; NCCL_SOCKET_IFNAME must not name loopback", {f->rank});
      }
      if (const InterfaceFacts* i = chosen(h.first()); i && !i->loopback)
        by_mtu[i->mtu].push_back(fmt::format("{} ({})", h.name, i->name));
      size_t up = 0;
      bool roce = false, infiniband = false;
      for (const RdmaPortFacts& p : h.first().rdma)
        if (p.up) ++up, (p.ethernet ? roce : infiniband) = true;
      by_ports[up].push_back(h.name);
      by_kind[roce && infiniband ? "RoCE and InfiniBand" : roce ? "RoCE" : infiniband ? "InfiniBand" : "no RDMA"].push_back(h.name);
    }
    const auto parts = [&](const auto& groups) {
      std::vector<std::string> r;
      for (const auto& [key, names] : groups) r.push_back(fmt::format("{} on {}", key, some_of(names)));
      return fmt::format("{}", fmt::join(r, "; "));
    };
    if (by_mtu.size() > 1)
      add(Severity::warning, "mtu-differs", "", fmt::format("interfaces that join the hosts have different MTUs: {}", parts(by_mtu)),
          "The same on all, and on the switches: ip link set IFACE mtu BYTES");
    if (by_kind.size() > 1)
      add(Severity::warning, "rdma-differs", "", fmt::format("hosts have different RDMA networks up: {}", parts(by_kind)),
          "RDMA is used only where all hosts have it: look at those that lack it (rdma link, ibv_devinfo), or leave them out");
    else if (by_ports.size() > 1)
      add(Severity::note, "rdma-ports-differ", "", fmt::format("hosts have different numbers of RDMA ports up: {}", parts(by_ports)),
          "Ports without a partner are not used: compare rdma link on the hosts");
  }

  void processes() {
    for (const JobHost& h : hosts_) {
      const auto ranks = static_cast<int64_t>(h.ranks.size());
      std::set<int> together;
      for (const Facts* f : h.ranks) together.insert(f->cpus.begin(), f->cpus.end());
      const auto cpus = static_cast<int64_t>(together.size());
      const Facts& first = h.first();
      if (first.cpu_quota > 0 && first.cpu_quota < static_cast<double>(ranks))
        add(Severity::note, "few-cores", h.name,
            fmt::format("{} ranks share a CPU quota of {:g} cores on {}: they sleep instead of polling, and short messages take longer",
                        ranks, first.cpu_quota, h.name),
            "docker run --cpus, Kubernetes resources.limits.cpu, Slurm --cpus-per-task");
      else if (cpus > 0 && ranks > cpus && first.host_cpus >= ranks)
        add(Severity::warning, "bound-together", h.name,
            fmt::format("{} ranks on {} are bound to {} core{} together, of {}; so some share cores while others are idle", ranks, h.name,
                        cpus, cpus == 1 ? "" : "s", first.host_cpus),
            "mpirun --bind-to core or none, srun --cpu-bind=cores, taskset");
      else if (first.host_cpus != kNoLimit && ranks > first.host_cpus)
        add(Severity::note, "few-cores", h.name,
            fmt::format("{} ranks share {} cores on {}: they sleep instead of polling, and short messages take longer", ranks,
                        first.host_cpus, h.name),
            "");
      ports_for(h, ranks);
    }
    const Facts* zero = by_rank_.contains(0) ? by_rank_.at(0) : nullptr;
    if (zero && zero->listen_queue != kNoLimit && job_.size > zero->listen_queue)
      add(Severity::note, "short-listen-queue", host_name_of(0),
          fmt::format("{} ranks come to rank 0, whose host lets {} wait to be accepted (net.core.somaxconn): some will have to try again",
                      job_.size, zero->listen_queue),
          "As root: sysctl net.core.somaxconn=4096; or several unique ids (ncclCommInitRankScalable)", {0});
  }

  void ports_for(const JobHost& h, int64_t ranks) {
    const std::string& text = h.first().port_range;
    const size_t dash = text.find('-');
    if (dash == text.npos) return;
    const auto low = parse_c_integer(std::string_view(text).substr(0, dash)), high = parse_c_integer(std::string_view(text).substr(dash + 1));
    if (low && high && *high - *low + 1 < ranks)
      add(Severity::error, "port-range-short", h.name,
          fmt::format("MUSTER_PORT_RANGE={} has {} ports for {} ranks on {}; every process listens at one", text, *high - *low + 1,
                      ranks, h.name),
          "Widen it");
  }

  const Job& job_;
  const std::vector<JobHost> hosts_;
  std::map<int, const Facts*> by_rank_;
  std::vector<Located> found_;
};

}  // namespace

std::vector<JobHost> hosts_of(const Job& job) {
  std::vector<JobHost> hosts;
  std::map<std::string, size_t> known;
  for (const Facts& f : job.ranks) {
    const auto [at, fresh] = known.emplace(f.identity, hosts.size());
    if (fresh) hosts.push_back({f.host, {}});
    hosts[at->second].ranks.push_back(&f);
  }
  // Several on one machine, told apart by NCCL_HOSTID.
  std::map<std::string, int> count;
  for (const JobHost& h : hosts) ++count[h.name];
  for (JobHost& h : hosts)
    if (count[h.name] > 1 && h.first().identity.starts_with("id:")) h.name = h.first().identity.substr(3);
  return hosts;
}

std::vector<Located> examine_job(const Job& job) { return JobExaminer(job).examine(); }

std::vector<Located> diagnose(const Job& job) {
  std::vector<Located> all = examine_job(job);
  const auto add = [&](const Finding& f, int rank) {
    for (Located& l : all)
      if (!l.ranks.empty() && l.finding.id == f.id && l.finding.where == f.where && l.finding.text == f.text) {
        if (std::find(l.ranks.begin(), l.ranks.end(), rank) == l.ranks.end()) l.ranks.push_back(rank);
        return;
      }
    all.push_back({f, {rank}});
  };
  for (const Facts& f : job.ranks) {
    for (const Finding& found : examine_rank(f)) add(found, f.rank);
    if (f.whole_host)
      for (const Finding& found : examine_host(f)) add(found, f.rank);
  }
  std::stable_sort(all.begin(), all.end(), [](const Located& a, const Located& b) { return a.finding.severity > b.finding.severity; });
  return all;
}

}  // namespace muster::doctor
