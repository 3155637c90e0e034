/* A profiler, as people write them: a library to be preloaded that defines ncclAllReduce, counts, and goes on
 * to pncclAllReduce. Says at the end how many calls it saw. */
#include <nccl.h>
#include <stdio.h>

static int calls;

__attribute__((visibility("default"))) ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff,
                                                                  size_t count, ncclDataType_t datatype,
                                                                  ncclRedOp_t op, ncclComm_t comm,
                                                                  cudaStream_t stream) {
  ++calls;
  return pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

__attribute__((destructor)) static void report(void) {
  fprintf(stderr, "ncclAllReduce was called %d times\n", calls);
}
