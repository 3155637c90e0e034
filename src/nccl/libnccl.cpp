// libnccl.so.2: each ncclX and pncclX goes on to muster::nccl::X in libmuster.so. pncclX is the strong name
// and ncclX a weak one of the same function, so that a profiler can define ncclX and call pncclX.
#include "nccl/entries.h"

#define FORWARD(result, name, parameters, arguments)                                           \
  extern "C" MUSTER_API result pnccl##name parameters { return muster::nccl::name arguments; } \
  extern "C" MUSTER_API result nccl##name parameters __attribute__((weak, alias("pnccl" #name)))

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

FORWARD(ncclResult_t, GetVersion, (int* version), (version));
FORWARD(const char*, GetErrorString, (ncclResult_t result), (result));
FORWARD(const char*, GetLastError, (ncclComm_t comm), (comm));
FORWARD(void, ResetDebugInit, (), ());
FORWARD(ncclResult_t, MemAlloc, (void** ptr, size_t size), (ptr, size));
FORWARD(ncclResult_t, MemFree, (void* ptr), (ptr));
FORWARD(ncclResult_t, GetUniqueId, (ncclUniqueId * uniqueId), (uniqueId));
FORWARD(ncclResult_t, CommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank),
        (comm, nranks, commId, rank));
FORWARD(ncclResult_t, CommInitRankConfig,
        (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config),
        (comm, nranks, commId, rank, config));
FORWARD(ncclResult_t, CommInitRankScalable,
        (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds, ncclConfig_t* config),
        (newcomm, nranks, myrank, nId, commIds, config));
FORWARD(ncclResult_t, CommInitAll, (ncclComm_t * comm, int ndev, const int* devlist), (comm, ndev, devlist));
FORWARD(ncclResult_t, CommSplit,
        (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config),
        (comm, color, key, newcomm, config));
FORWARD(ncclResult_t, CommShrink,
        (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
         ncclConfig_t* config, int shrinkFlags),
        (comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
FORWARD(ncclResult_t, CommGetUniqueId, (ncclComm_t comm, ncclUniqueId* uniqueId), (comm, uniqueId));
FORWARD(ncclResult_t, CommGrow,
        (ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm,
         ncclConfig_t* config),
        (comm, nRanks, uniqueId, rank, newcomm, config));
FORWARD(ncclResult_t, CommFinalize, (ncclComm_t comm), (comm));
FORWARD(ncclResult_t, CommDestroy, (ncclComm_t comm), (comm));
FORWARD(ncclResult_t, CommAbort, (ncclComm_t comm), (comm));
FORWARD(ncclResult_t, CommRevoke, (ncclComm_t comm, int revokeFlags), (comm, revokeFlags));
FORWARD(ncclResult_t, CommSuspend, (ncclComm_t comm, int flags), (comm, flags));
FORWARD(ncclResult_t, CommResume, (ncclComm_t comm), (comm));
FORWARD(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t* asyncError), (comm, asyncError));
FORWARD(ncclResult_t, CommCount, (const ncclComm_t comm, int* count), (comm, count));
FORWARD(ncclResult_t, CommUserRank, (const ncclComm_t comm, int* rank), (comm, rank));
FORWARD(ncclResult_t, CommCuDevice, (const ncclComm_t comm, int* device), (comm, device));
FORWARD(ncclResult_t, CommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value),
        (comm, stat, value));
FORWARD(ncclResult_t, CommQueryProperties, (ncclComm_t comm, ncclCommProperties_t* props), (comm, props));
FORWARD(ncclResult_t, CommRegister, (const ncclComm_t comm, void* buff, size_t size, void** handle),
        (comm, buff, size, handle));
FORWARD(ncclResult_t, CommDeregister, (const ncclComm_t comm, void* handle), (comm, handle));
FORWARD(ncclResult_t, CommWindowRegister,
        (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags),
        (comm, buff, size, win, winFlags));
FORWARD(ncclResult_t, CommWindowDeregister, (ncclComm_t comm, ncclWindow_t win), (comm, win));
FORWARD(ncclResult_t, WinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void** outUserPtr),
        (comm, win, outUserPtr));
