// How a communicator begins: ranks meet, compare what must be equal, share memory, and watch each other.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/error.h"
#include "base/host.h"
#include "base/log_options.h"
#include "base/most_ranks.h"
#include "base/open_files.h"
#include "base/process.h"
#include "base/thread.h"
#include "bootstrap/unique_id.h"
#include "comm/agreed_cluster.h"
#include "comm/card.h"
#include "comm/host_topology.h"
#include "comm/init.h"
#include "comm/init_times.h"
#include "comm/join_network.h"
#include "comm/places.h"
#include "comm/plan_options.h"
#include "comm/share_memory.h"
#include "comm/whereabouts.h"
#include "topology/allowed_cpus.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

size_t cache_or_guess() {
  const size_t n = last_level_cache();
  return n ? n : size_t{8} << 20;  // assumed where the system doesn't say
}

// 0 where the limits of this process don't allow one: large collectives cost a copy more then.
size_t arena_bytes() {
  try {
    return Arena::of_process().size();
  } catch (const Error& e) {
    log_info(Topic::shm, "peers' memory can't be reached directly: {}", e.what());
    return 0;
  }
}

// Reads what the user brought. A text that must be equal on all ranks.
std::string load_programs(Impl& impl) {
  CustomPrograms custom = load_custom_programs(impl.options.text("MUSTER_PROGRAM"));
  impl.inputs.custom = std::move(custom.programs);
  for (const auto& p : impl.inputs.custom)
    log_info(Topic::tuning, "communicator {}: {} for {} of {} ranks, {}, is proved right", impl.name, p->algorithm.name, name_of(p->algorithm.coll),
             p->nranks(), p->idea);
  return std::move(custom.contents);
}

// Fields whose name starts with '=' must be equal on all ranks.
Card introduce(const Options& options) {
  Card c;
  c.set("=version", std::string(MUSTER_VERSION));
  for (const std::string& o : options.agreement()) {
    const size_t eq = o.find('=');
    c.set("=" + o.substr(0, eq), o.substr(eq + 1));
  }
  c.set("host", host_name());
  c.set("identity", host_identity(options.text("NCCL_HOSTID")));
  c.set("machine", machine_identity());
  c.set("process", process_token());
  c.set("pid", getpid());
  c.set("pid namespace", pid_namespace());
  std::string cpus;
  for (const int cpu : allowed_cpus()) cpus += fmt::format("{} ", cpu);
  c.set("cpus", cpus);
  c.set("quota", cpu_quota());
  c.set("cache", cache_or_guess());
  c.set("shm", options.flag("NCCL_SHM_DISABLE") ? 0 : 1);
  return c;
}

void compare(const std::vector<Card>& cards) {
  for (size_t r = 1; r < cards.size(); ++r)
    for (const auto& [key, value] : cards[0].fields()) {
      if (!key.starts_with('=')) continue;
      const auto& fields = cards[r].fields();
      const auto it = fields.find(key);
      const std::string theirs = it == fields.end() ? "(not known there)" : it->second;
      if (theirs != value)
        fail(Result::invalid_usage,
             "ranks differ in {}: rank 0 (host {}, pid {}) has '{}', rank {} (host {}, pid {}) has '{}'. It "
             "must be the same on all ranks",
             key.substr(1), cards[0].text("host"), cards[0].text("pid"), value, r, cards[r].text("host"),
             cards[r].text("pid"), theirs);
    }
}

void compare_profiles(const std::vector<Card>& cards) {
  std::vector<RankProfile> ranks;
  for (size_t r = 0; r < cards.size(); ++r)
    ranks.push_back({fmt::format("rank {} (host {}, pid {})", r, cards[r].text("host"), cards[r].text("pid")), cards[r].text("tuning file"), cards[r].number("tuning")});
  require_one_profile(ranks);
}

// By rank, a name that is equal on ranks that share memory. NCCL_SHM_DISABLE=1 on one rank of a host keeps its processes
// apart; what is asked for on one is done on all.
std::vector<std::string> memory_names(const std::vector<Card>& cards) {
  std::set<std::string> apart;
  for (const Card& c : cards)
    if (c.text("shm") == "0") apart.insert(c.text("identity"));
  std::vector<std::string> names;
  for (const Card& c : cards) {
    names.push_back(c.text("identity"));
    if (apart.contains(names.back())) names.back() += " process " + c.text("process");
  }
  return names;
}

