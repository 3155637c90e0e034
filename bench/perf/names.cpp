#include "perf/names.h"

namespace muster::perf {

std::span<const NamedType> types() {
  static constexpr NamedType table[] = {
      {"int8", DataType::int8},         {"uint8", DataType::uint8},        {"int32", DataType::int32},
      {"uint32", DataType::uint32},     {"int64", DataType::int64},        {"uint64", DataType::uint64},
      {"half", DataType::float16},      {"float", DataType::float32},      {"double", DataType::float64},
      {"bfloat16", DataType::bfloat16}, {"f8e4m3", DataType::float8_e4m3}, {"f8e5m2", DataType::float8_e5m2}};
  return table;
}

std::span<const NamedOp> ops() {
  static constexpr NamedOp table[] = {{"sum", RedOp::sum}, {"prod", RedOp::prod},
                                      {"max", RedOp::max}, {"min", RedOp::min},
                                      {"avg", RedOp::avg}, {"mulsum", RedOp::pre_mul_sum}};
  return table;
}

}  // namespace muster::perf
