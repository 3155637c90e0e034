#include "exec/cuda/interpreter.cuh"
#include "exec/cuda/kernels.h"

namespace muster::cuda {
namespace {

template <class C>
__global__ void __launch_bounds__(kMostKernelThreads, 1) arithmetic(const __grid_constant__ KernelLaunch launch) {
  __shared__ Pass pass;
  run_calls(launch, pass, [](const KernelArgs& args, Pass& p) {
    if (args.lines != 0) return Arithmetic<C>::run_lines(args, p);
    Arithmetic<C>::run(p);
    return true;
  });
}

// T: the unsigned integer as wide as the elements.
template <class T>
__global__ void __launch_bounds__(kMostKernelThreads, 1) bits(const __grid_constant__ KernelLaunch launch) {
  __shared__ Pass pass;
  run_calls(launch, pass, [](const KernelArgs& args, Pass& p) {
    const auto bits_of_true = static_cast<T>(args.magnitude), value_of_true = static_cast<T>(args.one);
    if (args.lines != 0) return BitOperations<T>::run_lines(args, p, bits_of_true, value_of_true);
    BitOperations<T>::run(p, bits_of_true, value_of_true);
    return true;
  });
}

}  // namespace

const void* arithmetic_kernel(DataType type) {
  using Kernel = void (*)(KernelLaunch);
  static constexpr Kernel kKernels[kDataTypes] = {
      &arithmetic<Native<int8_t>>,
      &arithmetic<Native<uint8_t>>,
      &arithmetic<Native<int32_t>>,
      &arithmetic<Native<uint32_t>>,
      &arithmetic<Native<int64_t>>,
      &arithmetic<Native<uint64_t>>,
      &arithmetic<Float16>,
      &arithmetic<Native<float>>,
      &arithmetic<Native<double>>,
      &arithmetic<Bfloat16>,
      &arithmetic<Float8<Float8E4m3Format>>,
      &arithmetic<Float8<Float8E5m2Format>>,
  };
  return reinterpret_cast<const void*>(kKernels[static_cast<int>(type)]);
}

const void* bits_kernel(size_t element) {
  using Kernel = void (*)(KernelLaunch);
  const Kernel kernel = element == 1   ? &bits<uint8_t>
                        : element == 2 ? &bits<uint16_t>
                        : element == 4 ? &bits<uint32_t>
                                       : &bits<uint64_t>;
  return reinterpret_cast<const void*>(kernel);
}

}  // namespace muster::cuda
