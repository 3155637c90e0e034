#include "comm/share_memory.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <charconv>

#include "base/error.h"
#include "base/host.h"
#include "bootstrap/crypto.h"
#include "comm/mappings.h"
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

}  // namespace

void share_memory(Impl& impl, const std::vector<Card>& cards, Deadline deadline) {
  Bootstrap& bootstrap = impl.family->bootstrap();
  const uint64_t id = impl.id;
  const int n = impl.size;
  // The token that only those see who see the segment itself.
  const auto tokens = bootstrap.all_gather(std::to_string(random_value<uint64_t>() | 1), deadline);
  const auto token = [&](int r) {
    uint64_t v = 0;
    std::from_chars(tokens[static_cast<size_t>(r)].data(),
                    tokens[static_cast<size_t>(r)].data() + tokens[static_cast<size_t>(r)].size(), v);
    return v;
  };
  const bool one_process = impl.inputs.same_process;
  const Segment::Geometry geometry{n, impl.inputs.lanes + 1, impl.inputs.slot_bytes,
                                   impl.inputs.message_bytes};
  // Every rank gives the same number of descriptors: rank 0 its segment, and all their arenas, if they have
  // any.
  Fd descriptor;
  agree(bootstrap, problem_in([&] {
          if (impl.rank == 0) {
            impl.segment =
                segments().get(id, [&] { return Segment::create(geometry, token(0), &descriptor); });
          } else if (!one_process && !impl.inputs.windows) {
            descriptor = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
            if (!descriptor)
              fail_errno(errno, "/dev/null can't be opened",
                         "Raise the limit of open files (ulimit -n) if it is too low");
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
    std::string problem = problem_in([&] {
      const int second = windows ? Arena::of_process().descriptor() : descriptor.get();
      const int first = descriptor ? descriptor.get() : second;
      bootstrap.exchange_fds(
          group, {first, second},
          [&](int r, std::vector<Fd> fds) {
            const Card& card = cards[static_cast<size_t>(r)];
            if (r == 0) impl.segment = segments().get(id, [&] { return Segment::map(geometry, fds[0]); });
            Impl::Rank& peer = impl.ranks[static_cast<size_t>(r)];
            if (windows && !peer.same_process) {
              peer.arena = peer_arenas().get(card.number("process"), [&] {
                return std::make_shared<PeerArena>(fds[1], card.number<size_t>("arena"));
              });
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
  agree(bootstrap, problem_in([&] {
          if (!impl.segment || impl.segment->token() != token(0))
            fail(Result::system_error,
                 "rank {} (host {}, pid {}) does not see the shared memory of rank 0 (host {}, pid {}) "
                 "although both say that they are on one machine ({}). "
                 "Unset NCCL_HOSTID, or set it to different values, if they are not",
                 impl.rank, cards[static_cast<size_t>(impl.rank)].text("host"), getpid(),
                 cards[0].text("host"), cards[0].text("pid"), cards[0].text("identity"));
          impl.segment->control(impl.rank).token.store(token(impl.rank), std::memory_order_release);
        }),
        deadline);
  agree(bootstrap, problem_in([&] {
          for (int r = 0; r < n; ++r)
            if (impl.segment->control(r).token.load(std::memory_order_acquire) != token(r))
              fail(Result::system_error,
                   "rank {} (host {}) does not write to the shared memory that rank {} reads", r,
                   cards[static_cast<size_t>(r)].text("host"), impl.rank);
        }),
        deadline);
  impl.transport = std::make_unique<ShmTransport>(impl.segment, impl.rank);
}

}  // namespace muster
