#include "algorithms/algorithms.h"

#include "algorithms/families.h"

namespace muster {

namespace {
// What Algorithm says of each, as a sum.
enum Trait : unsigned {
  kPlain = 0,
  kWhole = 1,
  kWindows = 2,
  kRankOrder = 4,
  kNamesAll = 8,
  kByHost = 16,
  kTwoBuffers = 32,
  kAlongRings = 64
};

constexpr Algorithm row(const char* name, Coll coll, Program (*make)(const Shape&), unsigned traits,
                        const char* idea) {
  const auto has = [&](Trait t) { return (traits & t) != 0; };
  return {name, coll,  make, has(kWhole), has(kWindows), has(kRankOrder), idea, !has(kTwoBuffers), has(kNamesAll),
          has(kByHost), has(kAlongRings)};
}

// clang-format off
constexpr Algorithm kAlgorithms[] = {
    row("one_shot", Coll::all_reduce, one_shot_all_reduce, kRankOrder | kNamesAll,
        "everybody sends everything to everybody; each combines all"),
    row("direct", Coll::all_reduce, direct_all_reduce, kRankOrder | kNamesAll,
        "each rank combines one slice and sends it to all"),
    row("ring", Coll::all_reduce, ring_all_reduce, kAlongRings,
        "slices travel round a ring twice: summed, then copied"),
    row("doubling", Coll::all_reduce, doubling_all_reduce, kPlain,
        "partners 1, 2, 4 ... away exchange all they have"),
    row("halving_doubling", Coll::all_reduce, halving_doubling_all_reduce, kWhole,
        "partners exchange halves of halves, then the results"),
    row("bruck", Coll::all_reduce, bruck_all_reduce, kWhole,
        "logarithmically many messages for any rank count"),
    row("window", Coll::all_reduce, window_all_reduce, kWindows | kRankOrder,
        "each rank loads one slice from all and stores it to all"),
    row("hierarchical", Coll::all_reduce, hierarchical_all_reduce, kByHost,
        "reduce-scatter inside hosts, all-reduce between them on each rail, all-gather inside"),
    row("hierarchical_window", Coll::all_reduce, hierarchical_window_all_reduce, kWindows | kByHost,
        "hierarchical, and inside hosts ranks load from all and store to all"),
    row("tree", Coll::all_reduce, tree_all_reduce, kPlain,
        "two binary trees between hosts, each for half of the data, up and down"),

    row("direct", Coll::reduce_scatter, direct_reduce_scatter, kRankOrder | kNamesAll,
        "each rank receives all parts of its shard"),
    row("ring", Coll::reduce_scatter, ring_reduce_scatter, kAlongRings,
        "partial sums travel round a ring"),
    row("bruck", Coll::reduce_scatter, bruck_reduce_scatter, kWhole,
        "logarithmically many messages for any rank count"),
    row("window", Coll::reduce_scatter, window_reduce_scatter, kWindows | kRankOrder,
        "each rank loads its shard from all"),
    row("hierarchical", Coll::reduce_scatter, hierarchical_reduce_scatter, kByHost,
        "hosts combine what they have for each rank, rails the rest"),

    row("direct", Coll::all_gather, direct_all_gather, kNamesAll,
        "each rank sends its part to all"),
    row("ring", Coll::all_gather, ring_all_gather, kAlongRings,
        "parts travel round a ring"),
    row("bruck", Coll::all_gather, bruck_all_gather, kWhole,
        "each message doubles what a rank has"),
    row("window", Coll::all_gather, window_all_gather, kWindows,
        "each rank loads the others' parts"),
    row("hierarchical", Coll::all_gather, hierarchical_all_gather, kByHost,
        "gathered inside hosts and on rails, then inside again"),

    row("direct", Coll::broadcast, direct_broadcast, kNamesAll,
        "the root sends to all"),
    row("binomial", Coll::broadcast, binomial_broadcast, kPlain,
        "who has it passes it on: a tree of logarithmic depth"),
    row("chain", Coll::broadcast, chain_broadcast, kAlongRings,
        "tiles pass from rank to rank, many at a time"),
    row("scatter_gather", Coll::broadcast, sliced_broadcast, kNamesAll,
        "the root scatters slices, the others gather them"),
    row("window", Coll::broadcast, window_broadcast, kWindows,
        "each rank loads from the root"),
    row("hierarchical", Coll::broadcast, hierarchical_broadcast, kByHost,
        "the root shares the data out, rails carry it to other hosts, gathered inside"),
    row("tree", Coll::broadcast, tree_broadcast, kPlain,
        "two binary trees between hosts, each for half of the data, down"),

    row("direct", Coll::reduce, direct_reduce, kRankOrder | kNamesAll,
        "all send to the root, which combines all"),
    row("binomial", Coll::reduce, binomial_reduce, kPlain,
        "a tree of logarithmic depth; each rank adds its children's sums"),
    row("chain", Coll::reduce, chain_reduce, kAlongRings,
        "sums pass from rank to rank, many tiles at a time"),
    row("scatter_gather", Coll::reduce, sliced_reduce, kRankOrder | kNamesAll,
        "each rank combines one slice; the root gathers them"),
    row("window", Coll::reduce, window_reduce, kWindows | kRankOrder,
        "each rank loads one slice from all and stores it at the root"),
    row("hierarchical", Coll::reduce, hierarchical_reduce, kByHost,
        "reduce-scatter inside hosts, chains of hosts on each rail, the root gathers"),
    row("tree", Coll::reduce, tree_reduce, kPlain,
        "two binary trees between hosts, each for half of the data, up"),

    row("pairwise", Coll::all_to_all, pairwise_all_to_all, kPlain,
        "each rank sends to all, next rank first"),
    row("window", Coll::all_to_all, window_all_to_all, kWindows | kTwoBuffers,
        "each rank loads its parts from all"),
    row("hierarchical", Coll::all_to_all, hierarchical_all_to_all, kByHost,
        "collected inside by the rank of the same number, exchanged on rails"),

    row("direct", Coll::gather, direct_gather, kPlain,
        "all send to the root"),
    row("binomial", Coll::gather, binomial_gather, kWhole,
        "subtrees travel in one message each"),
    row("window", Coll::gather, window_gather, kWindows,
        "each rank stores its part at the root"),

    row("direct", Coll::scatter, direct_scatter, kPlain,
        "the root sends each rank its part"),
    row("binomial", Coll::scatter, binomial_scatter, kWhole,
        "subtrees travel in one message each"),
    row("window", Coll::scatter, window_scatter, kWindows,
        "each rank loads its part from the root"),
};
// clang-format on
}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(Coll coll, std::string_view name) {
  for (const Algorithm& a : kAlgorithms)
    if (a.coll == coll && name == a.name) return &a;
  return nullptr;
}

Program make_program(const Algorithm& algorithm, Shape shape, int channels) {
  if (channels == 1) return algorithm.make(shape);
  std::vector<Program> each;
  for (shape.channel = 0; shape.channel < channels; ++shape.channel) each.push_back(algorithm.make(shape));
  return join(std::move(each));
}

}  // namespace muster
