/* Communicators that don't block: calls return ncclInProgress, and the program does other things until
 * ncclCommGetAsyncError says that they are complete. */
#include <time.h>

#include "check.h"

enum { kRanks = 2 };

static int polls;

/* Waits until none of the communicators is busy; a real program would work meanwhile, and give up at some
 * time. */
static void wait_for(ncclComm_t* comms) {
  for (int r = 0; r < kRanks; ++r) {
    ncclResult_t state = ncclInProgress;
    for (;;) {
      CHECK(ncclCommGetAsyncError(comms[r], &state));
      if (state != ncclInProgress) break;
      ++polls;
      const struct timespec moment = {0, 100000};
      nanosleep(&moment, NULL);
    }
    CHECK(state);
  }
}

/* A call that may go on in the background. */
static void check_started(ncclResult_t result) {
  if (result != ncclInProgress) CHECK(result);
}

int main(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));

  ncclComm_t comms[kRanks];
  CHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) check_started(ncclCommInitRankConfig(&comms[r], kRanks, id, r, &config));
  check_started(ncclGroupEnd());
  wait_for(comms);

  int in[kRanks] = {20, 22}, out[kRanks] = {0, 0};
  CHECK(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r)
    check_started(ncclAllReduce(&in[r], &out[r], 1, ncclInt, ncclSum, comms[r], NULL));
  check_started(ncclGroupEnd());
  wait_for(comms);
  for (int r = 0; r < kRanks; ++r) EXPECT(out[r] == 42);

  for (int r = 0; r < kRanks; ++r) check_started(ncclCommFinalize(comms[r]));
  wait_for(comms);
  for (int r = 0; r < kRanks; ++r) CHECK(ncclCommDestroy(comms[r]));
  printf("%d ranks have the sum; %d polls found them busy\n", kRanks, polls);
  return 0;
}
