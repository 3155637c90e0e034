// The life of a communicator: ranks meet, compare what must be equal, share memory, and leave.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>

#include "base/error.h"
#include "base/host.h"
#include "base/log_options.h"
#include "base/math.h"
#include "base/process.h"
#include "base/thread.h"
#include "bootstrap/unique_id.h"
#include "comm/card.h"
#include "comm/plan_options.h"
#include "comm/state.h"
#include "topology/allowed_cpus.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

uint64_t random_token() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32 | device()) | 1;
}

// Names this process's address space; a forked child has another.
uint64_t process_token() {
  static std::mutex mutex;
  static uint64_t token = 0;
  static int generation = -1;
  std::lock_guard lock(mutex);
  if (token == 0 || generation != fork_generation()) {
    token = random_token();
    generation = fork_generation();
  }
  return token;
}

// Mappings shared by the communicators of this process.
template <class Key, class T>
class Registry {
 public:
  std::shared_ptr<T> find(Key key) {
    std::lock_guard lock(mutex_);
    const auto it = map_.find(key);
    return it == map_.end() ? nullptr : it->second.lock();
  }
  // The value of `key`: made by `make` unless there is one.
  template <class Make>
  std::shared_ptr<T> get(Key key, Make make) {
    std::lock_guard lock(mutex_);
    std::erase_if(map_, [](const auto& e) { return e.second.expired(); });
    auto value = map_[key].lock();
    if (!value) map_[key] = value = make();
    return value;
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<T>> map_;
};
Registry<uint64_t, Segment>& segments() {
  static auto* r = new Registry<uint64_t, Segment>;
  return *r;
}
Registry<uint64_t, PeerArena>& peer_arenas() {
  static auto* r = new Registry<uint64_t, PeerArena>;
  return *r;
}

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
             "ranks differ in {}: rank 0 (host {}, pid {}) has '{}', rank {} (host {}, pid {}) has '{}'. It must be the same on all ranks",
             key.substr(1), cards[0].text("host"), cards[0].text("pid"), value, r, cards[r].text("host"), cards[r].text("pid"), theirs);
    }
}

// Cores that the ranks of this host may use together.
double usable_cores(const std::vector<Card>& cards) {
  std::set<std::string> cpus;
  double quota = 0;
  for (const Card& c : cards) {
    const std::string& list = c.text("cpus");
    for (size_t at = 0; at < list.size();) {
      const size_t end = list.find(' ', at);
      cpus.insert(list.substr(at, end - at));
      at = end + 1;
    }
    const auto q = c.number<double>("quota");
    if (q > 0 && (quota == 0 || q < quota)) quota = q;
  }
  const auto n = static_cast<double>(std::max<size_t>(1, cpus.size()));
  return quota > 0 ? std::min(n, quota) : n;
}

void require_one_host(const std::vector<Card>& cards) {
  for (size_t r = 1; r < cards.size(); ++r)
    if (cards[r].text("identity") != cards[0].text("identity"))
      fail(Result::invalid_usage,
           "no transport between rank 0 (host {}, identity {}) and rank {} (host {}, identity {}): this build moves data through shared memory of "
           "one host only. Start all ranks on one host, and unset NCCL_HOSTID if it is set",
           cards[0].text("host"), cards[0].text("identity"), r, cards[r].text("host"), cards[r].text("identity"));
}

// What went wrong on one rank: "code text"; empty: nothing.
template <class F>
std::string problem_of(F f) {
  try {
    f();
    return {};
  } catch (const Error& e) {
    return fmt::format("{} {}", static_cast<int>(e.code()), e.what());
  } catch (const std::exception& e) {
    return fmt::format("{} {}", static_cast<int>(Result::system_error), e.what());
  }
}

// All ranks say how the last step went, so that all fail together with one reason: the first that isn't only about
// another rank's failure.
void agree(Bootstrap& bootstrap, const std::string& problem, Deadline deadline) {
  std::optional<Error> reason;
  for (const std::string& p : bootstrap.all_gather(problem, deadline)) {
    if (p.empty()) continue;
    int code = static_cast<int>(Result::internal_error);
    std::from_chars(p.data(), p.data() + p.size(), code);
    if (!reason || (reason->code() == Result::remote_error && code != static_cast<int>(Result::remote_error)))
      reason.emplace(error_code(code), p.substr(p.find(' ') + 1));
  }
  if (reason) throw *reason;
}

