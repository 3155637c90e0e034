// PTX as translated: each function runs on the host, compiled by g++, and on a simulated device, with the
// same random inputs; its results must agree bit for bit. What has no form on the host has a reference
// written out.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <cuda/atomic>
#include <random>

#include "device_memory.h"

namespace {

using u32 = uint32_t;
using u64 = uint64_t;
using s32 = int32_t;
using s64 = int64_t;

struct Input {
  u32 a, b, c;
  u64 x, y;
  float f, g;
  double d;
};

// Results are mixed into one number.
struct Mix {
  u64 value = 1469598103934665603ull;
  __host__ __device__ Mix& operator<<(u64 v) {
    value = (value ^ v) * 1099511628211ull + (v >> 31);
    return *this;
  }
};
template <class T>
__host__ __device__ u64 bits(T v) {
  u64 r = 0;
  memcpy(&r, &v, sizeof v);
  return r;
}
__host__ __device__ float no_nan(float v) { return v != v ? 0.f : v; }  // whose payloads differ
__host__ __device__ float abs_float(float v) { return v < 0 ? -v : v; }

#define SAME_ON_HOST(name)                                                          \
  struct name {                                                                     \
    static constexpr const char* kName = #name;                                     \
    static __host__ __device__ u64 on_device(const Input& i) { return compute(i); } \
    static __host__ u64 on_host(const Input& i) { return compute(i); }              \
    static __host__ __device__ u64 compute(const Input& i);                         \
  };                                                                                \
  __host__ __device__ u64 name::compute(const Input& i)

SAME_ON_HOST(Integers) {
  return (Mix() << i.x * i.y << (i.x >> (i.a & 63)) << (i.y << (i.b & 63))
                << static_cast<u64>(static_cast<s64>(i.x) / static_cast<s64>(i.b | 1)) << i.x % (i.c | 1)
                << static_cast<u64>(static_cast<s32>(i.a) % static_cast<s32>(i.b | 1)) << ~i.x << (i.x & i.y)
                << (i.x | i.y) << static_cast<u64>(-static_cast<s64>(i.b)))
      .value;
}
SAME_ON_HOST(Loops) {
  u32 r = i.a;
  for (u32 k = 0; k < (i.b & 15); k++) {
    r = r * 1664525u + 1013904223u;
    r = r & 8 ? r ^ i.c : (r << 7) | (r >> 25);
  }
  return r;
}
SAME_ON_HOST(Switches) {
  switch (i.a % 9) {
    case 0:
      return i.b;
    case 1:
      return i.c * 3;
    case 2:
      return i.x;
    case 3:
      return i.y ^ i.a;
    case 4:
      return i.b - i.c;
    case 5:
      return ~i.x;
    case 6:
      return i.x & i.y;
    case 7:
      return i.b / (i.c | 1);
    default:
      return 77;
  }
}
SAME_ON_HOST(SmallIntegers) {
  auto p = static_cast<uint8_t>(i.a);
  auto q = static_cast<int8_t>(i.b);
  auto r = static_cast<uint16_t>(i.c);
  auto s = static_cast<int16_t>(i.a >> 3);
  return (Mix() << static_cast<uint8_t>(p + q) << static_cast<u64>(static_cast<s64>(q * s))
                << static_cast<uint16_t>(r * r)
                << static_cast<u64>(static_cast<s64>(static_cast<int16_t>(s - r)))
                << static_cast<u64>(static_cast<s64>(q >> 2)))
      .value;
}
SAME_ON_HOST(WideIntegers) {
  using u128 = unsigned __int128;
  u128 p = static_cast<u128>(i.x) << 64 | i.y, q = static_cast<u128>(i.y) << 64 | i.a, sum = p + q,
       difference = p - (q >> 3);
  u128 product = static_cast<u128>(i.x) * i.y;
  return (Mix() << static_cast<u64>(sum >> 64) << static_cast<u64>(sum) << static_cast<u64>(difference >> 64)
                << static_cast<u64>(difference) << static_cast<u64>(product >> 64)
                << static_cast<u64>(product))
      .value;
}
SAME_ON_HOST(IntegersToFloats) {
  return (Mix() << bits(static_cast<float>(static_cast<s32>(i.a)))
                << bits(static_cast<double>(static_cast<s64>(i.x))) << bits(static_cast<float>(i.x))
                << bits(static_cast<double>(i.y)))
      .value;
}
SAME_ON_HOST(FloatsToIntegers) {  // a negative float to an unsigned integer is undefined in C++
  return (Mix() << static_cast<u64>(static_cast<s64>(i.f)) << static_cast<u32>(abs_float(i.g))
                << static_cast<u64>(static_cast<s64>(i.d * 3)))
      .value;
}
SAME_ON_HOST(Floats) {
  return (Mix() << bits(no_nan(i.f + i.g)) << bits(no_nan(i.f * i.g)) << bits(no_nan(i.f - i.g))
                << bits(no_nan(i.f / i.g)) << bits(no_nan(sqrtf(abs_float(i.f))))
                << bits(fmaf(i.f, i.g, 1.5f)) << bits(fma(i.d, static_cast<double>(i.f), 0.5)))
      .value;
}
SAME_ON_HOST(Rounding) {
  return (Mix() << bits(floorf(i.f * 10)) << bits(ceilf(i.g)) << bits(rintf(i.f)) << bits(truncf(i.g * 3))
                << bits(nearbyint(i.d)))
      .value;
}
SAME_ON_HOST(Comparisons) {
  return (Mix() << (i.f < i.g) << (i.f == i.g) << (i.f != i.f) << (i.d > i.f)
                << (static_cast<s32>(i.a) < static_cast<s32>(i.b)) << (i.a < i.b)
                << (static_cast<s64>(i.x) >= static_cast<s64>(i.y)) << (fminf(i.f, i.g) == i.f))
      .value;
}
SAME_ON_HOST(ToHalves) {
  return (Mix() << bits(__float2half(i.f)) << bits(__float2bfloat16(i.g)) << bits(__double2half(i.d))
                << bits(__double2bfloat16(i.d)))
      .value;
}
SAME_ON_HOST(FromHalves) {
  return (Mix() << bits(no_nan(__half2float(__ushort_as_half(static_cast<unsigned short>(i.a)))))
                << bits(no_nan(__bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(i.b))))))
      .value;
}
SAME_ON_HOST(HalfArithmetic) {
  __half h = __ushort_as_half((i.a & 0x3fff) | 0x2000), k = __ushort_as_half((i.b & 0x3fff) | 0x2000);
  __nv_bfloat16 p = __ushort_as_bfloat16((i.a & 0x3fff) | 0x2000),
                q = __ushort_as_bfloat16((i.b & 0x3fff) | 0x2000);
  return (Mix() << bits(__hadd(h, k)) << bits(__hmul(h, k)) << bits(__hsub(h, k)) << bits(__hmin(h, k))
                << __hlt(h, k) << bits(__hadd(p, q)) << bits(__hmul(p, q)) << bits(__hmax(p, q))
                << __hge(p, q))
      .value;
}
SAME_ON_HOST(EightBitFloats) {
  __nv_fp8_e4m3 e(i.f), from_double(i.d), e_bits;
  __nv_fp8_e5m2 m(i.g), m_bits;
  e_bits.__x = static_cast<unsigned char>(i.a);
  m_bits.__x = static_cast<unsigned char>(i.b);
  return (Mix() << e.__x << m.__x << from_double.__x << bits(no_nan(static_cast<float>(e_bits)))
                << bits(no_nan(static_cast<float>(m_bits))))
      .value;
}
SAME_ON_HOST(LocalArrays) {
  u32 t[8];
  for (u32 k = 0; k < 8; k++) t[k] = i.a * (k + 1) ^ i.b;
  for (u32 k = 0; k < 8; k++) t[(t[k] ^ i.c) & 7] += t[7 - k];
  Mix mix;
  for (u32 v : t) mix << v;
  return mix.value;
}

