/* One rank per process. How the id gets from rank 0 to the others is the program's business: MPI, a store, a
 * file; here the processes are forked and have inherited it. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { kRanks = 3, kCount = 50000 };

static void run_rank(int rank, ncclUniqueId id) {
  ncclComm_t comm;
  CHECK(ncclCommInitRank(&comm, kRanks, id, rank));
  double* buffer = malloc(kCount * sizeof *buffer);
  for (int i = 0; i < kCount; ++i) buffer[i] = rank == 1 ? i : -1;
  CHECK(ncclBroadcast(buffer, buffer, kCount, ncclDouble, 1, comm, NULL));
  for (int i = 0; i < kCount; ++i) EXPECT(buffer[i] == i);
  CHECK(ncclAllReduce(buffer, buffer, kCount, ncclDouble, ncclAvg, comm, NULL));
  for (int i = 0; i < kCount; ++i) EXPECT(buffer[i] == i);
  free(buffer);
  CHECK(ncclCommDestroy(comm));
}

int main(void) {
  int to_child[2];
  EXPECT(pipe(to_child) == 0);
  ncclUniqueId id;
  for (int rank = 1; rank < kRanks; ++rank) {
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
      EXPECT(read(to_child[0], &id, sizeof id) == sizeof id);
      run_rank(rank, id);
      return 0;
    }
  }
  CHECK(ncclGetUniqueId(&id));
  for (int rank = 1; rank < kRanks; ++rank) EXPECT(write(to_child[1], &id, sizeof id) == sizeof id);
  run_rank(0, id);
  for (int rank = 1; rank < kRanks; ++rank) {
    int status = 0;
    EXPECT(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  printf("%d processes have rank 1's %d elements\n", kRanks, kCount);
  return 0;
}
