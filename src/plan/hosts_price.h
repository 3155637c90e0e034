// What a collective costs on the host memory of several hosts. O(ranks), whatever the program: programs of many
// ranks can't all be run on clocks, as those of one host are (host_price.h), so their work is counted by formula
// (work.h) and priced, a term each:
//
//   call       host.call
//   rounds     inside a host host.message (and host.ring, for messages that their line has no room for) at both
//              ends, and host.hand_over; between hosts network.K.latency, or network.K.latency.ring where all
//              messages go to the same neighbour; and min(m / network.K.copy, network.K.handshake) for a message
//              of m bytes: it is copied at both ends, or both agree first that it goes where it belongs,
//              whichever is cheaper (TCP: neither). Ranks that share a core take host.turn each per round.
//   messages   more of them than rounds follow each other in host.message or network.K.overhead; where there are
//              fewer (chains, trees), the first tile is passed on as often as rounds are more
//   bytes      inside a host read and written at both ends by host.local and host.slot; between hosts the slower
//              of a rank's bytes by network.K.rank and all of the host's by its ports (network.K.port, or what
//              the topology says, times network.share). Rings are one flow, so the slower of inside and between
//              decides; in other algorithms one follows the other.
//   combining  host.combine for each byte that is added
//   memory     what doesn't stay in the last-level cache costs 1/host.local.memory - 1/host.local more for each
//              access: one access of the caller's memory for each byte that is moved; where messages don't stay
//              there either, one more for each byte moved, and three for each combined
//
// K is tcp or rdma. The form is LogGP's (Alexandrov, Ionescu, Schauser, Scheiman 1995: latency L, overhead o, gap
// per byte G), with the two ways of MPI libraries and UCX to send a message (eager, rendezvous) and the reduction
// and memory as terms of their own (Thakur, Rabenseifner, Gropp 2005 have the reduction). Numbers: constants.tsv,
// or a tuning profile.
//
// A price never falls as the data grows. Uneven hosts are taken to be all as large as the largest.
#pragma once

#include "plan/constants.h"
#include "plan/planner.h"
#include "plan/work.h"

namespace muster {

struct HostsPrice {
  double us = 0;  // of one call; its parts:
  double rounds_us = 0, near_bytes_us = 0, far_bytes_us = 0, combine_us = 0, memory_us = 0;
  double far_rounds = 0;  // messages between hosts that follow one another
  double far_bytes = 0;   // that leave or enter the busiest host
};

// How the ranks of `inputs` are spread over hosts; one host without a placement.
Spread spread_of(const PlanInputs& inputs);

// Nothing for algorithms that move no messages (window) or that the formulas don't know (the user's own). Of `inputs`: ranks,
// placement, network, cores, slot and cache bytes. Any algorithm of the call's collective may be asked for, also
// one that couldn't run it. Thread-safe.
std::optional<HostsPrice> hosts_price(const Algorithm& algorithm, const CallShape& call,
                                      const PlanInputs& inputs, const Constants& constants);

}  // namespace muster
