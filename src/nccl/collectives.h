// Collectives of whose algorithms the caller has a wish.
#pragma once

#include "comm/state.h"
#include "nccl.h"
#include "nccl/comm_handle.h"
#include "nccl/config.h"
#include "program/collective.h"

namespace muster::nccl {

// invalid_argument where the wish is forced and can't be met, with the reason and what can be.
ncclResult_t collective_with(const AlgorithmWish& wish, Coll coll, const void* send, void* recv, size_t count,
                             ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                             cudaStream_t stream);

// Whether the call is one on GPU memory, as its buffers say; its stream is CUDA's then, else the one that is
// returned.
HostStream* place(Call& call, const CommHandle& comm, cudaStream_t stream);

}  // namespace muster::nccl