Profile read_profile(const Card& c, const std::string& numbering) {
  Profile p;
  p.host = c.text("host");
  p.pid = c.number<int>("pid");
  p.process = c.number("process");
  if (const std::string& theirs = c.text("pid namespace");
      p.process != process_token() && !theirs.empty() && theirs == numbering)
    p.start = read_process(p.pid).start;
  const std::string& list = c.text("cpus");
  for (size_t at = 0, end; at < list.size(); at = end + 1) {
    end = std::min(list.find(' ', at), list.size());
    int cpu = 0;
    std::from_chars(list.data() + at, list.data() + end, cpu);
    p.cpus.push_back(cpu);
  }
  p.quota = c.number<double>("quota");
  p.cache = c.number<size_t>("cache");
  return p;
}

void find_hosts(Impl& impl, const std::vector<Card>& cards, Deadline deadline) {
  std::vector<std::string> names;
  for (const Card& c : cards) names.push_back(c.text("host"));
  const auto look = [&] { return host_topology(impl.options); };
  impl.family->hosts = agree_on_cluster(impl.family->bootstrap(), memory_names(cards), names, look, deadline);
  dump_topology(impl.options, impl.rank);
  log_info(Topic::graph, "communicator {}: {}", impl.name, summary(impl.family->hosts));
}

// Descriptors of a rank that doesn't grow with their number: neighbours in the ring and the tree, shared memory, events.
constexpr size_t kOwnFiles = 48;

// The ranks have met.
void join(const std::shared_ptr<Impl>& impl, InitTimes& times, Deadline deadline) {
  Bootstrap& bootstrap = impl->family->bootstrap();
  Card mine = introduce(impl->options);
  mine.set("=the contents of MUSTER_PROGRAM", load_programs(*impl));
  mine.set("=Config::min_channels", impl->config.min_channels);
  mine.set("=Config::max_channels", impl->config.max_channels);
  mine.set("arena", impl->options.flag("MUSTER_WINDOWS") && impl->size <= kMostDirect ? arena_bytes() : 0);
  mine.set("tuning", impl->family->tuning.hash);
  mine.set("tuning file", impl->family->tuning.file);
  mine.set("tuner", impl->family->tuner ? 1 : 0);
  std::vector<Card> cards;
  for (const std::string& s : bootstrap.all_gather(mine.write(), deadline)) cards.push_back(Card::read(s));
  compare(cards);
  compare_profiles(cards);
  apply_plan_options(impl->options, impl->config, impl->inputs);
  times.end("exchange");
  find_hosts(*impl, cards, deadline);
  times.end("topology");

  const Card& own = cards[static_cast<size_t>(impl->rank)];
  std::map<std::string, int> machines;
  for (size_t r = 0; r < cards.size(); ++r) {
    const Card& c = cards[r];
    const bool same_machine = c.text("machine") == own.text("machine");
    Profile p = read_profile(c, same_machine ? own.text("pid namespace") : "");
    p.memory = impl->family->hosts.host_of[r];
    p.machine = machines.try_emplace(c.text("machine"), static_cast<int>(machines.size())).first->second;
    p.arena = c.number<size_t>("arena");
    impl->family->profiles.push_back(std::move(p));
  }
  if (impl->family->hosts.cluster->host_count() > 1) join_network(*impl->family, impl->options, deadline);
  times.end("network");
  take_places(*impl);
  PlanInputs& in = impl->inputs;
  impl->family->any_tuner =
      std::any_of(cards.begin(), cards.end(), [](const Card& c) { return c.number("tuner") != 0; });
  if (impl->family->any_tuner) make_room_for_tuner(in);
  enable_asymmetric_fence();
  times.end("places");
  share_memory(*impl, deadline);
  times.end("shared memory");
  introduce_rank(*impl, nullptr);
  start_tuner(*impl);
  times.end("plan");
  impl->family->segment = impl->segment;
  impl->family->enter(impl);
  Family::watch(impl->family);
  // Nobody makes calls before everybody watches and can be reached.
  agree(bootstrap, "", deadline);
  times.end("all ready");
}

