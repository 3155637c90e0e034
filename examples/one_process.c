/* One process, many ranks: one thread drives them all, so their calls are grouped. */
#include "check.h"

enum { kRanks = 4, kCount = 1000 };

int main(void) {
  ncclComm_t comms[kRanks];
  CHECK(ncclCommInitAll(comms, kRanks, NULL));

  static float in[kRanks][kCount], out[kRanks][kCount];
  for (int r = 0; r < kRanks; ++r)
    for (int i = 0; i < kCount; ++i) in[r][i] = (float)(r + i);

  CHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r)
    CHECK(ncclAllReduce(in[r], out[r], kCount, ncclFloat, ncclSum, comms[r], NULL));
  CHECK(ncclGroupEnd());

  for (int r = 0; r < kRanks; ++r)
    for (int i = 0; i < kCount; ++i) EXPECT(out[r][i] == (float)(kRanks * i + kRanks * (kRanks - 1) / 2));

  for (int r = 0; r < kRanks; ++r) CHECK(ncclCommDestroy(comms[r]));
  printf("%d ranks of one process have the sums of %d elements\n", kRanks, kCount);
  return 0;
}
