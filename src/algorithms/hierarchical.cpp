// Programs for ranks on several hosts, made of programs inside a host and of programs between hosts. Between hosts data
// travels on rails: rail j are the ranks of local number j, one of each host, and carries its share of the data only.
// There are as many rails as the smallest host has ranks; what further ranks have or need goes through the local rank
// whose number is theirs modulo the rails.
#include <algorithm>

#include "algorithms/families.h"
#include "program/part.h"

namespace muster {

namespace {

using Make = Program (*)(const Shape&);
using Where = std::function<Ref(uint32_t)>;
using Chunk = std::function<uint32_t(uint32_t)>;

// The same place for whatever chunk.
Where always(const Ref& r) {
  return [r](uint32_t) { return r; };
}

class Composer {
 public:
  Composer(const char* name, Coll coll, const Shape& s, const Hosts& hosts, uint32_t chunks = 1)
      : h(hosts), b_(start(name, coll, s, chunks)), channel_(s.channel) {
    for (const auto& there : h.ranks)
      if (h.local < static_cast<int>(there.size())) rail_.push_back(there[static_cast<size_t>(h.local)]);
  }

  // A program of the ranks on this host.
  void inside(Make make, const Chunk& chunk, const Where& input, const Where& output, int root = 0) {
    const auto& here = h.here();
    add_part(b_, make({static_cast<int>(here.size()), h.local, root, nullptr, channel_}), {here, chunk, input, output, false});
  }
  // A program of the hosts, run on each rail; its results are complete.
  void between(Make make, const Chunk& chunk, const Where& input, const Where& output, int root = 0) {
    if (h.local < h.rails) add_part(b_, make({h.count(), h.host, root, nullptr, channel_}), {rail_, chunk, input, output, true});
  }
  Builder& steps() { return b_; }
  Program done() { return fuse(b_.done()); }

  const Hosts& h;

