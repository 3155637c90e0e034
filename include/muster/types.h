// Types that every Muster call speaks: element types, reductions, result codes.
// Numeric values of Result and DataType, and of RedOp up to avg, equal NCCL's, so the C ABI needs no translation table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#define MUSTER_API __attribute__((visibility("default")))
#define MUSTER_HIDDEN __attribute__((visibility("hidden")))  // the inside of a MUSTER_API class

namespace muster {

enum class Result : int {
  success = 0,
  unhandled_device_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
  timeout = 8,
};

enum class DataType : int {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
  float8_e4m3 = 10,
  float8_e5m2 = 11,
};
inline constexpr int kDataTypes = 12;

enum class RedOp : int {
  sum = 0,
  prod = 1,
  max = 2,
  min = 3,
  avg = 4,
  pre_mul_sum = 5,
  bit_and = 6,  // bitwise: integer types only
  bit_or = 7,
  bit_xor = 8,
  logical_and = 9,  // logical: any type; what isn't zero is true (NaN is, -0 isn't), results are 0 or 1
  logical_or = 10,
  logical_xor = 11,
};
inline constexpr int kRedOps = 12;

// Bytes per element; 0 for a value that names no type.
constexpr size_t size_of(DataType t) {
  constexpr size_t bytes[kDataTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  const auto i = static_cast<unsigned>(t);
  return i < kDataTypes ? bytes[i] : 0;
}

// Whether elements of this type can be combined so.
constexpr bool is_defined(RedOp op, DataType t) {
  return (op != RedOp::bit_and && op != RedOp::bit_or && op != RedOp::bit_xor) || t <= DataType::uint64;
}

MUSTER_API const char* name_of(DataType t);  // "float32", ...; "?" for an unknown value
MUSTER_API const char* name_of(RedOp op);    // "sum", ...
MUSTER_API const char* name_of(Result r);    // "invalid usage", ...
// One sentence of any Result, for people who know NCCL's: what programs look for in it ("unhandled system error", "invalid
// usage", "remote process exited" ...) stays the same for ever. Never null. The full reason is in Error::what().
MUSTER_API const char* error_string(Result r);

// What a reducing collective does to corresponding elements of all ranks.
// pre_mul_sum multiplies this rank's contribution by `scalar` (held in the element type; integers wrap)
// before the sum; each rank may have its own scalar, as ncclRedOpCreatePreMulSum allows.
struct ReduceOp {
  RedOp op = RedOp::sum;
  DataType scalar_type = DataType::float32;  // pre_mul_sum only: must equal the call's element type
  uint64_t scalar_bits = 0;                  // pre_mul_sum only: the scalar's object representation, low bytes first

  constexpr ReduceOp() = default;
  constexpr ReduceOp(RedOp o) : op(o) {}  // NOLINT: every RedOp but pre_mul_sum is complete by itself
  static MUSTER_API ReduceOp pre_mul_sum(const void* scalar, DataType type);
  friend bool operator==(const ReduceOp&, const ReduceOp&) = default;
};

// Every failure of the C++ API. what() says what failed, on which rank and host, the numbers, and the remedy.
class MUSTER_API Error : public std::runtime_error {
 public:
  Error(Result code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ~Error() override;
  Result code() const noexcept { return code_; }

 private:
  Result code_;
};

}  // namespace muster
