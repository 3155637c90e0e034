// Measures the constants of the host cost model (src/plan/host_price.h) on the machine and ranks at hand.
//
// Each constant has one experiment: a call whose price hangs on it and on constants that are known before.
// The constant is then what makes the price the measured time, so that what is measured is what is predicted
// from it.
#pragma once

#include <chrono>
#include <string>

#include "muster/muster.h"
#include "plan/constants.h"

namespace muster {

struct TuneOptions {
  std::chrono::duration<double> per_experiment{0.05};
};

// Collective. With a core for each rank most constants; with more ranks than cores those
// of turns and of connections that fill the caches. The result is `known` with what was measured; equal on
// all ranks. Throws invalid_usage when options or the call's communicator force algorithms or forbid what is
// to be measured.
Constants tune_host(Communicator& comm, Constants known, const TuneOptions& options = {});

// Throws invalid_usage where options force algorithms or channels, which would steer what is measured.
void require_nothing_forced(const Communicator& comm);

// Collective. Measures what the algorithms that these ranks can use take, all of them at each of several
// sizes (from 8 bytes of data, each four times the one before, to where caches no longer help), and adds it
// to `known`, by whose prices the time for each is chosen so that all take about `budget`; the largest sizes
// are left out if they would take longer, or do. Sets host.spread, too. Equal on all ranks. Throws as tune_host
// does.
Constants tune_calls(Communicator& comm, Constants known, std::chrono::duration<double> budget);

// Collective, among ranks of several hosts; on one host `known` comes back. Measures what messages between hosts
// take (network.* of the network that joins these), by hosts_price.h: the first ranks of all hosts for latencies and
// what one rank moves, all ranks for what a host's ports do. Of a host's inside prices are by `known`. What can't be told
// from these ranks (ports where hosts have one rank each, say) stays as known. About `budget`, more on slow networks.
// Equal on all ranks. Throws as tune_host does.
Constants tune_network(Communicator& comm, Constants known, std::chrono::duration<double> budget);

// The measured ones among `tuned` as a profile's text, below `where`, which tells people when and on what
// they were measured.
std::string profile_text(const Constants& tuned, const std::string& where);

}  // namespace muster
