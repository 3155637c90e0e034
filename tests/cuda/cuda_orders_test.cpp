// What the memory checker and the race checker look at: each kind of step, access and wait of the kernels
// once.
#include <gtest/gtest.h>

#include "cuda/gpu_cases.h"
#include "cuda/gpus.h"

namespace muster {
namespace {

using test::GpuCase;

GpuCase one_of(Coll coll, const char* algorithm, DataType type, size_t offset) {
  GpuCase k{.algorithm = find_algorithm(coll, algorithm),
            .nranks = 4,
            .count = 1531,
            .channels = 2,
            .type = type,
            .offset = offset};
  k.mailbox.slots = 2;
  return k;
}

TEST(CudaOrders, SlotsAreFilledAndFreedInOrder) {
  MUSTER_NEEDS_GPUS(2);
  for (const size_t offset : {0, 4})
    for (const char* algorithm : {"ring", "one_shot", "direct", "tree"}) {
      run_gpu_case(one_of(Coll::all_reduce, algorithm, DataType::int32, offset));
      if (HasFatalFailure()) return;
    }
  for (const size_t offset : {0, 1})
    run_gpu_case(one_of(Coll::all_to_all, "pairwise", DataType::uint8, offset));
  for (const bool in_place : {false, true}) {
    GpuCase k = one_of(Coll::all_gather, "bruck", DataType::uint8, 0);  // messages of several pieces
    k.channels = 1;
    k.count = 500;
    k.in_place = in_place;
    run_gpu_case(k);
  }
}

TEST(CudaOrders, NarrowElementsAreReadAndWrittenWhole) {
  MUSTER_NEEDS_GPUS(2);
  for (const size_t offset : {0, 2})
    run_gpu_case(one_of(Coll::reduce_scatter, "ring", DataType::bfloat16, offset));
}

// Lines are whole in halves of 8 bytes only, and nothing but their flags orders them.
TEST(CudaOrders, LinesSayThemselvesThatTheyAreThere) {
  MUSTER_NEEDS_GPUS(2);
  for (const size_t offset : {0, 4})
    for (const char* algorithm : {"ring", "tree"}) {
      GpuCase k = one_of(Coll::all_reduce, algorithm, DataType::int32, offset);
      k.protocol = Protocol::ll;
      run_gpu_case(k);
      if (HasFatalFailure()) return;
    }
  GpuCase k = one_of(Coll::all_gather, "bruck", DataType::uint8, 1);
  k.channels = 1;
  k.count = 500;
  k.protocol = Protocol::ll;
  run_gpu_case(k);
  k = one_of(Coll::reduce_scatter, "ring", DataType::bfloat16, 2);
  k.protocol = Protocol::ll;
  run_gpu_case(k);
}

TEST(CudaOrders, PeersBuffersAreReadBeforeTheyAreLeft) {
  MUSTER_NEEDS_GPUS(2);
  run_gpu_case(one_of(Coll::all_reduce, "window", DataType::int32, 0));
  run_gpu_case(one_of(Coll::broadcast, "window", DataType::uint8, 0));
}

}  // namespace
}  // namespace muster