FORWARD(ncclResult_t, RedOpCreatePreMulSum,
        (ncclRedOp_t * op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence,
         ncclComm_t comm),
        (op, scalar, datatype, residence, comm));
FORWARD(ncclResult_t, RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm));
FORWARD(ncclResult_t, AllReduce,
        (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
         ncclComm_t comm, cudaStream_t stream),
        (sendbuff, recvbuff, count, datatype, op, comm, stream));
FORWARD(ncclResult_t, Reduce,
        (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
         int root, ncclComm_t comm, cudaStream_t stream),
        (sendbuff, recvbuff, count, datatype, op, root, comm, stream));
FORWARD(ncclResult_t, Broadcast,
        (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
         ncclComm_t comm, cudaStream_t stream),
        (sendbuff, recvbuff, count, datatype, root, comm, stream));
FORWARD(ncclResult_t, Bcast,
        (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream),
        (buff, count, datatype, root, comm, stream));
FORWARD(ncclResult_t, ReduceScatter,
        (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
         ncclComm_t comm, cudaStream_t stream),
        (sendbuff, recvbuff, recvcount, datatype, op, comm, stream));
FORWARD(ncclResult_t, AllGather,
        (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
         cudaStream_t stream),
        (sendbuff, recvbuff, sendcount, datatype, comm, stream));
FORWARD(ncclResult_t, AlltoAll,
        (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
         cudaStream_t stream),
        (sendbuff, recvbuff, count, datatype, comm, stream));
FORWARD(ncclResult_t, Gather,
        (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
         ncclComm_t comm, cudaStream_t stream),
        (sendbuff, recvbuff, count, datatype, root, comm, stream));
FORWARD(ncclResult_t, Scatter,
        (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
         ncclComm_t comm, cudaStream_t stream),
        (sendbuff, recvbuff, count, datatype, root, comm, stream));
