// Element types and reductions by the names that nccl-tests gives them on its command line and in its tables.
#pragma once

#include <span>
#include <string_view>

#include "muster/types.h"

namespace muster::perf {

struct NamedType {
  const char* name;
  DataType type;
};
struct NamedOp {
  const char* name;
  RedOp op;  // pre_mul_sum: "mulsum", each rank with a factor of its own
};

std::span<const NamedType> types();
std::span<const NamedOp> ops();

}  // namespace muster::perf
