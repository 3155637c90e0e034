#include "muster/types.h"

#include <cstring>

#include "base/error.h"

namespace muster {

const char* name_of(DataType t) {
  static constexpr const char* names[kDataTypes] = {"int8",    "uint8",   "int32",    "uint32",      "int64",      "uint64",
                                                    "float16", "float32", "float64",  "bfloat16",    "float8_e4m3", "float8_e5m2"};
  const auto i = static_cast<unsigned>(t);
  return i < kDataTypes ? names[i] : "?";
}

const char* name_of(RedOp op) {
  static constexpr const char* names[kRedOps] = {"sum",    "prod",   "max",     "min",         "avg",        "pre_mul_sum",
                                                  "bit_and", "bit_or", "bit_xor", "logical_and", "logical_or", "logical_xor"};
  const auto i = static_cast<unsigned>(op);
  return i < kRedOps ? names[i] : "?";
}

const char* name_of(Result r) {
  static constexpr const char* names[] = {"success",       "unhandled device error", "system error", "internal error", "invalid argument",
                                          "invalid usage", "remote error",           "in progress",  "timeout"};
  const auto i = static_cast<unsigned>(r);
  return i < std::size(names) ? names[i] : "?";
}

const char* error_string(Result r) {
  switch (r) {
    case Result::success: return "no error";
    case Result::unhandled_device_error: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case Result::system_error: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case Result::internal_error: return "internal error - a bug of the communication library, please report it";
    case Result::invalid_argument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case Result::invalid_usage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case Result::remote_error: return "remote process exited or there was a network error";
    case Result::in_progress: return "NCCL operation in progress";
    case Result::timeout: return "timeout: a rank waited longer than allowed";
  }
  return "unknown result code";
}

ReduceOp ReduceOp::pre_mul_sum(const void* scalar, DataType type) {
  const size_t bytes = size_of(type);
  if (!scalar) fail(Result::invalid_argument, "pre_mul_sum: scalar is null; pass the address of one {} value", name_of(type));
  if (!bytes) fail(Result::invalid_argument, "pre_mul_sum: {} is not an element type", static_cast<int>(type));
  ReduceOp op(RedOp::pre_mul_sum);
  op.scalar_type = type;
  std::memcpy(&op.scalar_bits, scalar, bytes);
  return op;
}

}  // namespace muster
