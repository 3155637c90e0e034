// What names algorithms: NCCL_ALGO, and what one call's configuration selects. The input is the collective and a text.
#include <algorithm>

#include "comm/nccl_algo.h"
#include "fuzz.h"
#include "plan/selection.h"

using namespace muster;
using namespace muster::fuzz;

namespace {

void check_selection(Coll coll, const std::string& text) {
  CallShape call;
  call.coll = coll;
  if (!succeeds_or_throws({Result::invalid_argument}, [&] { call.allowed = parse_selection(coll, text); })) return;
  const std::string names = names_of_allowed(call);
  require(names.empty() == (call.allowed == 0), "what is selected has names");
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool between = names.compare(i, 4, " or ") == 0;
    list += between ? ',' : names[i];
    if (between) i += 3;
  }
  require(parse_selection(coll, list) == call.allowed, "its names select the same");
  const auto all = algorithms();
  require(std::any_of(all.begin(), all.end(), [&](const Algorithm& a) { return a.coll == coll && is_allowed(call, a); }),
          "something is allowed");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  const Coll coll = static_cast<Coll>(in.byte() % static_cast<uint8_t>(Coll::send_recv));
  const std::string text(in.rest());
  check_selection(coll, text);
  succeeds_or_throws({Result::invalid_usage}, [&] {
    const NcclAlgo algo = read_nccl_algo(text);
    require(algo.algorithm.empty() || algo.algorithm == "ring" || algo.algorithm == "tree", "Muster has NCCL's ring and tree only");
    require(algo.algorithm.empty() || algo.unmet.empty(), "what is forced is met");
    require(text.find(nccl_algorithms_for(coll, text)) != text.npos, "a list is part of the text");
  });
  succeeds_or_throws({Result::invalid_usage},
                     [&] { require(text.find(nccl_protocols_for(coll, text)) != text.npos, "a list is part of the text"); });
  return 0;
}
