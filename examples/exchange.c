/* Sends and receives: every rank gives its ends to both neighbours in a ring, as stencils do. One group holds
 * all of them, so their order doesn't matter. */
#include "check.h"

enum { kRanks = 4, kCells = 100 };

int main(void) {
  ncclComm_t comms[kRanks];
  CHECK(ncclCommInitAll(comms, kRanks, NULL));

  static double cells[kRanks][kCells + 2]; /* with the neighbours' ends on both sides */
  for (int r = 0; r < kRanks; ++r)
    for (int i = 0; i < kCells; ++i) cells[r][1 + i] = r * kCells + i;

  CHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) {
    const int left = (r + kRanks - 1) % kRanks, right = (r + 1) % kRanks;
    CHECK(ncclSend(&cells[r][1], 1, ncclDouble, left, comms[r], NULL));
    CHECK(ncclSend(&cells[r][kCells], 1, ncclDouble, right, comms[r], NULL));
    CHECK(ncclRecv(&cells[r][0], 1, ncclDouble, left, comms[r], NULL));
    CHECK(ncclRecv(&cells[r][kCells + 1], 1, ncclDouble, right, comms[r], NULL));
  }
  CHECK(ncclGroupEnd());

  const int total = kRanks * kCells;
  for (int r = 0; r < kRanks; ++r) {
    EXPECT(cells[r][0] == (r * kCells + total - 1) % total);
    EXPECT(cells[r][kCells + 1] == ((r + 1) * kCells) % total);
    CHECK(ncclCommDestroy(comms[r]));
  }
  printf("%d ranks have their neighbours' ends\n", kRanks);
  return 0;
}