 private:
  std::vector<int> rail_;
  Builder b_;
  int channel_;
};

bool is_alone(const Hosts& h) { return h.here().size() == 1; }
bool is_large(const Hosts& h) { return h.here().size() > static_cast<size_t>(kMostDirect); }
Make scatter_inside(const Hosts& h) { return is_large(h) ? ring_reduce_scatter : direct_reduce_scatter; }
Make gather_inside(const Hosts& h) { return is_large(h) ? ring_all_gather : direct_all_gather; }

// How many of `ranks` fall to one of `owners`, at most.
int layers_of(int ranks, int owners) { return (ranks + owners - 1) / owners; }

uint32_t chunk_at(const Hosts& h, int host, int local) {
  const int rank = h.rank_at(host, local);
  return rank < 0 ? kNoChunk : static_cast<uint32_t>(rank);
}

// In a reduction's or broadcast's data rail j has `width` chunks from j * width on: as many as the program between hosts has.
// Those with number i of all rails, one for each of the first local ranks:
Chunk of_all_rails(const Hosts& h, uint32_t width, uint32_t i) {
  return [rails = static_cast<uint32_t>(h.rails), width, i](uint32_t local) { return local < rails ? local * width + i : kNoChunk; };
}
Chunk of_own_rail(const Hosts& h, uint32_t width) {
  return [first = static_cast<uint32_t>(h.local) * width](uint32_t i) { return first + i; };
}

// Inside each host a reduce-scatter leaves the host's sums on the rails; rails all-reduce them; an all-gather inside brings
// the results to all.
Program all_reduce_by(const char* name, const Shape& s, const Hosts& hosts, Make between, uint32_t width) {
  Composer c(name, Coll::all_reduce, s, hosts, static_cast<uint32_t>(hosts.rails) * width);
  const auto host = static_cast<uint32_t>(hosts.host);
  const bool alone = is_alone(hosts);
  // What a ring sends first comes last, and what it receives last comes first, so that seams fuse.
  for (uint32_t i = 0; i < width && !alone; ++i)
    c.inside(scatter_inside(hosts), of_all_rails(hosts, width, (host + i) % width), contribution, output);
  c.between(between, of_own_rail(hosts, width), alone ? contribution : output, output);
  for (uint32_t i = 0; i < width && !alone; ++i)
    c.inside(gather_inside(hosts), of_all_rails(hosts, width, (host + 1 + i) % width), output, output);
  return c.done();
}

// The root's host shares the data out among all its ranks; rails carry it to the other hosts, where an all-gather inside
// brings it to all.
Program broadcast_by(const char* name, const Shape& s, const Hosts& hosts, Make between, uint32_t width) {
  Composer c(name, Coll::broadcast, s, hosts, static_cast<uint32_t>(hosts.rails) * width);
  const int root_host = hosts.host_of[static_cast<size_t>(s.root)], root = hosts.local_of[static_cast<size_t>(s.root)];
  const bool alone = is_alone(hosts), at_root = hosts.host == root_host;
  for (uint32_t i = 0; i < width && at_root && !alone; ++i) {
    if (!is_large(hosts)) {
      c.inside(sliced_broadcast, of_all_rails(hosts, width, i), input, output, root);
      continue;
    }
    for (uint32_t rail = 0; rail < static_cast<uint32_t>(hosts.rails); ++rail)
      c.inside(chain_broadcast, [&](uint32_t) { return rail * width + i; }, input, output, root);
  }
  c.between(between, of_own_rail(hosts, width), alone ? input : output, output, root_host);
  for (uint32_t i = 0; i < width && !at_root && !alone; ++i)
    c.inside(gather_inside(hosts), of_all_rails(hosts, width, i), output, output);
  return c.done();
}

// A reduce-scatter inside each host, a reduction to the root's host on each rail, and the root gathers the results.
Program reduce_by(const char* name, const Shape& s, const Hosts& hosts, Make between, uint32_t width) {
  Composer c(name, Coll::reduce, s, hosts, static_cast<uint32_t>(hosts.rails) * width);
  const int root_host = hosts.host_of[static_cast<size_t>(s.root)], root = hosts.local_of[static_cast<size_t>(s.root)];
  const bool alone = is_alone(hosts);
  const Where sum = [width](uint32_t chunk) { return scratch(chunk % width); };  // of this rank's rail
  const Where result = s.rank == s.root ? Where(output) : sum;
  if (!alone) c.steps().use_scratch(width);
  for (uint32_t i = 0; i < width && !alone; ++i) c.inside(scatter_inside(hosts), of_all_rails(hosts, width, i), contribution, sum);
  c.between(between, of_own_rail(hosts, width), alone ? contribution : sum, result, root_host);
  for (uint32_t i = 0; i < width && hosts.host == root_host && !alone; ++i)
    c.inside(direct_gather, of_all_rails(hosts, width, i), result, output, root);
  return c.done();
}

constexpr uint32_t kHalves = 2;  // chunks of the double tree

}  // namespace

Program hierarchical_all_reduce(const Shape& s) {
  const Hosts hosts(s.placement, s.nranks, s.rank);
  return all_reduce_by("hierarchical", s, hosts, ring_all_reduce, static_cast<uint32_t>(hosts.count()));
}

Program hierarchical_broadcast(const Shape& s) { return broadcast_by("hierarchical", s, Hosts(s.placement, s.nranks, s.rank), chain_broadcast, 1); }

Program hierarchical_reduce(const Shape& s) { return reduce_by("hierarchical", s, Hosts(s.placement, s.nranks, s.rank), chain_reduce, 1); }

// What this host has for each rank is combined on that rank's rail; then each rail combines what its hosts have.
Program hierarchical_reduce_scatter(const Shape& s) {
  const Hosts h(s.placement, s.nranks, s.rank);
  Composer c("hierarchical", Coll::reduce_scatter, s, h);
  const int k = h.count(), layers = layers_of(h.most, h.rails);
  const bool alone = is_alone(h);
  const Where sum = [&](uint32_t rank) {  // of this rank's rail: a place for each host and layer
    return scratch(static_cast<uint32_t>(h.host_of[rank] + k * (h.local_of[rank] / h.rails)));
  };
  if (!alone) c.steps().use_scratch(static_cast<uint32_t>(k * layers));
  const auto chunk_inside = [&](int host, int layer) {
    return [&h, host, layer](uint32_t local) {
      return static_cast<int>(local) < h.rails ? chunk_at(h, host, static_cast<int>(local) + layer * h.rails) : kNoChunk;
    };
  };
  for (int i = 0; i < k && !alone; ++i)
    for (int layer = 0; layer < layers; ++layer)
      c.inside(scatter_inside(h), chunk_inside(wrap(h.host + i, k), layer), contribution, sum);
  for (int layer = 0; layer < layers; ++layer) {
    const auto chunk = [&](uint32_t host) { return chunk_at(h, static_cast<int>(host), h.local + layer * h.rails); };
    c.between(ring_reduce_scatter, chunk, alone ? contribution : sum, layer == 0 ? always(output(0)) : sum);
    // A rank beyond the rails gets its result from the one that it shares a rail with.
    if (layer == 0) continue;
    const uint32_t mine = chunk_at(h, h.host, h.local % h.rails + layer * h.rails);
    if (mine == kNoChunk) continue;
    const int owner = h.rank_at(h.host, h.local % h.rails), user = static_cast<int>(mine);
    if (s.rank == owner) c.steps().step(mine, {sum(mine)}, {slot(user)});
    if (s.rank == user) c.steps().step(mine, {slot(owner)}, {output(0)});
  }
  return c.done();
}

// The ranks of each host gather from each other; rails gather what the hosts have; and what arrived on the rails is
// gathered inside.
Program hierarchical_all_gather(const Shape& s) {
  const Hosts h(s.placement, s.nranks, s.rank);
  Composer c("hierarchical", Coll::all_gather, s, h);
  const int k = h.count(), layers = layers_of(h.most, h.rails);
  c.inside(gather_inside(h), [&](uint32_t local) { return chunk_at(h, h.host, static_cast<int>(local)); }, always(input(0)), output);
  for (int layer = 0; layer < layers; ++layer)
    c.between(ring_all_gather, [&](uint32_t host) { return chunk_at(h, static_cast<int>(host), h.local + layer * h.rails); }, output, output);
  for (int i = 1; i < k && !is_alone(h); ++i)
    for (int layer = layers - 1; layer >= 0; --layer)
      c.inside(
          gather_inside(h),
          [&](uint32_t local) {
            return static_cast<int>(local) < h.rails ? chunk_at(h, wrap(h.host + i, k), static_cast<int>(local) + layer * h.rails) : kNoChunk;
          },
          output, output);
  return c.done();
}

// Hosts meet in pairs. What a host has for a rank of another is collected by the local rank of the same number (modulo the
// host's ranks), which alone sends it there: so a rank talks to one rank of each other host. Both hosts of a pair collect
// before they exchange, so that in place nothing is overwritten unsent.
Program hierarchical_all_to_all(const Shape& s) {
  const Hosts h(s.placement, s.nranks, s.rank);
  Composer c("hierarchical", Coll::all_to_all, s, h);
  const auto n = static_cast<uint32_t>(s.nranks);
  const int k = h.count(), g = h.size(h.host);
  c.steps().use_scratch(static_cast<uint32_t>(g * layers_of(h.most, g)));
  const auto collected = [&](int local, int layer) { return scratch(static_cast<uint32_t>(layer * g + local)); };
  for (int round = 0; round < k; ++round) {
    const int other = wrap(round - h.host, k), theirs = h.size(other);
    const bool same = other == h.host;
    const int layers = layers_of(theirs, g);  // ranks there for each one here
    // Collected once for each rank there, this rank's own part can go straight from the input: before anything is received.
    const bool own_from_input = layers == 1 && !same;
    for (int layer = 0; layer < layers; ++layer) {
      const auto chunk = [&](uint32_t pair) {
        const int from = static_cast<int>(pair) / g, local = static_cast<int>(pair) % g, to = h.rank_at(other, local + layer * g);
        if (to < 0 || (own_from_input && from == h.local && local == h.local)) return kNoChunk;
        return chunk_between(h.rank_at(h.host, from), to, s);
      };
      c.inside(pairwise_all_to_all, chunk, [&](uint32_t x) { return input(x % n); },
               [&](uint32_t x) { return same ? output(x / n) : collected(h.local_of[x / n], layer); });
    }
    if (same) continue;
    const int layer_of_sender = h.local / theirs, sender = h.rank_at(other, h.local % theirs);
    for (int layer = 0; layer < std::max(layers, layer_of_sender + 1); ++layer)
      for (int i = 0; i < std::max(g, theirs); ++i) {
        const int to = layer < layers && i < g ? h.rank_at(other, h.local + layer * g) : -1, local = wrap(h.local + i, g);
        if (to >= 0)
          c.steps().step(chunk_between(h.rank_at(h.host, local), to, s),
                         {own_from_input && i == 0 ? input(static_cast<uint32_t>(to)) : collected(local, layer)}, {slot(to)});
        if (layer != layer_of_sender || i >= theirs) continue;
        const int from = h.rank_at(other, wrap(h.local % theirs + i, theirs));
        c.steps().step(chunk_between(from, s.rank, s), {slot(sender)}, {output(static_cast<uint32_t>(from))});
      }
  }
  return c.done();
}

// Trees between hosts, each rail with two of its own; on one host each rank is a node.
Program tree_all_reduce(const Shape& s) {
  const Hosts hosts(s.placement, s.nranks, s.rank);
  return hosts.count() == 1 ? double_tree_all_reduce(s) : all_reduce_by("tree", s, hosts, double_tree_all_reduce, kHalves);
}
Program tree_broadcast(const Shape& s) {
  const Hosts hosts(s.placement, s.nranks, s.rank);
  return hosts.count() == 1 ? double_tree_broadcast(s) : broadcast_by("tree", s, hosts, double_tree_broadcast, kHalves);
}
Program tree_reduce(const Shape& s) {
  const Hosts hosts(s.placement, s.nranks, s.rank);
  return hosts.count() == 1 ? double_tree_reduce(s) : reduce_by("tree", s, hosts, double_tree_reduce, kHalves);
}

}  // namespace muster
