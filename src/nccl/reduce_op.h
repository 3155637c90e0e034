// What an ncclRedOp_t stands for.
#pragma once

#include "muster/types.h"
#include "nccl.h"
#include "nccl/comm_handle.h"

namespace muster::nccl {

// Those that aren't built in: made by ncclRedOpCreatePreMulSum, or an extension of muster.h.
// invalid_argument: none of this communicator's.
CustomOp custom_op(const CommHandle& comm, ncclRedOp_t op);

inline bool is_built_in(ncclRedOp_t op) { return static_cast<unsigned>(op) < ncclNumOps; }

}  // namespace muster::nccl