struct BytesAndFunnels {
  static constexpr const char* kName = "BytesAndFunnels";
  static __device__ u64 on_device(const Input& i) {
    return (Mix() << __byte_perm(i.a, i.b, i.c & 0x7777) << __funnelshift_l(i.a, i.b, i.c)
                  << __funnelshift_r(i.a, i.b, i.c & 31))
        .value;
  }
  static u64 on_host(const Input& i) {
    u64 both = static_cast<u64>(i.b) << 32 | i.a;
    u32 permuted = 0, n = i.c & 31;
    for (u32 k = 0; k < 4; k++)
      permuted |= static_cast<u32>(both >> (8 * (i.c >> (4 * k) & 7)) & 255) << (8 * k);
    return (Mix() << permuted << static_cast<u32>(both << n >> 32) << static_cast<u32>(both >> n)).value;
  }
};
struct BitCounts {
  static constexpr const char* kName = "BitCounts";
  static __device__ u64 on_device(const Input& i) {
    return (Mix() << __popc(i.a) << __popcll(i.x) << __clz(i.b) << __clzll(i.y) << __brev(i.c)
                  << __ffs(i.a & 0xff0))
        .value;
  }
  static u64 on_host(const Input& i) {
    u32 reversed = 0;
    for (int k = 0; k < 32; k++) reversed |= (i.c >> k & 1) << (31 - k);
    return (Mix() << __builtin_popcount(i.a) << __builtin_popcountll(i.x) << (i.b ? __builtin_clz(i.b) : 32)
                  << (i.y ? __builtin_clzll(i.y) : 64) << reversed << __builtin_ffs(i.a & 0xff0))
        .value;
  }
};
struct BitFields {
  static constexpr const char* kName = "BitFields";
  static __device__ u64 on_device(const Input& i) {
    u32 extracted, inserted;
    s32 extended;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(extracted) : "r"(i.a), "r"(i.b & 31), "r"(i.c & 31));
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(inserted) : "r"(i.a), "r"(i.c), "r"(i.b & 31), "r"(i.c & 15));
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(extended) : "r"(i.a), "r"(i.b & 15), "r"((i.c & 15) + 1));
    return (Mix() << extracted << inserted << static_cast<u64>(static_cast<s64>(extended))).value;
  }
  static u64 on_host(const Input& i) {
    u32 at = i.b & 31, length = i.c & 31, extracted = (i.a >> at) & ((1u << length) - 1);
    u32 mask = ((1u << (i.c & 15)) - 1) << at, inserted = (i.c & ~mask) | ((i.a << at) & mask);
    u32 from = i.b & 15, width = (i.c & 15) + 1;
    s32 extended = static_cast<s32>(i.a << (32 - from - width)) >> (32 - width);
    return (Mix() << extracted << inserted << static_cast<u64>(static_cast<s64>(extended))).value;
  }
};
struct InlinePtx {  // predicates, labels of a scope's own
  static constexpr const char* kName = "InlinePtx";
  static __device__ u64 on_device(const Input& i) {
    u32 majority, chosen, counted;
    asm("lop3.b32 %0, %1, %2, %3, 0xe8;" : "=r"(majority) : "r"(i.a), "r"(i.b), "r"(i.c));
    asm("{ .reg .pred p; .reg .u32 t; setp.gt.u32 p, %1, %2; @p add.u32 t, %1, 5; @!p mul.lo.u32 t, %2, 3; "
        "mov.u32 %0, t; }"
        : "=r"(chosen)
        : "r"(i.a), "r"(i.b));
    asm("{ .reg .pred p; mov.u32 %0, 0; L1: add.u32 %0, %0, 3; setp.lt.u32 p, %0, %1; @p bra L1; }"
        : "=&r"(counted)
        : "r"(i.c & 255));
    return (Mix() << majority << chosen << counted).value;
  }
  static u64 on_host(const Input& i) {
    u32 counted = 0;
    do counted += 3;
    while (counted < (i.c & 255));
    return (Mix() << ((i.a & i.b) | (i.a & i.c) | (i.b & i.c)) << (i.a > i.b ? i.a + 5 : i.b * 3) << counted)
        .value;
  }
};

