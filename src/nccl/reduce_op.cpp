#include "nccl/reduce_op.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "muster.h"
#include "nccl/entries.h"
#include "nccl/last_error.h"

namespace muster::nccl {
namespace {

constexpr int kFirstExtension = static_cast<int>(musterBitAnd),
              kLastExtension = static_cast<int>(musterLogicalXor);
static_assert(kLastExtension - kFirstExtension ==
              static_cast<int>(RedOp::logical_xor) - static_cast<int>(RedOp::bit_and));

// Numbers are given once in a process's life, so that one that is stale, or another communicator's, is seen
// as such. Those of the extensions lie above.
std::atomic<int> g_last_number{ncclNumOps};

int next_number() {
  int n = g_last_number.load();
  do {
    if (n >= kFirstExtension - 1)
      fail(Result::system_error, "no operation can be made any more: {} were made in this process",
           n - ncclNumOps);
  } while (!g_last_number.compare_exchange_weak(n, n + 1));
  return n + 1;
}

auto find(std::vector<CustomOp>& ops, ncclRedOp_t op) {
  return std::find_if(ops.begin(), ops.end(),
                      [&](const CustomOp& o) { return o.number == static_cast<int>(op); });
}

}  // namespace

CustomOp custom_op(const CommHandle& comm, ncclRedOp_t op) {
  const int number = static_cast<int>(op);
  if (number >= kFirstExtension && number <= kLastExtension)
    return {number, static_cast<RedOp>(static_cast<int>(RedOp::bit_and) + number - kFirstExtension), nullptr};
  for (const CustomOp& o : comm.ops)
    if (o.number == number) return o;
  fail(Result::invalid_argument,
       "operation {} is none: neither built in (0..{}), nor one that was made for communicator {} and not "
       "destroyed, nor one of muster.h",
       number, ncclNumOps - 1, comm.communicator.name());
}

ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                  ncclScalarResidence_t residence, ncclComm_t comm) {
  return query([&] {
    CommHandle& c = require_made(comm);
    require_pointer(op, "op");
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
      fail(Result::invalid_argument,
           "residence {} is neither ncclScalarDevice (0) nor ncclScalarHostImmediate (1)",
           static_cast<int>(residence));
    CustomOp custom{0, ReduceOp(RedOp::pre_mul_sum), nullptr};
    if (residence == ncclScalarHostImmediate) {
      custom.op = ReduceOp::pre_mul_sum(scalar, static_cast<DataType>(type));
    } else {
      require_pointer(scalar, "scalar");
      if (!size_of(static_cast<DataType>(type)))
        fail(Result::invalid_argument, "datatype {} is not an element type (0..{})", static_cast<int>(type),
             kDataTypes - 1);
      custom.op.scalar_type = static_cast<DataType>(type);
      custom.device_scalar = scalar;
    }
    custom.number = next_number();
    c.ops.push_back(custom);
    *op = static_cast<ncclRedOp_t>(custom.number);
  });
}

ncclResult_t RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return query([&] {
    CommHandle& c = require_comm(comm);
    if (is_built_in(op))
      fail(Result::invalid_argument, "operation {} is built in and can't be destroyed", static_cast<int>(op));
    const auto it = find(c.ops, op);
    if (it == c.ops.end())
      fail(Result::invalid_argument, "operation {} was not made for communicator {}, or was destroyed before",
           static_cast<int>(op), c.communicator.name());
    c.ops.erase(it);
  });
}

}  // namespace muster::nccl
