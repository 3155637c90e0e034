// Every algorithm on real shared memory: ranks as threads over one segment, every element against an exact reference.
#include <gtest/gtest.h>

#include "support/program_cases.h"
#include "transports/shm/segment.h"

namespace muster {
namespace {

class Executor : public testing::TestWithParam<int> {};

TEST_P(Executor, EveryAlgorithmIsExact) {
  const Algorithm& a = algorithms()[static_cast<size_t>(GetParam())];
  for (const int n : {1, 2, 3, 4, 7, 8})
    for (const size_t count : {size_t{1}, size_t{5}, size_t{64}, size_t{1000}, size_t{20011}})
      for (const bool in_place : {false, true})
        for (const int channels : {1, 2}) {
          if (a.whole && (channels > 1 || count > 100)) continue;
          if (a.windows && a.coll == Coll::all_to_all && in_place) continue;
          for (const int root : {0, n - 1}) {
            if (!rooted(a.coll) && root != 0) continue;
            if (in_place && rooted(a.coll) && a.coll != Coll::broadcast && a.coll != Coll::reduce && root != n - 1) continue;
            Fd descriptor;
            const auto segment = Segment::create({n, 2, 4096, 4096}, 1, &descriptor);
            SCOPED_TRACE(testing::Message() << name_of(a.coll) << " " << a.name << ", " << n << " ranks, count " << count << ", root " << root
                                            << (in_place ? ", in place" : "") << ", channels " << channels);
            test::run_case({&a, n, count, root, in_place, channels, a.whole ? size_t{4096} : size_t{1024}},
                           [&](int r) { return std::make_unique<ShmTransport>(segment, r); });
            if (testing::Test::HasFatalFailure()) return;
          }
        }
}

INSTANTIATE_TEST_SUITE_P(All, Executor, testing::Range(0, static_cast<int>(algorithms().size())), [](const auto& param) {
  const Algorithm& a = algorithms()[static_cast<size_t>(param.param)];
  return std::string(name_of(a.coll)) + "_" + a.name;
});

}  // namespace
}  // namespace muster
