// Which ranks share a host, and in which order rings go round: what an algorithm may know of where its ranks are.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace muster {

// Equal on all ranks, like everything that programs are made of.
struct Placement {
  std::vector<int> host_of;             // by rank; hosts are numbered in the order of their first rank
  std::vector<std::vector<int>> rings;  // orders of all ranks, one per channel; empty: by rank
};

// `hosts`: by rank, numbers that are equal on ranks of one host; they are numbered anew.
Placement placement_of(std::span<const int> hosts);
// All ranks, host by host: a ring in this order passes each host once.
std::vector<int> host_by_host(std::span<const int> host_of);

// Why hierarchical programs are of no use there; empty: they may be. `most`: ranks of the largest host.
std::string obstacle(int hosts, int most);
std::string obstacle(const Placement& placement);

// A placement as one rank of a hierarchical program sees it. A *rail* is one rank of each host, those of one local number.
struct Hosts {
  std::vector<std::vector<int>> ranks;  // by host: its ranks, ascending; local number l is ranks[host][l]
  std::vector<int> host_of, local_of;   // by rank: its host, and its local number there
  int host = 0, local = 0;              // of this rank
  int rails = 1;                        // complete ones: as many as the smallest host has ranks
  int most = 1;                         // ranks of the largest host

  // Without a placement all ranks are on one host.
  Hosts(const Placement* placement, int nranks, int rank);

  int count() const { return static_cast<int>(ranks.size()); }
  const std::vector<int>& here() const { return ranks[static_cast<size_t>(host)]; }
  int size(int of_host) const { return static_cast<int>(ranks[static_cast<size_t>(of_host)].size()); }
  // The rank with this local number, or -1.
  int rank_at(int of_host, int local_number) const {
    return local_number < size(of_host) ? ranks[static_cast<size_t>(of_host)][static_cast<size_t>(local_number)] : -1;
  }
};

}  // namespace muster