std::vector<Input> random_inputs(int n) {
  std::mt19937_64 random(7);
  std::vector<Input> inputs(n);
  for (int k = 0; k < n; k++) {
    Input& i = inputs[k];
    i.a = k < 512 ? k : static_cast<u32>(random());  // all patterns of 8 and 9 bits
    i.b = k < 512 ? 511 - k : static_cast<u32>(random());
    i.c = static_cast<u32>(random());
    i.x = random();
    i.y = random() >> (k % 50);
    auto small = [&](double scale) { return (static_cast<double>(random() % 2000001) - 1000000) / scale; };
    i.f = k % 97 ? static_cast<float>(ldexp(small(100000), static_cast<int>(random() % 24) - 12)) : 0;
    i.g = k % 89 ? static_cast<float>(small(777)) : 1;
    i.d = ldexp(small(3), static_cast<int>(random() % 40) - 20);
  }
  return inputs;
}

template <class... Functions>
__global__ void run_all(const Input* in, u64* out, int n) {
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x) {
    u64* to = out + k;
    ((*to = Functions::on_device(in[k]), to += n), ...);
  }
}

template <class... Functions>
void compare_all() {
  constexpr int n = 4096, functions = sizeof...(Functions);
  std::vector<Input> inputs = random_inputs(n);
  Input* in;
  u64* out;
  ASSERT_EQ(cudaMalloc(&in, n * sizeof(Input)), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&out, n * functions * sizeof(u64)), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(in, inputs.data(), n * sizeof(Input), cudaMemcpyHostToDevice), cudaSuccess);
  run_all<Functions...><<<4, 64>>>(in, out, n);
  std::vector<u64> got(n * functions);
  ASSERT_EQ(cudaMemcpy(got.data(), out, got.size() * sizeof(u64), cudaMemcpyDeviceToHost), cudaSuccess);
  size_t at = 0;
  auto compare = [&](const char* name, u64 (*on_host)(const Input&)) {
    int wrong = 0;
    for (const Input& i : inputs)
      if (got[at++] != on_host(i) && !wrong++)
        ADD_FAILURE() << name << " differs: a " << i.a << " b " << i.b << " c " << i.c << " x " << i.x
                      << " y " << i.y << " f " << i.f << " g " << i.g << " d " << i.d;
    EXPECT_EQ(wrong, 0) << name;
  };
  (compare(Functions::kName, Functions::on_host), ...);
  EXPECT_EQ(cudaFree(in), cudaSuccess);
  EXPECT_EQ(cudaFree(out), cudaSuccess);
}

