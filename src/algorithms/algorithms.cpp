#include "algorithms/algorithms.h"

#include "algorithms/families.h"

namespace muster {

namespace {
constexpr bool kWhole = true, kWindows = true, kRankOrder = true, kInPlace = true;

// name, collective, make, whole, windows, rank_order, idea, in_place
// clang-format off
constexpr Algorithm kAlgorithms[] = {
    {"one_shot",         Coll::all_reduce,     one_shot_all_reduce, false, false, kRankOrder,
     "everybody sends everything to everybody; each combines all"},
    {"direct",           Coll::all_reduce,     direct_all_reduce, false, false, kRankOrder,
     "each rank combines one slice and sends it to all"},
    {"ring",             Coll::all_reduce,     ring_all_reduce, false, false, false,
     "slices travel round a ring twice: summed, then copied"},
    {"doubling",         Coll::all_reduce,     doubling_all_reduce, false, false, false,
     "partners 1, 2, 4 ... away exchange all they have"},
    {"halving_doubling", Coll::all_reduce,     halving_doubling_all_reduce, kWhole, false, false,
     "partners exchange halves of halves, then the results"},
    {"bruck",            Coll::all_reduce,     bruck_all_reduce, kWhole, false, false,
     "logarithmically many messages for any rank count"},
    {"window",           Coll::all_reduce,     window_all_reduce, false, kWindows, kRankOrder,
     "each rank loads one slice from all and stores it to all"},
    {"hierarchical",     Coll::all_reduce, hierarchical_all_reduce, false, false, false,
     "reduce-scatter inside hosts, all-reduce between them on each rail, all-gather inside"},
    {"tree",             Coll::all_reduce, tree_all_reduce, false, false, false,
     "two binary trees between hosts, each for half of the data, up and down"},

    {"direct",           Coll::reduce_scatter, direct_reduce_scatter, false, false, kRankOrder,
     "each rank receives all parts of its shard"},
    {"ring",             Coll::reduce_scatter, ring_reduce_scatter, false, false, false,
     "partial sums travel round a ring"},
    {"bruck",            Coll::reduce_scatter, bruck_reduce_scatter, kWhole, false, false,
     "logarithmically many messages for any rank count"},
    {"window",           Coll::reduce_scatter, window_reduce_scatter, false, kWindows, kRankOrder,
     "each rank loads its shard from all"},
    {"hierarchical",     Coll::reduce_scatter, hierarchical_reduce_scatter, false, false, false,
     "hosts combine what they have for each rank, rails the rest"},

    {"direct",           Coll::all_gather,     direct_all_gather, false, false, false,
     "each rank sends its part to all"},
    {"ring",             Coll::all_gather,     ring_all_gather, false, false, false,
     "parts travel round a ring"},
    {"bruck",            Coll::all_gather,     bruck_all_gather, kWhole, false, false,
     "each message doubles what a rank has"},
    {"window",           Coll::all_gather,     window_all_gather, false, kWindows, false,
     "each rank loads the others' parts"},
    {"hierarchical",     Coll::all_gather, hierarchical_all_gather, false, false, false,
     "gathered inside hosts and on rails, then inside again"},

    {"direct",           Coll::broadcast,      direct_broadcast, false, false, false,
     "the root sends to all"},
    {"binomial",         Coll::broadcast,      binomial_broadcast, false, false, false,
     "who has it passes it on: a tree of logarithmic depth"},
    {"chain",            Coll::broadcast,      chain_broadcast, false, false, false,
     "tiles pass from rank to rank, many at a time"},
    {"scatter_gather",   Coll::broadcast,      sliced_broadcast, false, false, false,
     "the root scatters slices, the others gather them"},
    {"window",           Coll::broadcast,      window_broadcast, false, kWindows, false,
     "each rank loads from the root"},
    {"hierarchical",     Coll::broadcast, hierarchical_broadcast, false, false, false,
     "the root shares the data out, rails carry it to other hosts, gathered inside"},
    {"tree",             Coll::broadcast, tree_broadcast, false, false, false,
     "two binary trees between hosts, each for half of the data, down"},

    {"direct",           Coll::reduce,         direct_reduce, false, false, kRankOrder,
     "all send to the root, which combines all"},
    {"binomial",         Coll::reduce,         binomial_reduce, false, false, false,
     "a tree of logarithmic depth; each rank adds its children's sums"},
    {"chain",            Coll::reduce,         chain_reduce, false, false, false,
     "sums pass from rank to rank, many tiles at a time"},
    {"scatter_gather",   Coll::reduce,         sliced_reduce, false, false, kRankOrder,
     "each rank combines one slice; the root gathers them"},
    {"window",           Coll::reduce,         window_reduce, false, kWindows, kRankOrder,
     "each rank loads one slice from all and stores it at the root"},
    {"hierarchical",     Coll::reduce, hierarchical_reduce, false, false, false,
     "reduce-scatter inside hosts, chains of hosts on each rail, the root gathers"},
    {"tree",             Coll::reduce, tree_reduce, false, false, false,
     "two binary trees between hosts, each for half of the data, up"},

    {"pairwise",         Coll::all_to_all,     pairwise_all_to_all, false, false, false,
     "each rank sends to all, next rank first"},
    {"window",           Coll::all_to_all,     window_all_to_all, false, kWindows, false,
     "each rank loads its parts from all", !kInPlace},
    {"hierarchical",     Coll::all_to_all, hierarchical_all_to_all, false, false, false,
     "collected inside by the rank of the same number, exchanged on rails"},

    {"direct",           Coll::gather,         direct_gather, false, false, false,
     "all send to the root"},
    {"binomial",         Coll::gather,         binomial_gather, kWhole, false, false,
     "subtrees travel in one message each"},
    {"window",           Coll::gather,         window_gather, false, kWindows, false,
     "each rank stores its part at the root"},

    {"direct",           Coll::scatter,        direct_scatter, false, false, false,
     "the root sends each rank its part"},
    {"binomial",         Coll::scatter,        binomial_scatter, kWhole, false, false,
     "subtrees travel in one message each"},
    {"window",           Coll::scatter,        window_scatter, false, kWindows, false,
     "each rank loads its part from the root"},
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
  if (!shape.placement || shape.placement->rings.size() < 2) return replicate(algorithm.make(shape), channels);
  std::vector<Program> each;
  for (shape.channel = 0; shape.channel < channels; ++shape.channel) each.push_back(algorithm.make(shape));
  return join(std::move(each));
}

}  // namespace muster