void meet(const std::shared_ptr<Impl>& impl, const std::vector<UniqueId>& ids) {
  const LogRank log_rank(impl->rank);
  start_logging(impl->options, impl->rank == 0);
  const Deadline deadline =
      Deadline::after(impl->options.seconds("MUSTER_INIT_TIMEOUT")).or_when(impl->cancelled);
  InitTimes times;
  if (impl->size > 1) make_room_for_open_files(kOwnFiles + static_cast<size_t>(impl->size));  // all come to the root at once
  auto bootstrap = Bootstrap::connect(ids, impl->size, impl->rank, impl->options, deadline);
  times.end("meet");
  impl->id = bootstrap->communicator_id();
  impl->family = std::make_shared<Family>(std::move(bootstrap), impl->id);
  impl->name = impl->config.name.empty() ? fmt::format("{:08x}", impl->id & 0xffffffff) : impl->config.name;
  for (int r = 0; r < impl->size; ++r) impl->family_ranks.push_back(r);
  try {
    impl->family->tuning = load_tuning_profile(impl->options);
    impl->family->tuner = TunerLibrary::open(impl->options);
    if (impl->size == 1) {
      load_programs(*impl);
      apply_plan_options(impl->options, impl->config, impl->inputs);
      impl->family->profiles.push_back(read_profile(introduce(impl->options), {}));
      take_places(*impl);
      start_tuner(*impl);
      impl->family->enter(impl);
      dump_topology(impl->options, impl->rank);
    } else {
      join(impl, times, deadline);
    }
  } catch (const std::exception& e) {
    // The others wait for this rank and shall learn why it doesn't come. All of them report what was told
    // first.
    const auto* error = dynamic_cast<const Error*>(&e);
    const Bootstrap::Peer& me = impl->family->bootstrap().peers()[static_cast<size_t>(impl->rank)];
    impl->family->bootstrap().announce(
        {impl->rank, error ? error->code() : Result::system_error,
         fmt::format("rank {} (host {}, pid {}) could not join the communicator: {}", impl->rank, me.host,
                     me.pid, e.what())});
    throw;
  }
  log_info(Topic::init, "communicator {}: rank {} of {} on {} cores, {}", impl->name, impl->rank, impl->size,
           impl->inputs.cores,
           impl->inputs.same_process ? std::string("threads of one process")
           : !impl->inputs.placement ? std::string("processes of one host")
                                     : fmt::format("{} of them on this host, to others by {}", impl->segment->geometry().nranks,
                                                   impl->family->network->name()));
  if (impl->size > 1) log_info(Topic::init, "communicator {}: rank {} took {}", impl->name, impl->rank, times.text());
  if (const std::string& file = impl->family->tuning.file; !file.empty()) log_info(Topic::tuning, "communicator {}: plans are chosen by {}", impl->name, file);
  impl->complete();
}

// Checked at once, so that rank and size can be asked while the ranks meet.
std::shared_ptr<Impl> begin(int nranks, int rank, const Config& config, Options options) {
  if (nranks < 1 || nranks > kMostRanks)
    fail(Result::invalid_argument, "a communicator of {} ranks: 1 to {} are possible", nranks, kMostRanks);
  if (rank < 0 || rank >= nranks) fail(Result::invalid_argument, "rank {} is not in 0..{}", rank, nranks - 1);
  auto impl = std::make_shared<Impl>(is_blocking(options, config));
  impl->rank = rank;
  impl->size = nranks;
  impl->numbered = true;
  impl->config = config;
  take_options(*impl, std::move(options));
  return impl;
}

}  // namespace

bool is_blocking(const Options& options, const Config& config) {
  return options.is_set("NCCL_COMM_BLOCKING") ? options.flag("NCCL_COMM_BLOCKING") : config.blocking;
}

void take_options(Impl& impl, Options options) {
  impl.options = std::move(options);
  impl.timeout = impl.options.seconds("MUSTER_TIMEOUT");
  impl.stall_warning = impl.options.seconds("MUSTER_STALL_WARN");
}

void meet_in(const std::shared_ptr<Impl>& impl, const UniqueId& id) { meet(impl, {id}); }

Communicator Communicator::init(int nranks, int rank, const UniqueId& id, const Config& config) {
  return init(nranks, rank, std::span(&id, 1), config);
}

Communicator Communicator::init(int nranks, int rank, std::span<const UniqueId> ids, const Config& config) {
  Communicator c;
  c.impl_ = begin(nranks, rank, config, Options::from_environment());
  perform({.of = nullptr,
           .made = c.impl_,
           .run = [impl = c.impl_, all = std::vector(ids.begin(), ids.end())] { meet(impl, all); }});
  return c;
}

Communicator Communicator::from_environment(const Config& config) {
  Options options = Options::from_environment();
  const Deadline deadline = Deadline::after(options.seconds("MUSTER_INIT_TIMEOUT"));
  const Rendezvous r = rendezvous_from_environment(options, deadline);
  Communicator c;
  c.impl_ = begin(r.size, r.rank, config, std::move(options));
  perform({.of = nullptr, .made = c.impl_, .run = [impl = c.impl_, id = r.id] { meet(impl, {id}); }});
  return c;
}

std::vector<Communicator> Communicator::init_all(int nranks, const Config& config) {
  constexpr int kMostThreads = 1 << 12;
  if (nranks < 1 || nranks > kMostThreads)
    fail(Result::invalid_argument, "init_all of {} ranks: 1 to {} are possible in one process", nranks,
         kMostThreads);
  const UniqueId id = nranks > 1 ? make_unique_id() : make_lone_id();
  std::vector<Communicator> all(static_cast<size_t>(nranks));
  run_side_by_side("muster-init", all.size(),
                   [&](size_t r) { all[r] = init(nranks, static_cast<int>(r), id, config); });
  return all;
}

}  // namespace muster
