/* What Muster has for C programs beyond NCCL's interface (nccl.h): streams on host memory, collectives with a
 * count for each rank, a barrier, bitwise and logical reductions. Link with -lnccl -lmuster.
 *
 * Units, errors, groups and thread-safety are as in nccl.h. */
#ifndef MUSTER_H_
#define MUSTER_H_

#include <nccl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A queue of calls with a thread of its own, for every `stream` argument: calls return at once and run in
 * order on that thread. Any thread may use it. */
ncclResult_t musterStreamCreate(cudaStream_t* stream);
/* Runs what is queued, then ends. */
ncclResult_t musterStreamDestroy(cudaStream_t stream);
/* Waits for all that was queued before; returns the first error since the last call. */
ncclResult_t musterStreamSynchronize(cudaStream_t stream);
/* ncclSuccess: nothing is queued or running; ncclInProgress. */
ncclResult_t musterStreamQuery(cudaStream_t stream);

/* Bitwise reductions, of integers; logical ones, of all types: what isn't 0 is true, results are 0 or 1. */
#define musterBitAnd ((ncclRedOp_t)0x7fffff00)
#define musterBitOr ((ncclRedOp_t)0x7fffff01)
#define musterBitXor ((ncclRedOp_t)0x7fffff02)
#define musterLogicalAnd ((ncclRedOp_t)0x7fffff03)
#define musterLogicalOr ((ncclRedOp_t)0x7fffff04)
#define musterLogicalXor ((ncclRedOp_t)0x7fffff05)

/* Counts and displacements are elements, an entry per rank; displs NULL: packed, rank after rank. */

/* Rank r's sendcount elements (which is recvcounts[r]) go to recvbuff + displs[r] on every rank. recvcounts
 * and displs: the same on all ranks. In place: sendbuff == recvbuff + displs[rank]. */
ncclResult_t musterAllGatherV(const void* sendbuff, size_t sendcount, void* recvbuff,
                              const size_t* recvcounts, const size_t* displs, ncclDataType_t datatype,
                              ncclComm_t comm, cudaStream_t stream);
/* sendbuff: the sum of recvcounts, packed; rank r gets the reduction of its recvcounts[r] elements.
 * recvcounts: the same on all ranks. In place: recvbuff is where this rank's part of sendbuff is. op: one
 * with a host scalar, or without any. */
ncclResult_t musterReduceScatterV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                  ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                  cudaStream_t stream);
/* sendcounts[r] elements from sendbuff + sdispls[r] go to rank r, recvcounts[r] from it to recvbuff +
 * rdispls[r]. */
ncclResult_t musterAlltoAllV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                             void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
                             ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);
/* Returns when all ranks have called it; on a stream, what is queued behind it runs then. */
ncclResult_t musterBarrier(ncclComm_t comm, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* MUSTER_H_ */
