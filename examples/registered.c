/* Buffers that the other ranks' processes reach directly: memory of ncclMemAlloc, registered as NCCL wants
 * it. The calls run on a stream, while the program could work. */
#include <muster.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { kRanks = 2, kCount = 1 << 20 };

static void run_rank(int rank, ncclUniqueId id) {
  ncclComm_t comm;
  CHECK(ncclCommInitRank(&comm, kRanks, id, rank));

  void *in = NULL, *out = NULL, *handle = NULL;
  ncclWindow_t window = NULL;
  CHECK(ncclMemAlloc(&in, kCount * sizeof(float)));
  CHECK(ncclMemAlloc(&out, kCount * sizeof(float)));
  CHECK(ncclCommRegister(comm, in, kCount * sizeof(float), &handle));
  CHECK(ncclCommWindowRegister(comm, out, kCount * sizeof(float), &window, NCCL_WIN_COLL_SYMMETRIC));
  for (int i = 0; i < kCount; ++i) ((float*)in)[i] = (float)(rank + i % 1000);

  cudaStream_t stream;
  CHECK(musterStreamCreate(&stream));
  CHECK(ncclAllReduce(in, out, kCount, ncclFloat, ncclSum, comm, stream));
  CHECK(musterStreamSynchronize(stream));
  for (int i = 0; i < kCount; ++i) EXPECT(((float*)out)[i] == (float)(1 + 2 * (i % 1000)));

  CHECK(musterStreamDestroy(stream));
  CHECK(ncclCommWindowDeregister(comm, window));
  CHECK(ncclCommDeregister(comm, handle));
  CHECK(ncclMemFree(out));
  CHECK(ncclMemFree(in));
  CHECK(ncclCommDestroy(comm));
}

int main(void) {
  int to_child[2];
  EXPECT(pipe(to_child) == 0);
  ncclUniqueId id;
  const pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    EXPECT(read(to_child[0], &id, sizeof id) == sizeof id);
    run_rank(1, id);
    return 0;
  }
  CHECK(ncclGetUniqueId(&id));
  EXPECT(write(to_child[1], &id, sizeof id) == sizeof id);
  run_rank(0, id);
  int status = 0;
  EXPECT(wait(&status) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  printf("%d processes have the sums of %d elements in registered memory\n", kRanks, kCount);
  return 0;
}
