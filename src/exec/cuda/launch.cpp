#include "exec/cuda/launch.h"

#include "base/error.h"
#include "device/cuda/check.h"
#include "exec/cuda/kernels.h"

namespace muster::cuda {
namespace {

constexpr Truth truth_of(DataType type) {
  switch (type) {
    case DataType::float16:
      return {0x7fff, 0x3c00};
    case DataType::bfloat16:
      return {0x7fff, 0x3f80};
    case DataType::float32:
      return {0x7fffffff, 0x3f800000};
    case DataType::float64:
      return {0x7fffffffffffffff, 0x3ff0000000000000};
    case DataType::float8_e4m3:
      return {0x7f, 0x38};
    case DataType::float8_e5m2:
      return {0x7f, 0x3c};
    default:
      return {~uint64_t{0}, 1};
  }
}

}  // namespace

const void* reducing_kernel(DataType type, RedOp op) {
  if (size_of(type) == 0 || static_cast<int>(op) >= kRedOps || !is_defined(op, type))
    fail(Result::invalid_argument,
         "no GPU kernel for data type {}, reduction {}: bitwise operations are for integer types",
         static_cast<int>(type), static_cast<int>(op));
  return op >= RedOp::bit_and ? bits_kernel(size_of(type)) : arithmetic_kernel(type);
}

const void* moving_kernel() { return arithmetic_kernel(DataType::uint8); }

Truth truth_of(DataType type, RedOp op) { return op >= RedOp::logical_and ? truth_of(type) : Truth{}; }

void launch(const void* kernel, const KernelLaunch& calls, uint32_t blocks, uint32_t threads, StreamHandle stream) {
  void* values[] = {const_cast<KernelLaunch*>(&calls)};
  check(cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), values, 0, stream),
        "launching {} blocks of {} threads for {} collectives on {}", blocks, threads, calls.count,
        describe_device(current_device()));
}

void launch(const MessageArgs& args, uint32_t blocks, uint32_t threads, StreamHandle stream) {
  void* values[] = {const_cast<MessageArgs*>(&args)};
  check(cudaLaunchKernel(message_kernel(), dim3(blocks), dim3(threads), values, 0, stream),
        "launching {} blocks of {} threads for sends and receives on {}", blocks, threads,
        describe_device(current_device()));
}

}  // namespace muster::cuda