TEST(Instructions, IntegersAndControlFlow) {
  compare_all<Integers, Loops, Switches, SmallIntegers, WideIntegers, BytesAndFunnels, BitCounts, BitFields,
              InlinePtx, LocalArrays>();
}
TEST(Instructions, Floats) {
  compare_all<IntegersToFloats, FloatsToIntegers, Floats, Rounding, Comparisons, ToHalves, FromHalves,
              HalfArithmetic, EightBitFloats>();
}

__device__ __noinline__ int triple(int v) { return v * 3; }
__device__ __noinline__ int plus_1000(int v) { return v + 1000; }
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
using Function = int (*)(int);
__device__ Function functions[2] = {triple, plus_1000};
__constant__ int primes[4] = {2, 3, 5, 7};

__global__ void call(int* out) {
  out[threadIdx.x] =
      functions[threadIdx.x & 1](threadIdx.x) + fibonacci(threadIdx.x % 10) + primes[threadIdx.x & 3];
}

TEST(Instructions, CallsAndModuleVariables) {
  cuda_sim_test::DeviceInts d(64);
  call<<<1, 64>>>(d.data);
  constexpr int kFibonacci[10] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34}, kPrimes[4] = {2, 3, 5, 7};
  std::vector<int> v = d.values();
  for (int t = 0; t < 64; t++)
    EXPECT_EQ(v[t], (t & 1 ? t + 1000 : t * 3) + kFibonacci[t % 10] + kPrimes[t & 3]);
  int other[4] = {11, 13, 17, 19};
  ASSERT_EQ(cudaMemcpyToSymbol(primes, other, sizeof other), cudaSuccess);
  call<<<1, 64>>>(d.data);
  EXPECT_EQ(d.values()[2], 6 + 1 + 17);
}