FORWARD(ncclResult_t, AllReduceConfig,
        (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
         ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
        (sendbuff, recvbuff, count, datatype, op, comm, stream, config));
FORWARD(ncclResult_t, ReduceConfig,
        (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
         int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
        (sendbuff, recvbuff, count, datatype, op, root, comm, stream, config));
FORWARD(ncclResult_t, BroadcastConfig,
        (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
         ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
        (sendbuff, recvbuff, count, datatype, root, comm, stream, config));
FORWARD(ncclResult_t, ReduceScatterConfig,
        (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
         ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
        (sendbuff, recvbuff, recvcount, datatype, op, comm, stream, config));
FORWARD(ncclResult_t, AllGatherConfig,
        (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
         cudaStream_t stream, const ncclCollConfig_t* config),
        (sendbuff, recvbuff, sendcount, datatype, comm, stream, config));
FORWARD(ncclResult_t, AlltoAllConfig,
        (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
         cudaStream_t stream, const ncclCollConfig_t* config),
        (sendbuff, recvbuff, count, datatype, comm, stream, config));
FORWARD(ncclResult_t, GatherConfig,
        (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
         ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
        (sendbuff, recvbuff, count, datatype, root, comm, stream, config));
FORWARD(ncclResult_t, ScatterConfig,
        (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
         ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
        (sendbuff, recvbuff, count, datatype, root, comm, stream, config));
FORWARD(ncclResult_t, Send,
        (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
         cudaStream_t stream),
        (sendbuff, count, datatype, peer, comm, stream));
FORWARD(ncclResult_t, Recv,
        (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
         cudaStream_t stream),
        (recvbuff, count, datatype, peer, comm, stream));
FORWARD(ncclResult_t, PutSignal,
        (const void* localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
         size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream),
        (localbuff, count, datatype, peer, peerWin, peerWinOffset, sigIdx, ctx, flags, comm, stream));
FORWARD(ncclResult_t, Signal,
        (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream),
        (peer, sigIdx, ctx, flags, comm, stream));
FORWARD(ncclResult_t, WaitSignal,
        (int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream),
        (nDesc, signalDescs, comm, stream));
FORWARD(ncclResult_t, GroupStart, (), ());
FORWARD(ncclResult_t, GroupEnd, (), ());
FORWARD(ncclResult_t, GroupSimulateEnd, (ncclSimInfo_t * simInfo), (simInfo));
FORWARD(ncclResult_t, ParamBind, (ncclParamHandle_t * out, const char* key), (out, key));
FORWARD(ncclResult_t, ParamGetI8, (ncclParamHandle_t h, int8_t* out), (h, out));
FORWARD(ncclResult_t, ParamGetI16, (ncclParamHandle_t h, int16_t* out), (h, out));
FORWARD(ncclResult_t, ParamGetI32, (ncclParamHandle_t h, int32_t* out), (h, out));
FORWARD(ncclResult_t, ParamGetI64, (ncclParamHandle_t h, int64_t* out), (h, out));
FORWARD(ncclResult_t, ParamGetU8, (ncclParamHandle_t h, uint8_t* out), (h, out));
FORWARD(ncclResult_t, ParamGetU16, (ncclParamHandle_t h, uint16_t* out), (h, out));
FORWARD(ncclResult_t, ParamGetU32, (ncclParamHandle_t h, uint32_t* out), (h, out));
FORWARD(ncclResult_t, ParamGetU64, (ncclParamHandle_t h, uint64_t* out), (h, out));
FORWARD(ncclResult_t, ParamGetStr, (ncclParamHandle_t h, const char** out), (h, out));
FORWARD(ncclResult_t, ParamGet, (ncclParamHandle_t h, void* out, int maxLen, int* len),
        (h, out, maxLen, len));
FORWARD(ncclResult_t, ParamGetParameter, (const char* key, const char** value, int* valueLen),
        (key, value, valueLen));
FORWARD(ncclResult_t, ParamGetAllParameterKeys, (const char*** table, int* tableLen), (table, tableLen));
FORWARD(void, ParamDumpAll, (), ());
FORWARD(ncclResult_t, DevCommCreate,
        (ncclComm_t comm, const ncclDevCommRequirements_t* reqs, ncclDevComm_t* outDevComm),
        (comm, reqs, outDevComm));
FORWARD(ncclResult_t, DevCommDestroy, (ncclComm_t comm, const ncclDevComm_t* devComm), (comm, devComm));
FORWARD(ncclResult_t, LsaBarrierCreateRequirement,
        (ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle,
         ncclDevResourceRequirements_t* outReq),
        (team, nBarriers, outHandle, outReq));
FORWARD(ncclResult_t, GinBarrierCreateRequirement,
        (ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t* outHandle,
         ncclDevResourceRequirements_t* outReq),
        (comm, team, nBarriers, outHandle, outReq));
FORWARD(ncclResult_t, LLA2ACreateRequirement,
        (int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle, ncclDevResourceRequirements_t* outReq),
        (nBlocks, nSlots, outHandle, outReq));
FORWARD(int, LLA2ACalcSlots, (int maxElts, int maxEltSize), (maxElts, maxEltSize));
FORWARD(ncclResult_t, GetPeerDevicePointer, (ncclWindow_t window, size_t offset, int peer, void** outPtr), (window, offset, peer, outPtr));
FORWARD(ncclResult_t, GetLsaDevicePointer, (ncclWindow_t window, size_t offset, int lsaRank, void** outPtr), (window, offset, lsaRank, outPtr));
FORWARD(ncclResult_t, GetLsaMultimemDevicePointer, (ncclWindow_t window, size_t offset, void** outPtr), (window, offset, outPtr));
FORWARD(ncclResult_t, GetMultimemDevicePointer, (ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void** outPtr),
        (window, offset, multimem, outPtr));
FORWARD(ncclTeam_t, TeamWorld, (ncclComm_t comm), (comm));
FORWARD(ncclTeam_t, TeamLsa, (ncclComm_t comm), (comm));
FORWARD(ncclTeam_t, TeamRail, (ncclComm_t comm), (comm));
FORWARD(int, TeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank), (comm, team, rank));
FORWARD(int, TeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank), (comm, team, rank));

// NVIDIA's library shows this one, too, under this name only.
extern "C" MUSTER_API void ncclResetDebugInitInternal() { muster::nccl::ResetDebugInit(); }
