/* A C program that knows nothing of Muster's tree: it finds an installed nccl.h and muster.h. */
#include <muster.h>
#include <stdio.h>

int main(void) {
  ncclComm_t comm;
  int version = 0;
  float in[2] = {1, 2}, out[2] = {0, 0};
  cudaStream_t stream;
  if (ncclGetVersion(&version) != ncclSuccess || version != NCCL_VERSION_CODE) return 1;
  if (ncclCommInitAll(&comm, 1, NULL) != ncclSuccess) return 2;
  if (musterStreamCreate(&stream) != ncclSuccess) return 3;
  if (ncclAllReduce(in, out, 2, ncclFloat, ncclSum, comm, stream) != ncclSuccess) return 4;
  if (musterStreamSynchronize(stream) != ncclSuccess || out[0] != 1 || out[1] != 2) return 5;
  if (musterStreamDestroy(stream) != ncclSuccess || ncclCommDestroy(comm) != ncclSuccess) return 6;
  printf("C works\n");
  return 0;
}