// Passing descriptors takes some for a moment, at rank 0 one for each other rank. Whether there are enough is seen before
// it begins: a process that has none left can't even hear what others have to say about it.
void require_descriptors(size_t n) {
  std::vector<Fd> probe;
  while (probe.size() < n) {
    probe.emplace_back(eventfd(0, EFD_CLOEXEC));
    if (!probe.back())
      fail_errno(errno, fmt::format("pid {} on host {} needs {} more descriptors to share memory with the other ranks", getpid(), host_name(), n),
                 "Raise the limit of open files (ulimit -n)");
  }
}

void share_memory(Impl& impl, const std::vector<Card>& cards, Deadline deadline) {
  Bootstrap& bootstrap = *impl.bootstrap;
  const uint64_t id = bootstrap.communicator_id();
  const int n = impl.size;
  // The token that only those see who see the segment itself.
  const auto tokens = bootstrap.all_gather(std::to_string(random_token()), deadline);
  const auto token = [&](int r) {
    uint64_t v = 0;
    std::from_chars(tokens[static_cast<size_t>(r)].data(), tokens[static_cast<size_t>(r)].data() + tokens[static_cast<size_t>(r)].size(), v);
    return v;
  };
  const bool one_process = impl.inputs.same_process;
  const Segment::Geometry geometry{n, impl.inputs.lanes + 1, impl.inputs.slot_bytes, impl.inputs.message_bytes};
  // Every rank gives the same number of descriptors: rank 0 its segment, and all their arenas, if they have any.
  Fd descriptor;
  agree(bootstrap, problem_of([&] {
          if (impl.rank == 0) {
            impl.segment = segments().get(id, [&] { return Segment::create(geometry, token(0), &descriptor); });
          } else if (!one_process && !impl.inputs.windows) {
            descriptor = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
            if (!descriptor) fail_errno(errno, "/dev/null can't be opened", "Raise the limit of open files (ulimit -n) if it is too low");
          }
          if (!one_process) require_descriptors(impl.rank == 0 ? static_cast<size_t>(n) + 6 : 8);
        }),
        deadline);
  if (one_process) {
    if (!impl.segment) impl.segment = segments().find(id);
  } else {
    const bool windows = impl.inputs.windows;
    std::vector<int> group(static_cast<size_t>(n));
    for (int r = 0; r < n; ++r) group[static_cast<size_t>(r)] = r;
    std::string problem = problem_of([&] {
      const int second = windows ? Arena::of_process().descriptor() : descriptor.get();
      const int first = descriptor ? descriptor.get() : second;
      bootstrap.exchange_fds(
          group, {first, second},
          [&](int r, std::vector<Fd> fds) {
            const Card& card = cards[static_cast<size_t>(r)];
            if (r == 0) impl.segment = segments().get(id, [&] { return Segment::map(geometry, fds[0]); });
            Impl::Rank& peer = impl.ranks[static_cast<size_t>(r)];
            if (windows && !peer.same_process) {
              peer.arena = peer_arenas().get(card.number("process"),
                                             [&] { return std::make_shared<PeerArena>(fds[1], card.number<size_t>("arena")); });
              peer.arena_base = peer.arena->base();
            }
          },
          deadline);
    });
    if (windows)
      for (Impl::Rank& r : impl.ranks)
        if (r.same_process) r.arena_base = Arena::of_process().base();
    agree(bootstrap, problem, deadline);
  }
  // Same host is what can be read through the memory, not what names say.
  agree(bootstrap, problem_of([&] {
          if (!impl.segment || impl.segment->token() != token(0))
            fail(Result::system_error,
                 "rank {} (host {}, pid {}) does not see the shared memory of rank 0 (host {}, pid {}) although both say that they are on one host ({}). "
                 "Set NCCL_HOSTID to different values if they are not",
                 impl.rank, cards[static_cast<size_t>(impl.rank)].text("host"), getpid(), cards[0].text("host"), cards[0].text("pid"),
                 cards[0].text("identity"));
          impl.segment->control(impl.rank).token.store(token(impl.rank), std::memory_order_release);
        }),
        deadline);
  agree(bootstrap, problem_of([&] {
          for (int r = 0; r < n; ++r)
            if (impl.segment->control(r).token.load(std::memory_order_acquire) != token(r))
              fail(Result::system_error, "rank {} (host {}) does not write to the shared memory that rank {} reads", r,
                   cards[static_cast<size_t>(r)].text("host"), impl.rank);
        }),
        deadline);
  impl.transport = std::make_unique<ShmTransport>(impl.segment, impl.rank);
}