__global__ void collect(int* out) {
  int t = threadIdx.x;
  int* mine = out + t * 8;
  mine[0] = static_cast<int>(__ballot_sync(~0u, t & 1));
  mine[1] = static_cast<int>(__match_any_sync(~0u, t & 3));
  mine[2] = __shfl_up_sync(~0u, t, 3);
  mine[3] = __shfl_down_sync(~0u, t, 5, 16);
  mine[4] = __syncthreads_count(t % 3 == 0);
  mine[5] = __any_sync(~0u, t == 40);
  mine[6] = __shfl_sync(~0u, t, t ^ 7);
  mine[7] = __all_sync(~0u, t < 32);
}
TEST(Instructions, Collectives) {
  cuda_sim_test::DeviceInts d(64 * 8);
  collect<<<1, 64>>>(d.data);
  std::vector<int> v = d.values();
  for (int t = 0; t < 64; t++) {
    int lane = t & 31;
    u32 same = 0;
    for (int k = 0; k < 32; k++) same |= (k & 3) == (t & 3) ? 1u << k : 0;
    std::vector<int> wanted{static_cast<int>(0xaaaaaaaau),
                            static_cast<int>(same),
                            lane < 3 ? t : t - 3,
                            (lane & 15) + 5 > 15 ? t : t + 5,
                            22,
                            t >= 32,
                            t ^ 7,
                            t < 32};
    EXPECT_EQ(std::vector<int>(v.begin() + t * 8, v.begin() + t * 8 + 8), wanted) << t;
  }
}

struct Atomics {
  int sum, largest, smallest, exclusive_or;
  float float_sum;
  unsigned wrapped;
  double double_sum;
  unsigned long long wide_sum;
  int by_compare_and_swap;
  unsigned released;
};
__global__ void update(Atomics* a) {
  int t = threadIdx.x;
  atomicAdd(&a->sum, t);
  atomicMax(&a->largest, t ^ 37);
  atomicMin(&a->smallest, -t);
  atomicXor(&a->exclusive_or, t * 77);
  atomicAdd(&a->float_sum, 0.5f);
  atomicInc(&a->wrapped, 50);
  atomicAdd(&a->double_sum, 0.25);
  atomicAdd(&a->wide_sum, 1ull << 33);
  cuda::atomic_ref<int, cuda::thread_scope_device> swapped(a->by_compare_and_swap);
  int old = swapped.load(cuda::memory_order_acquire);
  while (!swapped.compare_exchange_weak(old, old + 3, cuda::memory_order_acq_rel)) {
  }
  cuda::atomic_ref<unsigned, cuda::thread_scope_system>(a->released).fetch_add(2, cuda::memory_order_release);
}
TEST(Instructions, Atomics) {
  Atomics* on_device;
  ASSERT_EQ(cudaMalloc(&on_device, sizeof(Atomics)), cudaSuccess);
  ASSERT_EQ(cudaMemset(on_device, 0, sizeof(Atomics)), cudaSuccess);
  update<<<1, 128>>>(on_device);
  Atomics a;
  ASSERT_EQ(cudaMemcpy(&a, on_device, sizeof a, cudaMemcpyDeviceToHost), cudaSuccess);
  int exclusive_or = 0;
  for (int t = 0; t < 128; t++) exclusive_or ^= t * 77;
  EXPECT_EQ(a.sum, 8128);
  EXPECT_EQ(a.largest, 127);
  EXPECT_EQ(a.smallest, -127);
  EXPECT_EQ(a.exclusive_or, exclusive_or);
  EXPECT_EQ(a.float_sum, 64);
  EXPECT_EQ(a.wrapped, 128u % 51);
  EXPECT_EQ(a.double_sum, 32);
  EXPECT_EQ(a.wide_sum, 128ull << 33);
  EXPECT_EQ(a.by_compare_and_swap, 384);
  EXPECT_EQ(a.released, 256u);
  EXPECT_EQ(cudaFree(on_device), cudaSuccess);
}

__global__ void print(int v, double d) {
  printf("%s %05d|%+.2f|%llx|%c%%\n", "printed", v, d, 1ull << 40, 'x');
}
TEST(Instructions, Printf) {
  testing::internal::CaptureStdout();
  print<<<1, 1>>>(42, 1.5);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "printed 00042|+1.50|10000000000|x%\n");
}

}  // namespace
