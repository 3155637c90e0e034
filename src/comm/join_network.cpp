#include "comm/join_network.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/open_files.h"
#include "base/text.h"
#include "bootstrap/wire.h"
#include "comm/problem.h"
#include "transports/make_network.h"

namespace muster {
namespace {

// What a rank says of its part of the network.
struct NetworkPart {
  std::string address, problem;
  uint64_t slot_bytes = 0;

  std::string write() const { return Writer().text(address).u64(slot_bytes).text(problem).take(); }
  static NetworkPart read(const std::string& text) {
    Reader r(text);
    NetworkPart p;
    p.address = r.text();
    p.slot_bytes = r.u64();
    p.problem = r.text();
    if (!r.ok() || !r.at_end())
      p.problem = problem_of(Error(Result::internal_error, "a rank's address in the network can't be read"));
    return p;
  }
};

// Agreed on by all ranks, of what each of them could use.
std::string choose_network(Bootstrap& bootstrap, const Options& options, const NetworkSetup& setup, Deadline deadline) {
  std::string names;
  const std::string problem = problem_in([&] {
    names = fmt::format("{}", fmt::join(offered_networks(options), "\n"));
    if (names.empty())
      fail(Result::system_error, "{} has no network to ranks of other hosts: {}", setup.rank_name(setup.rank), missing_networks(options));
  });
  std::vector<std::vector<std::string>> offers;
  std::vector<std::string> problems;
  for (const std::string& text : bootstrap.all_gather(Writer().text(names).text(problem).take(), deadline)) {
    Reader r(text);
    const std::string theirs = r.text();
    const auto parts = split(theirs, '\n');
    offers.emplace_back(parts.begin(), parts.end());
    problems.push_back(r.text());
  }
  throw_first(problems);
  if (const auto name = common_network(offers)) return *name;
  const auto other = std::ranges::find_if(offers, [&](const auto& o) { return std::ranges::find(o, offers[0][0]) == o.end(); });
  fail(Result::invalid_usage, "there is no network that all hosts have: {} has {}, {} has {}. NCCL_NET says which one to use", setup.rank_name(0),
       fmt::join(offers[0], ", "), setup.rank_name(static_cast<int>(other - offers.begin())), fmt::join(*other, ", "));
}

constexpr size_t kListeners = 16;  // and who is about to prove that it is of the job

}  // namespace

void join_network(Family& family, const Options& options, Deadline deadline) {
  Bootstrap& bootstrap = family.bootstrap();
  NetworkSetup setup;
  setup.rank = bootstrap.rank();
  setup.nranks = bootstrap.size();
  setup.options = options;
  setup.interfaces = bootstrap.interfaces();
  setup.secret = [&bootstrap](int from, int to) { return bootstrap.secret(fmt::format("messages from {} to {}", from, to)); };
  setup.rank_name = [&bootstrap](int r) {
    const Bootstrap::Peer& p = bootstrap.peers()[static_cast<size_t>(r)];
    return fmt::format("rank {} (host {}, pid {})", r, p.host, p.pid);
  };
  const std::string name = choose_network(bootstrap, options, setup, deadline);
  if (name == "tcp") {  // one per pair of ranks, of interfaces, and of threads
    const auto far = std::ranges::count_if(family.hosts.host_of, [&](int h) { return h != family.hosts.host_of[static_cast<size_t>(setup.rank)]; });
    const int64_t streams = std::max<int64_t>(options.integer("NCCL_SOCKET_NTHREADS") * options.integer("NCCL_NSOCKS_PERTHREAD"), 1);
    make_room_for_open_files(static_cast<size_t>(far * streams) * std::max<size_t>(setup.interfaces.size(), 1) + kListeners);
  }
  NetworkPart mine;
  mine.problem = problem_in([&] {
    try {
      family.network = make_network(name, setup);
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("{} can't reach other hosts: {}", setup.rank_name(setup.rank), e.what()));
    }
    mine.slot_bytes = family.network->slot_bytes();
    mine.address = family.network->address();
  });
  std::vector<std::string> problems, addresses;
  family.network_slot_bytes = SIZE_MAX;
  for (const std::string& text : bootstrap.all_gather(mine.write(), deadline)) {
    NetworkPart part = NetworkPart::read(text);
    problems.push_back(std::move(part.problem));
    addresses.push_back(std::move(part.address));
    family.network_slot_bytes = std::min<size_t>(family.network_slot_bytes, part.slot_bytes);
  }
  throw_first(problems);
  family.network->meet(std::move(addresses));
  log_info(Topic::net, "{}: hosts are joined by {}", setup.rank_name(setup.rank), name);
}

}  // namespace muster