// The ranks have met: they compare what must be equal, share memory, and begin to watch each other.
void join(const std::shared_ptr<Impl>& impl, const Config& config, Deadline deadline) {
  const int nranks = impl->size, rank = impl->rank;
  PlanInputs& in = impl->inputs;
  Card mine = introduce(impl->options);
  mine.set("=Config::min_channels", config.min_channels);
  mine.set("=Config::max_channels", config.max_channels);
  mine.set("arena", impl->options.flag("MUSTER_WINDOWS") && nranks <= kMostDirect ? arena_bytes() : 0);
  std::vector<Card> cards;
  for (const std::string& s : impl->bootstrap->all_gather(mine.write(), deadline)) cards.push_back(Card::read(s));
  compare(cards);
  apply_plan_options(impl->options, config, in);
  require_one_host(cards);

  const std::string& numbering = cards[static_cast<size_t>(rank)].text("pid namespace");
  in.same_process = in.windows = true;
  in.cache_bytes = SIZE_MAX;
  for (int r = 0; r < nranks; ++r) {
    const Card& c = cards[static_cast<size_t>(r)];
    Impl::Rank& k = impl->ranks[static_cast<size_t>(r)];
    k.host = c.text("host");
    k.pid = c.number<int>("pid");
    k.same_process = c.number("process") == process_token();
    if (const std::string& theirs = c.text("pid namespace"); !k.same_process && !theirs.empty() && theirs == numbering)
      k.start = read_process(k.pid).start;
    in.same_process = in.same_process && c.text("process") == cards[0].text("process");
    in.windows = in.windows && c.number("arena") != 0;
    in.cache_bytes = std::min(in.cache_bytes, c.number<size_t>("cache"));
  }
  if (!in.same_process)
    for (int r = 0; r < nranks; ++r)
      if (cards[static_cast<size_t>(r)].text("shm") == "0")
        fail(Result::invalid_usage, "rank {} (host {}) has NCCL_SHM_DISABLE=1, and this build has no other transport between processes. Unset it", r,
             impl->ranks[static_cast<size_t>(r)].host);
  const double cores = usable_cores(cards);
  in.cores = std::max(1, static_cast<int>(cores));
  impl->wait = WaitPolicy::choose(impl->options.text("MUSTER_WAIT"), nranks, cores);
  enable_asymmetric_fence();
  share_memory(*impl, cards, deadline);
  if (in.windows) {
    constexpr uint64_t kDescriptorBytes = 24;
    Choice choice;
    choice.algorithm = find_algorithm(Coll::all_gather, "direct");
    choice.tile_bytes = kDescriptorBytes;
    const CallShape shape{Coll::all_gather, DataType::uint8, RedOp::sum, 0, kDescriptorBytes};
    impl->exchange = std::make_unique<CompiledPlan>(compile(choice.algorithm->make({nranks, rank, 0}), shape, choice, impl->transport.get()));
  }
  impl->bootstrap->watch([weak = std::weak_ptr<Impl>(impl)](const Bootstrap::Trouble& t) {
    if (const auto comm = weak.lock(); comm && !comm->destroyed.load()) comm->set_error(t.code, t.message, false);
  });
  // Nobody makes calls before everybody watches and can be reached.
  agree(*impl->bootstrap, "", deadline);
  log_info(Topic::init, "communicator {}: rank {} of {} on {:.3g} cores, {}", impl->name, rank, nranks, cores,
           in.same_process ? "threads of one process" : "processes of one host");
  impl->ready.store(true);
}

