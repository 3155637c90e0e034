#include "comm/life_call.h"

#include <iterator>

namespace muster {
namespace {
// Where they begin among the numbers of collectives.
constexpr int kFirst = 128;
static_assert(kColls <= kFirst);
}  // namespace

const char* name_of(LifeCall call) {
  constexpr const char* names[] = {"?", "split", "shrink", "grow", "finalize", "suspend", "resume", "register_window"};
  const auto i = static_cast<size_t>(call);
  return i < std::size(names) ? names[i] : "?";
}

CallShape shape_of(LifeCall call) {
  CallShape s;
  s.coll = static_cast<Coll>(kFirst + static_cast<int>(call));
  return s;
}

const char* life_call_in(const CallShape& shape) {
  const int call = static_cast<int>(shape.coll) - kFirst;
  return call >= 0 ? name_of(static_cast<LifeCall>(call)) : nullptr;
}

}  // namespace muster
