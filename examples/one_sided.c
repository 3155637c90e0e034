/* One-sided calls: each rank writes into the next one's window, which sleeps in ncclWaitSignal until the data is there. A
 * token goes round the ring of ranks; then all write to all in one group. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { kRanks = 3, kRounds = 4, kData = 0, kMayWrite = 1 };

static void signal_to(int peer, int what, ncclComm_t comm) { CHECK(ncclSignal(peer, what, 0, 0, comm, NULL)); }
static void wait_for(int peer, int what, ncclComm_t comm) {
  ncclWaitSignalDesc_t one = {.opCnt = 1, .peer = peer, .sigIdx = what, .ctx = 0};
  CHECK(ncclWaitSignal(1, &one, comm, NULL));
}

static void run_rank(int rank, ncclUniqueId id) {
  ncclComm_t comm;
  CHECK(ncclCommInitRank(&comm, kRanks, id, rank));
  const int next = (rank + 1) % kRanks, previous = (rank + kRanks - 1) % kRanks;

  void* memory = NULL;
  ncclWindow_t window = NULL; /* of all ranks: each gives a part */
  CHECK(ncclMemAlloc(&memory, 4096));
  CHECK(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
  const long* received = memory;

  for (int round = 0; round < kRounds; ++round) {
    long token = 1;
    if (rank > 0 || round > 0) {
      wait_for(previous, kData, comm);
      EXPECT(received[0] == (long)round * kRanks + rank);
      token = received[0] + 1;
      signal_to(previous, kMayWrite, comm);
    }
    if (round > 0) wait_for(next, kMayWrite, comm); /* it has read the last one */
    CHECK(ncclPutSignal(&token, 1, ncclInt64, next, window, 0, kData, 0, 0, comm, NULL));
  }
  if (rank == 0) wait_for(previous, kData, comm); /* the last token */

  long mine[kRanks];
  ncclWaitSignalDesc_t all[kRanks];
  CHECK(ncclGroupStart()); /* here the order doesn't matter: nobody waits before all is sent */
  for (int r = 0; r < kRanks; ++r) {
    all[r] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = r, .sigIdx = 7, .ctx = 0};
    mine[r] = 100 * rank + r;
    CHECK(ncclPutSignal(&mine[r], 1, ncclInt64, r, window, (size_t)(64 + 8 * rank), 7, 0, 0, comm, NULL));
  }
  CHECK(ncclWaitSignal(kRanks, all, comm, NULL));
  CHECK(ncclGroupEnd());
  for (int r = 0; r < kRanks; ++r) EXPECT(received[8 + r] == 100 * r + rank);

  CHECK(ncclCommFinalize(comm)); /* waits for all: nobody writes any more */
  CHECK(ncclCommWindowDeregister(comm, window));
  CHECK(ncclCommDestroy(comm));
  CHECK(ncclMemFree(memory));
}

int main(void) {
  int to_children[2];
  EXPECT(pipe(to_children) == 0);
  ncclUniqueId id;
  for (int rank = 1; rank < kRanks; ++rank) {
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child > 0) continue;
    EXPECT(read(to_children[0], &id, sizeof id) == sizeof id);
    run_rank(rank, id);
    return 0;
  }
  CHECK(ncclGetUniqueId(&id));
  for (int rank = 1; rank < kRanks; ++rank) EXPECT(write(to_children[1], &id, sizeof id) == sizeof id);
  run_rank(0, id);
  for (int rank = 1; rank < kRanks; ++rank) {
    int status = 0;
    EXPECT(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  printf("a token went round %d processes %d times, written into their windows\n", kRanks, kRounds);
  return 0;
}