void set_up(const std::shared_ptr<Impl>& impl, int nranks, int rank, const UniqueId& id, const Config& config, Options options) {
  constexpr int kMostRanks = 1 << 20;
  if (nranks < 1 || nranks > kMostRanks) fail(Result::invalid_argument, "a communicator of {} ranks: 1 to {} are possible", nranks, kMostRanks);
  if (rank < 0 || rank >= nranks) fail(Result::invalid_argument, "rank {} is not in 0..{}", rank, nranks - 1);
  const LogRank log_rank(rank);
  start_logging(options, rank == 0);
  const Deadline deadline = Deadline::after(options.seconds("MUSTER_INIT_TIMEOUT"));

  impl->options = std::move(options);
  impl->rank = rank;
  impl->size = nranks;
  impl->timeout = impl->options.seconds("MUSTER_TIMEOUT");
  impl->stall_warning = impl->options.seconds("MUSTER_STALL_WARN");
  impl->ranks.resize(static_cast<size_t>(nranks));
  PlanInputs& in = impl->inputs;
  in.nranks = nranks;

  impl->bootstrap = Bootstrap::connect(id, nranks, rank, impl->options, deadline);
  impl->name = config.name.empty() ? fmt::format("{:08x}", impl->bootstrap->communicator_id() & 0xffffffff) : config.name;
  if (nranks == 1) {
    apply_plan_options(impl->options, config, in);
    impl->ranks[0] = {.host = host_name(), .pid = getpid(), .same_process = true};
    in.same_process = true;
    in.cache_bytes = cache_or_guess();
    in.cores = 1;
    impl->ready.store(true);
    return;
  }
  try {
    join(impl, config, deadline);
  } catch (const std::exception& e) {
    // The others wait for this rank and shall learn why it doesn't come. All of them report what was told first.
    const auto* error = dynamic_cast<const Error*>(&e);
    const Bootstrap::Peer& me = impl->bootstrap->peers()[static_cast<size_t>(rank)];
    impl->bootstrap->announce({rank, error ? error->code() : Result::system_error,
                               fmt::format("rank {} (host {}, pid {}) could not join the communicator: {}", rank, me.host, me.pid, e.what())});
    throw;
  }
}

}  // namespace

Communicator::Impl::~Impl() { leave(); }

void Communicator::Impl::leave() noexcept {
  if (!bootstrap || fork_generation != muster::fork_generation() || left.exchange(true)) return;
  if (segment) {
    segment->control(rank).left.store(1, std::memory_order_release);
    for (int r = 0; r < size; ++r) segment->control(r).doorbell.ring();
  }
  bootstrap->close();
}

Communicator Communicator::init(int nranks, int rank, const UniqueId& id, const Config& config) {
  Communicator c;
  c.impl_ = std::make_shared<Impl>();
  const auto now = [=, impl = c.impl_, options = Options::from_environment()] { set_up(impl, nranks, rank, id, config, options); };
  if (!defer_init_in_group(c.impl_, now)) now();
  return c;
}

Communicator Communicator::from_environment(const Config& config) {
  Options options = Options::from_environment();
  const Deadline deadline = Deadline::after(options.seconds("MUSTER_INIT_TIMEOUT"));
  const Rendezvous r = rendezvous_from_environment(options, deadline);
  Communicator c;
  c.impl_ = std::make_shared<Impl>();
  set_up(c.impl_, r.size, r.rank, r.id, config, std::move(options));
  return c;
}

std::vector<Communicator> Communicator::init_all(int nranks, const Config& config) {
  constexpr int kMostThreads = 1 << 12;
  if (nranks < 1 || nranks > kMostThreads)
    fail(Result::invalid_argument, "init_all of {} ranks: 1 to {} are possible in one process", nranks, kMostThreads);
  const UniqueId id = nranks > 1 ? make_unique_id() : make_lone_id();
  std::vector<Communicator> all(static_cast<size_t>(nranks));
  run_side_by_side("muster-init", all.size(), [&](size_t r) { all[r] = init(nranks, static_cast<int>(r), id, config); });
  return all;
}

void Communicator::destroy() {
  if (!impl_) fail(Result::invalid_argument, "destroy of an empty Communicator");
  if (impl_->destroyed.load()) fail(Result::invalid_argument, "communicator {}: destroyed before", impl_->name);
  impl_->require_own_process();
  impl_->await_all();
  impl_->destroyed.store(true);
  impl_->leave();
}

void Communicator::abort() noexcept {
  if (!impl_ || !impl_->ready.load() || impl_->destroyed.load() || impl_->fork_generation != fork_generation()) return;
  impl_->set_error(Result::remote_error,
                   fmt::format("communicator {}: aborted by {}", impl_->name, impl_->rank_name(impl_->rank)), true);
}

}  // namespace muster
