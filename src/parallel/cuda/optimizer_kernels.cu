#include "exec/cuda/codecs.cuh"
#include "parallel/cuda/optimizer_kernels.h"

namespace muster::cuda {
namespace {

static_assert(kOptimizerThreads == kSquaresLanes);
static_assert(kOptimizerThreads == zero::kQuantisedBlock);

// Every i below n is one thread's.
__device__ uint64_t first_element() { return uint64_t{blockIdx.x} * kOptimizerThreads + threadIdx.x; }
__device__ uint64_t stride() { return uint64_t{gridDim.x} * kOptimizerThreads; }

template <class C>
struct Typed {
  using Element = typename C::Element;
  static __device__ Element* of(void* p) { return static_cast<Element*>(p); }
  static __device__ const Element* of(const void* p) { return static_cast<const Element*>(p); }
};

template <class C>
__global__ void __launch_bounds__(kOptimizerThreads) adam(const __grid_constant__ AdamArgs a) {
  const AdamFactors& f = a.factors;
  constexpr bool kOwnMaster = sizeof(typename C::Element) == sizeof(float);
  auto* const w = Typed<C>::of(a.parameters);
  const auto* const gradients = Typed<C>::of(a.gradients);
  for (uint64_t i = first_element(); i < a.n; i += stride()) {
    float* exact = a.master + i;
    if constexpr (kOwnMaster) exact = w + i;
    const float g = __fmul_rn(C::decode(gradients[i]), f.gradient);
    const float m = __fadd_rn(__fmul_rn(f.beta1, a.first[i]), __fmul_rn(f.rest1, g));
    const float v = __fadd_rn(__fmul_rn(f.beta2, a.second[i]), __fmul_rn(__fmul_rn(f.rest2, g), g));
    a.first[i] = m;
    a.second[i] = v;
    const float by = __fadd_rn(__fsqrt_rn(__fdiv_rn(v, f.correct2)), f.epsilon);
    const float change = __fdiv_rn(__fmul_rn(f.learning_rate, __fdiv_rn(m, f.correct1)), by);
    const float changed = __fsub_rn(__fmul_rn(*exact, f.keep), change);
    *exact = changed;
    if constexpr (!kOwnMaster) w[i] = C::encode(changed);
  }
}

template <class C>
__global__ void __launch_bounds__(kOptimizerThreads) add_to(void* to, const void* from, uint64_t n) {
  auto* const sums = Typed<C>::of(to);
  const auto* const more = Typed<C>::of(from);
  for (uint64_t i = first_element(); i < n; i += stride())
    sums[i] = C::encode(__fadd_rn(C::decode(sums[i]), C::decode(more[i])));
}

template <class C>
__global__ void __launch_bounds__(kOptimizerThreads) round_to(const float* from, void* to, uint64_t n) {
  auto* const rounded = Typed<C>::of(to);
  for (uint64_t i = first_element(); i < n; i += stride()) rounded[i] = C::encode(from[i]);
}

// The order is sum_of_squares()'s. Products of two float32 are exact in float64.
template <class C>
__global__ void __launch_bounds__(kOptimizerThreads) squares(const void* x, uint64_t n, double* sums) {
  __shared__ double lanes[kSquaresLanes];
  const auto* const values = Typed<C>::of(x);
  const uint64_t begin = uint64_t{blockIdx.x} * kSquaresBlock;
  const uint64_t end = n - begin < kSquaresBlock ? n : begin + kSquaresBlock;
  double sum = 0;
  for (uint64_t i = begin + threadIdx.x; i < end; i += kSquaresLanes) {
    const double v = C::decode(values[i]);
    sum = __dadd_rn(sum, __dmul_rn(v, v));
  }
  lanes[threadIdx.x] = sum;
  for (uint32_t half = kSquaresLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) lanes[threadIdx.x] = __dadd_rn(lanes[threadIdx.x], lanes[half + threadIdx.x]);
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = lanes[0];
}

// The largest of all threads' values, which are no NaNs, for all of them.
__device__ float largest_of_block(float mine) {
  __shared__ float values[kOptimizerThreads];
  values[threadIdx.x] = mine;
  for (uint32_t half = kOptimizerThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] = fmaxf(values[threadIdx.x], values[half + threadIdx.x]);
  }
  __syncthreads();
  return values[0];
}

template <class C>
__global__ void __launch_bounds__(kOptimizerThreads) quantise_blocks(const __grid_constant__ QuantiseArgs a) {
  auto* const q = static_cast<int8_t*>(a.to);
  const uint64_t i = first_element();
  const float x = i < a.n ? C::decode(Typed<C>::of(a.from)[i]) : 0;
  const float infinity = __uint_as_float(0x7f800000u);
  const float largest = largest_of_block(fabsf(x) < infinity ? fabsf(x) : infinity);
  const float scale = largest < infinity ? __fdiv_rn(largest, 127) : __uint_as_float(0x7fc00000u);
  if (threadIdx.x == 0) a.scales[blockIdx.x] = scale;
  if (i < a.n)
    q[i] = scale > 0 ? static_cast<int8_t>(fminf(fmaxf(rintf(__fdiv_rn(x, scale)), -127), 127)) : int8_t{0};
  // What fills the last float before the scales.
  else if (q + i < reinterpret_cast<int8_t*>(a.scales))
    q[i] = 0;
}

template <class C>
__global__ void __launch_bounds__(kOptimizerThreads)
    dequantise_blocks(const __grid_constant__ QuantiseArgs a) {
  const uint64_t i = first_element();
  if (i >= a.n) return;
  const auto q = static_cast<float>(static_cast<const int8_t*>(a.from)[i]);
  Typed<C>::of(a.to)[i] = C::encode(__fmul_rn(q, a.scales[blockIdx.x]));
}

template <class Kernel>
const void* of_type(DataType type, Kernel half, Kernel bfloat, Kernel single) {
  return reinterpret_cast<const void*>(type == DataType::float16    ? half
                                       : type == DataType::bfloat16 ? bfloat
                                                                    : single);
}

using Single = Native<float>;

}  // namespace

const void* adam_kernel(DataType type) {
  return of_type(type, &adam<Float16>, &adam<Bfloat16>, &adam<Single>);
}
const void* add_kernel(DataType type) {
  return of_type(type, &add_to<Float16>, &add_to<Bfloat16>, &add_to<Single>);
}
const void* round_kernel(DataType type) {
  return of_type(type, &round_to<Float16>, &round_to<Bfloat16>, &round_to<Single>);
}
const void* squares_kernel(DataType type) {
  return of_type(type, &squares<Float16>, &squares<Bfloat16>, &squares<Single>);
}
const void* quantise_kernel(DataType type) {
  return of_type(type, &quantise_blocks<Float16>, &quantise_blocks<Bfloat16>, &quantise_blocks<Single>);
}
const void* dequantise_kernel(DataType type) {
  return of_type(type, &dequantise_blocks<Float16>, &dequantise_blocks<Bfloat16>, &dequantise_blocks<Single>);
}

}  // namespace muster::cuda
