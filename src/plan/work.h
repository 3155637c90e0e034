// What an algorithm makes the ranks do, counted: what prices are made of. Bytes and messages are
// those that programs send (work_test counts them in the programs), so a formula here can't say other than
// what is run.
//
// Formulas: Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH (2005)
// for rings, halving, doubling, binomial trees; Bruck et al. (1997); Sanders, Speck, Traeff: Two-tree
// algorithms (2009); those of two levels by counting.
#pragma once

#include <cstdint>
#include <optional>

#include "algorithms/algorithms.h"

namespace muster {

// How ranks are spread: `per_host` on each of `hosts`; with uneven hosts the largest host's.
struct Spread {
  int ranks = 1;
  int hosts = 1;
  int per_host = 1;
  bool in_order = true;  // ranks of one host are numbered one after another
  int least = 0;         // ranks of the smallest host; 0: all hosts have as many
  // What goes among hosts by rails goes by so many: ranks at the same place of every host.
  int rails() const { return least > 0 ? least : per_host; }
};

struct Work {
  // Messages that must follow one another on the longest path, of data that fits one tile: within hosts,
  // among hosts.
  double near_rounds = 0, far_rounds = 0;
  // Bytes that the rank which sends or receives most exchanges in one direction with ranks of its host, and
  // all ranks of the host which sends or receives most with other hosts. By rails on uneven hosts: what one
  // waits for, its phases in the direction that carries most, added up, and the fullest rail's as all rails'.
  double near_bytes = 0, far_bytes = 0;
  int far_ranks = 0;  // of that host's ranks so many exchange with other hosts; 0: all
  // Of data that fits one tile, for the rank that sends or receives most: messages in one direction with
  // ranks of its host, and with others. More than rounds: they are under way at the same time. Fewer: it
  // waits while others pass the data on.
  double near_messages = 0, far_messages = 0;
  double longest_far = 0;  // bytes of the longest message among hosts
  double combined = 0;     // bytes that the rank which adds most adds to what it has
  // Near and far messages belong to the same flow, so the slower of both decides; otherwise one follows the
  // other.
  bool flows = false;
  bool ring = false;  // uses only neighbours of the rings found on the topology
  bool tree = false;
};

// `data`: bytes of the collective's data: the caller's in all_reduce, broadcast and reduce; one chunk times
// the number of ranks in the others. Nothing for algorithms that move no messages (window).
std::optional<Work> work_of(const Algorithm& algorithm, const Spread& spread, double data);

}  // namespace muster
