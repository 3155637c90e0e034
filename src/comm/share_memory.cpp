#include "comm/share_memory.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "base/host.h"
#include "base/math.h"
#include "bootstrap/crypto.h"
#include "comm/mappings.h"
#include "comm/places.h"
#include "comm/problem.h"

namespace muster {

using Impl = Communicator::Impl;

void agree(Bootstrap& bootstrap, const std::string& problem, Deadline deadline) {
  throw_first(bootstrap.all_gather(problem, deadline));
}

namespace {

// Passing descriptors takes some for a moment, at rank 0 one for each other rank. Whether there are enough is
// seen before it begins: a process that has none left can't even hear what others have to say about it.
void require_descriptors(size_t n) {
  std::vector<Fd> probe;
  while (probe.size() < n) {
    probe.emplace_back(eventfd(0, EFD_CLOEXEC));
    if (!probe.back())
      fail_errno(
          errno,
          fmt::format("pid {} on host {} needs {} more descriptors to share memory with the other ranks",
                      getpid(), host_name(), n),
          "Raise the limit of open files (ulimit -n)");
  }
}

// The ranks that share memory with one.
struct HostRanks {
  std::vector<int> ranks;
  bool one_process = true;
  bool arenas = true;  // all of them have one

  HostRanks(const std::vector<Profile>& profiles, int rank) {
    const Profile& mine = profiles[static_cast<size_t>(rank)];
    for (size_t r = 0; r < profiles.size(); ++r) {
      const Profile& p = profiles[r];
      if (p.memory != mine.memory) continue;
      ranks.push_back(static_cast<int>(r));
      one_process = one_process && p.process == mine.process;
      arenas = arenas && p.arena != 0;
    }
  }
};

// All ranks take part in passing descriptors if some host has several processes.
bool any_needs_descriptors(const std::vector<Profile>& profiles) {
  std::map<int, uint64_t> process_of_host;
  return std::ranges::any_of(profiles, [&](const Profile& p) {
    return process_of_host.try_emplace(p.memory, p.process).first->second != p.process;
  });
}

}  // namespace

void share_memory(Impl& impl, Deadline deadline) {
  Bootstrap& bootstrap = impl.family->bootstrap();
  const std::vector<Profile>& profiles = impl.family->profiles;
  const auto profile = [&](int r) -> const Profile& { return profiles[static_cast<size_t>(r)]; };
  const HostRanks host(profiles, impl.rank);
  const int first = host.ranks[0];
  const Segment::Geometry geometry = segment_geometry(impl);
  const uint64_t key = hash_combine(impl.id, static_cast<uint64_t>(first));

  // The token that only those see who see the segment itself.
  const auto tokens = bootstrap.all_gather(std::to_string(random_value<uint64_t>() | 1), deadline);
  const auto token = [&](int r) {
    uint64_t v = 0;
    std::from_chars(tokens[static_cast<size_t>(r)].data(),
                    tokens[static_cast<size_t>(r)].data() + tokens[static_cast<size_t>(r)].size(), v);
    return v;
  };
  // Of a host's ranks the first one gives its segment, and all give their arenas, if they have any.
  std::shared_ptr<Segment> segment;
  Fd descriptor;
  agree(bootstrap, problem_in([&] {
          if (impl.rank == first) {
            segment = segments().get(key, [&] { return Segment::create(geometry, token(first), &descriptor); });
          }
          if (!host.one_process) require_descriptors(impl.rank == first ? host.ranks.size() + 6 : 8);
        }),
        deadline);
  if (host.one_process && !segment) segment = segments().find(key);
  if (any_needs_descriptors(profiles)) {
    const std::vector<int> alone{impl.rank};
    std::string problem = problem_in([&] {
      std::vector<int> given;
      if (host.arenas) given.push_back(Arena::of_process().descriptor());
      if (descriptor) given.push_back(descriptor.get());
      bootstrap.exchange_fds(
          host.one_process ? alone : host.ranks, given,
          [&](int r, std::vector<Fd> fds) {
            if (r == first) segment = segments().get(key, [&] { return Segment::map(geometry, fds.back()); });
            Impl::Rank& peer = impl.ranks[static_cast<size_t>(r)];
            if (host.arenas && !peer.same_process) {
              peer.arena = peer_arenas().get(profile(r).process,
                                             [&] { return std::make_shared<PeerArena>(fds[0], profile(r).arena); });
              peer.arena_base = peer.arena->base();
            }
          },
          deadline);
    });
    if (host.arenas)
      for (Impl::Rank& r : impl.ranks)
        if (r.same_process) r.arena_base = Arena::of_process().base();
    agree(bootstrap, problem, deadline);
  }
  // Same host is what can be read through the memory, not what names say.
  agree(bootstrap, problem_in([&] {
          if (!segment || segment->token() != token(first))
            fail(Result::system_error,
                 "rank {} (host {}, pid {}) does not see the shared memory of rank {} (host {}, pid {}) "
                 "although both say that they are on one machine. "
                 "Unset NCCL_HOSTID, or set it to different values, if they are not",
                 impl.rank, profile(impl.rank).host, getpid(), first, profile(first).host, profile(first).pid);
          publish_in(impl, segment);
          impl.own_control->token.store(token(impl.rank), std::memory_order_release);
        }),
        deadline);
  agree(bootstrap, problem_in([&] {
          for (const int r : host.ranks)
            if (impl.control(r).token.load(std::memory_order_acquire) != token(r))
              fail(Result::system_error,
                   "rank {} (host {}) does not write to the shared memory that rank {} reads", r,
                   profile(r).host, impl.rank);
        }),
        deadline);
}

}  // namespace muster
