#include "device/host/kernels.h"

#include <array>

#include "base/error.h"
#include "device/host/bit_kernels.h"
#include "device/host/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "device/host/kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace muster::HWY_NAMESPACE {
namespace {

template <class C, template <class> class Op>
void reduce(const ReduceArgs& args) {
  Kernel<C, Op<C>, false>(args).run();
}

// Sums of signed and unsigned integers are the same bits; what follows the sum is not.
template <class Plain, class Scaled>
void reduce_sum(const ReduceArgs& args) {
  if ((args.weighted | args.divisor) == 0) {
    Kernel<Plain, Sum<Plain>, false>(args).run();
  } else {
    Kernel<Scaled, Sum<Scaled>, true>(args).run();
  }
}

template <class C, class Unsigned = C>
constexpr std::array<ReduceFn, 4> kernels_of() {
  return {&reduce_sum<Unsigned, C>, &reduce<Unsigned, Prod>, &reduce<C, Max>, &reduce<C, Min>};
}

ReduceFn choose(DataType type, RedOp op) {
  static constexpr std::array<ReduceFn, 4> kTable[kDataTypes] = {
      kernels_of<Native<int8_t>, Native<uint8_t>>(),
      kernels_of<Native<uint8_t>>(),
      kernels_of<Native<int32_t>, Native<uint32_t>>(),
      kernels_of<Native<uint32_t>>(),
      kernels_of<Native<int64_t>, Native<uint64_t>>(),
      kernels_of<Native<uint64_t>>(),
      kernels_of<Float16>(),
      kernels_of<Native<float>>(),
      kernels_of<Native<double>>(),
      kernels_of<Bfloat16>(),
      kernels_of<Small<Float8E4m3Format>>(),
      kernels_of<Small<Float8E5m2Format>>(),
  };
  const RedOp base = op == RedOp::avg || op == RedOp::pre_mul_sum ? RedOp::sum : op;
  return kTable[static_cast<int>(type)][static_cast<int>(base)];
}

}  // namespace
}  // namespace muster::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster {
namespace {

struct Target {
  int64_t bit = 0;
  ReduceFn (*choose)(DataType, RedOp) = nullptr;
};

// Compiled in, best first and the one that runs everywhere last; a null `choose` is one that isn't compiled
// in.
constexpr Target kCompiled[] = {
    {HWY_AVX3, HWY_CHOOSE_AVX3(choose)},
    {HWY_AVX2, HWY_CHOOSE_AVX2(choose)},
    {HWY_SSE4, HWY_CHOOSE_SSE4(choose)},
    {HWY_SSSE3, HWY_CHOOSE_SSSE3(choose)},
    {HWY_STATIC_TARGET, &HWY_STATIC_DISPATCH(choose)},
};

struct Targets {
  Target list[std::size(kCompiled)];
  int count = 0;

  Targets() {
    const int64_t runs = hwy::SupportedTargets() | HWY_STATIC_TARGET;
    for (const Target& t : kCompiled) {
      const bool listed = count > 0 && list[count - 1].choose == t.choose;
      if (t.choose != nullptr && (t.bit & runs) != 0 && !listed) list[count++] = t;
    }
  }
};

const Targets& targets() {
  static const Targets t;
  return t;
}

}  // namespace

ReduceFn reduce_kernel_of_target(int target, DataType type, RedOp op) {
  const auto t = static_cast<unsigned>(type), o = static_cast<unsigned>(op);
  if (t >= kDataTypes || o >= kRedOps || target < 0 || target >= targets().count) {
    fail(Result::invalid_argument, "no host kernel for data type {}, reduction {}, instruction set {} of {}",
         t, o, target, targets().count);
  }
  const Target& here = targets().list[target];
  return op < RedOp::bit_and ? here.choose(type, op) : bit_kernel(here.bit, type, op);
}

ReduceFn reduce_kernel(DataType type, RedOp op) { return reduce_kernel_of_target(0, type, op); }

int kernel_target_count() { return targets().count; }

const char* kernel_target_name(int target) { return hwy::TargetName(targets().list[target].bit); }

}  // namespace muster
#endif
