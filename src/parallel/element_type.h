// Functions of elements of a type that is known when the program runs: with_element(type, [&]<class E>() {
// ... }).
#pragma once

#include "base/error.h"
#include "parallel/half_float.h"

namespace muster {

template <class F>
decltype(auto) with_element(DataType type, F&& f) {
  switch (type) {
    case DataType::float16:
      return f.template operator()<Float16>();
    case DataType::bfloat16:
      return f.template operator()<BFloat16>();
    case DataType::float32:
      return f.template operator()<float>();
    default:
      fail(Result::invalid_argument, "elements of type {}; float16, bfloat16 or float32 wanted",
           name_of(type));
  }
}

}  // namespace muster
