/* A grid of ranks: a communicator for each row and each column, by splitting one of all. */
#include "check.h"

enum { kRows = 2, kColumns = 3, kRanks = kRows * kColumns };

int main(void) {
  ncclComm_t all[kRanks], row[kRanks], column[kRanks];
  CHECK(ncclCommInitAll(all, kRanks, NULL));

  CHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) CHECK(ncclCommSplit(all[r], r / kColumns, r, &row[r], NULL));
  CHECK(ncclGroupEnd());
  CHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) CHECK(ncclCommSplit(all[r], r % kColumns, r, &column[r], NULL));
  CHECK(ncclGroupEnd());

  /* First along the rows, then along the columns: the sum of all. */
  int in[kRanks], partial[kRanks], out[kRanks];
  for (int r = 0; r < kRanks; ++r) in[r] = 1 << r;
  CHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r)
    CHECK(ncclAllReduce(&in[r], &partial[r], 1, ncclInt, ncclSum, row[r], NULL));
  CHECK(ncclGroupEnd());
  for (int r = 0; r < kRanks; ++r) EXPECT(partial[r] == 7 << (r / kColumns * kColumns));
  CHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r)
    CHECK(ncclAllReduce(&partial[r], &out[r], 1, ncclInt, ncclSum, column[r], NULL));
  CHECK(ncclGroupEnd());
  for (int r = 0; r < kRanks; ++r) EXPECT(out[r] == (1 << kRanks) - 1);

  for (int r = 0; r < kRanks; ++r) {
    int rank = -1, count = -1;
    CHECK(ncclCommUserRank(row[r], &rank));
    CHECK(ncclCommCount(row[r], &count));
    EXPECT(rank == r % kColumns && count == kColumns);
    CHECK(ncclCommDestroy(row[r]));
    CHECK(ncclCommDestroy(column[r]));
    CHECK(ncclCommDestroy(all[r]));
  }
  printf("%d rows and %d columns have their sums\n", kRows, kColumns);
  return 0;
}
