#include "algorithms/algorithms.h"

#include "algorithms/families.h"

namespace muster {

namespace {
constexpr Algorithm kAlgorithms[] = {
    {"one_shot", Coll::all_reduce, one_shot_all_reduce, false, false, true,
     "everybody sends to everybody, each combines all"},
    {"direct", Coll::all_reduce, direct_all_reduce, false, false, true,
     "each rank combines one slice and sends it to all"},

    {"direct", Coll::reduce_scatter, direct_reduce_scatter, false, false, true,
     "each rank receives all parts of its shard"},

    {"direct", Coll::all_gather, direct_all_gather, false, false, false, "each rank sends its part to all"},

    {"direct", Coll::broadcast, direct_broadcast, false, false, false, "the root sends to all"},

    {"direct", Coll::reduce, direct_reduce, false, false, true, "all send to the root, which combines all"},

    {"pairwise", Coll::all_to_all, pairwise_all_to_all, false, false, false,
     "each rank sends to all, next rank first"},

    {"direct", Coll::gather, direct_gather, false, false, false, "all send to the root"},

    {"direct", Coll::scatter, direct_scatter, false, false, false, "the root sends each rank its part"},
};
}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(Coll coll, std::string_view name) {
  for (const Algorithm& a : kAlgorithms)
    if (a.coll == coll && name == a.name) return &a;
  return nullptr;
}

}  // namespace muster
