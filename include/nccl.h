/* NCCL's C interface, as Muster's libnccl.so.2 provides it. For C and C++, with or without CUDA's headers.
 *
 * Buffers are host memory, or memory of GPUs where the library is built for them (docs/cuda.md). For GPU memory
 * a stream is a CUDA stream. For host memory it is NULL (also cudaStreamLegacy and cudaStreamPerThread): the
 * calling thread runs the call, which returns when this rank's part is complete; or one made by
 * musterStreamCreate (muster.h): the call returns at once. Counts are elements, sizes and offsets bytes.
 *
 * Every call returns a code; ncclGetLastError has the full explanation. Handles are checked: NULL, one that
 * was destroyed and one that is none give ncclInvalidArgument. An error inside a group: what follows up to
 * ncclGroupEnd is taken but not run, and ncclGroupEnd returns the first error.
 *
 * Thread-safety: one communicator is used by one thread at a time, but for ncclCommAbort, ncclCommRevoke,
 * ncclCommGetAsyncError, ncclGetLastError and the queries of count and rank, which any thread may call at any
 * time. Groups are per thread. docs/nccl-compatibility.md has an entry for each function. */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__has_include)
#if __has_include(<cuda_runtime.h>) && __has_include(<cuda_fp16.h>) && __has_include(<cuda_bf16.h>)
#define NCCL_HAS_CUDA_HEADERS 1
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#if defined(__cplusplus) && __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#endif
#endif
#endif
#ifndef NCCL_HAS_CUDA_HEADERS
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
#endif

/* The newest release whose structures are those below and whose host-side calls are all here
 * (docs/nccl-compatibility.md). */
#define NCCL_MAJOR 2
#define NCCL_MINOR 32
#define NCCL_PATCH 3
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 23203
/* Codes up to 2.8 have a digit less for the major version. */
#define NCCL_VERSION(X, Y, Z) \
  (((X) < 2 || ((X) == 2 && (Y) <= 8)) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,     /* the operating system refused something */
  ncclInternalError = 3,   /* a bug in the library */
  ncclInvalidArgument = 4, /* an argument can't be right */
  ncclInvalidUsage = 5,    /* the calls don't go together, on this rank or between ranks */
  ncclRemoteError = 6,     /* another rank failed or is gone */
  ncclInProgress = 7,      /* of a non-blocking communicator: poll ncclCommGetAsyncError */
  ncclTimeout = 8,
  ncclNumResults = 9
} ncclResult_t;

/* What a field of a configuration has when nobody set it. */
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f
#define NCCL_API_MAGIC 0xcafebeef

#define NCCL_SPLIT_NOCOLOR -1

#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_GIN_ONLY 0x04
#define NCCL_WIN_CFT_COUNTED 0x08
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

#define NCCL_SHRINK_DEFAULT 0x00 /* calls of the parent are completed first */
#define NCCL_SHRINK_ABORT 0x01   /* calls of the parent are ended first: for use after a failure */

#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_SUSPEND_MEM 0x01

typedef enum {
  ncclHostCftDefault = NCCL_CONFIG_UNDEF_INT,
  ncclHostCftEnable = 1,
  ncclHostCftDisable = 2,
  ncclHostCftFallback = 3
} ncclHostCftMode_t;

typedef enum {
  ncclNvlsHostModeDefault = NCCL_CONFIG_UNDEF_INT,
  ncclNvlsHostModeEnable = 0,
  ncclNvlsHostModeDisableTransport = 1,
  ncclNvlsHostModeDisableSymmetricMultimem = 2,
  ncclNvlsHostModeDisable = INT_MAX
} ncclNvlsHostMode_t;

/* Of a communicator. Made with NCCL_CONFIG_INITIALIZER; headers since 2.14 have the first fields of it, as
 * many as `size` says. docs/nccl-compatibility.md says which have an effect on host memory. */
typedef struct ncclConfig_st {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking; /* 0: calls return ncclInProgress and go on in the background */
  int cgaClusterSize;
  int minCTAs; /* bounds of the number of channels */
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName; /* shown in messages */
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
  int graphUsageMode;
  int numRmaCtx;
  int maxP2pPeers;
  int graphStreamOrdering;
  int launchOrderImplicit;
  int numRmaSig;
  int rmaEagerInit;
  int hostCftMode;
  int nvlsHostMode;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                           \
  {                                                                                                       \
    sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT /* blocking */,        \
        NCCL_CONFIG_UNDEF_INT /* cgaClusterSize */, NCCL_CONFIG_UNDEF_INT /* minCTAs */,                  \
        NCCL_CONFIG_UNDEF_INT /* maxCTAs */, NCCL_CONFIG_UNDEF_PTR /* netName */,                         \
        NCCL_CONFIG_UNDEF_INT /* splitShare */, NCCL_CONFIG_UNDEF_INT /* trafficClass */,                 \
        NCCL_CONFIG_UNDEF_PTR /* commName */, NCCL_CONFIG_UNDEF_INT /* collnetEnable */,                  \
        NCCL_CONFIG_UNDEF_INT /* CTAPolicy */, NCCL_CONFIG_UNDEF_INT /* shrinkShare */,                   \
        NCCL_CONFIG_UNDEF_INT /* nvlsCTAs */, NCCL_CONFIG_UNDEF_INT /* nChannelsPerNetPeer */,            \
        NCCL_CONFIG_UNDEF_INT /* nvlinkCentricSched */, NCCL_CONFIG_UNDEF_INT /* graphUsageMode */,       \
        NCCL_CONFIG_UNDEF_INT /* numRmaCtx */, NCCL_CONFIG_UNDEF_INT /* maxP2pPeers */,                   \
        NCCL_CONFIG_UNDEF_INT /* graphStreamOrdering */, NCCL_CONFIG_UNDEF_INT /* launchOrderImplicit */, \
        NCCL_CONFIG_UNDEF_INT /* numRmaSig */, NCCL_CONFIG_UNDEF_INT /* rmaEagerInit */,                  \
        NCCL_CONFIG_UNDEF_INT /* hostCftMode */, NCCL_CONFIG_UNDEF_INT /* nvlsHostMode */                 \
  }

/* A vendor's option of one call, in a list. Ignored. */
typedef struct ncclConfigExt {
  struct ncclConfigExt* next;
  struct {
    int vendorId;
    int optionId;
  } key;
  union {
    int i;
    const char* s;
    void* raw;
  } val;
} ncclConfigExt_t;

/* Of one call (ncclXConfig). Made with NCCL_COLLCONFIG_INITIALIZER, equal on all ranks; read before the call
 * returns. */
typedef struct ncclCollConfig_st {
  size_t size;
  unsigned int magic;
  unsigned int version;
  ncclConfigExt_t* ext;
  int minCTAs;
  int maxCTAs;
  int nvlsCTAs;
  int cgaClusterSize;
  const char* algSelection; /* algorithms that may be used; NULL or "": all */
  int forceAlgSelection;    /* 1: a selection that can't be satisfied is an error; 0: it is ignored then */
  int CTAPolicy;
  uint64_t userProfilerTag;
  cudaEvent_t launchCompletionEvent;
} ncclCollConfig_t;

#define NCCL_COLLCONFIG_INITIALIZER                                                               \
  {                                                                                               \
    sizeof(ncclCollConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_PTR /* ext */, \
        NCCL_CONFIG_UNDEF_INT /* minCTAs */, NCCL_CONFIG_UNDEF_INT /* maxCTAs */,                 \
        NCCL_CONFIG_UNDEF_INT /* nvlsCTAs */, NCCL_CONFIG_UNDEF_INT /* cgaClusterSize */,         \
        NCCL_CONFIG_UNDEF_PTR /* algSelection */, 1 /* forceAlgSelection */,                      \
        NCCL_CONFIG_UNDEF_INT /* CTAPolicy */, 0 /* userProfilerTag */,                           \
        NCCL_CONFIG_UNDEF_PTR /* launchCompletionEvent */                                         \
  }

typedef struct ncclSimInfo_st {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* microseconds */
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER \
  { sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }

/* --- The library
 * -------------------------------------------------------------------------------------------------- */

/* NCCL_VERSION_CODE of the library. Needs nothing to be initialised. */
ncclResult_t ncclGetVersion(int* version);
/* What a code means, never NULL. */
const char* ncclGetErrorString(ncclResult_t result);
/* The explanation of the last error: of `comm`, or of this thread's last failed call (if it had none, of the
 * process's) for NULL. "" if there was none. Valid until this thread's next call of this function. */
const char* ncclGetLastError(ncclComm_t comm);
/* Reads again what the environment says about logging. */
#if defined(__GNUC__)
__attribute__((deprecated("set NCCL_DEBUG before the first communicator is made")))
#endif
void ncclResetDebugInit(void);
void ncclResetDebugInitInternal(void);

/* Page-aligned memory of which every process of a communicator on this host can load and store each byte, so
 * that large collectives on it need no copy. size 0 gives a pointer, too. */
ncclResult_t ncclMemAlloc(void** ptr, size_t size);
ncclResult_t ncclMemFree(void* ptr);

/* --- Making communicators
 * ----------------------------------------------------------------------------------------- */
/* All ranks call the same; each returns when the communicator is made, or, on failure, with the same error on
 * all ranks and *comm = NULL. Inside a group: made at ncclGroupEnd. config NULL: defaults, or the parent's
 * configuration. */

/* By one rank; the bytes go to the others by any means. Good for one communicator. */
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config);
/* With 1 to nranks ids of different ranks, the same ones in the same order on all, so that no rank has to
 * serve all. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId* commIds, ncclConfig_t* config);
/* ndev ranks in this process. devlist: numbers that ncclCommCuDevice returns, or NULL for 0, 1, ... */
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);
/* Ranks with the same color, ordered by key and then by rank. NCCL_SPLIT_NOCOLOR: *newcomm = NULL. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);
/* Without the ranks in excludeRanksList; those don't call it. */
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags);
/* An id for one ncclCommGrow, by one rank of comm. */
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId);
/* With new ranks. Ranks of comm: rank -1, uniqueId NULL, or the id on the rank that made it; they keep their
 * numbers. New ranks: comm NULL, the id, and a rank from the size of the parent on. nRanks: of the new
 * communicator. */
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                          ncclComm_t* newcomm, ncclConfig_t* config);

/* --- Ending communicators
 * ----------------------------------------------------------------------------------------- */

/* Waits until all ranks have completed their calls and called it. Afterwards only ncclCommDestroy and
 * queries. */
ncclResult_t ncclCommFinalize(ncclComm_t comm);
/* Completes this rank's calls and frees the communicator. NULL: nothing. */
ncclResult_t ncclCommDestroy(ncclComm_t comm);
/* Ends calls under way, on this rank and, with an error, on the others, and frees the communicator. Any
 * thread. NULL: nothing. */
ncclResult_t ncclCommAbort(ncclComm_t comm);
/* Ends calls under way; the communicator can be split, shrunk and destroyed afterwards. Any thread. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);
/* Gives back the memory of messages until ncclCommResume; no calls meanwhile. All ranks call it. flags:
 * NCCL_SUSPEND_MEM. */
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);

/* --- Asking communicators
 * ----------------------------------------------------------------------------------------- */

/* ncclSuccess, ncclInProgress, or the error that the communicator is in. Cheap. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);
/* The number given to ncclCommInitAll, else 0: host memory. */
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);

typedef enum {
  ncclStatGpuMemSuspend = 0,   /* bytes that ncclCommSuspend gives back */
  ncclStatGpuMemSuspended = 1, /* 1 while suspended */
  ncclStatGpuMemPersist = 2,   /* bytes that stay */
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;
/* Host memory, here, that this rank's membership occupies. */
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value);

typedef enum {
  NCCL_GIN_TYPE_NONE = 0,
  NCCL_GIN_TYPE_PROXY = 2,
  NCCL_GIN_TYPE_GDAKI = 3,
  NCCL_GIN_TYPE_GPI = 4
} ncclGinType_t;
typedef struct ncclCommProperties {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  ncclGinType_t ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  ncclGinType_t railedGinType;
} ncclCommProperties_t;
#define NCCL_COMM_PROPERTIES_INITIALIZER                                                       \
  {                                                                                            \
    sizeof(ncclCommProperties_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, 0, 0, 0, 0, false, false, \
        NCCL_GIN_TYPE_NONE, 0, false, NCCL_GIN_TYPE_NONE                                       \
  }
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t* props);

/* --- Registering memory
 * ------------------------------------------------------------------------------------------- */

/* Local. Between processes, memory of ncclMemAlloc is used without copying, registered or not; other memory
 * is copied. */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);
/* Every rank calls it, with a size of its own, also 0: its part of a window, which other ranks may write to
 * with ncclPutSignal. buff is a multiple of NCCL_WIN_REQUIRED_ALIGNMENT. Between processes it is memory of
 * ncclMemAlloc; if on one rank it isn't, all get ncclInvalidUsage. *win is complete after ncclGroupEnd, or,
 * non-blocking, when ncclCommGetAsyncError says ncclSuccess. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                    int winFlags);
/* Local: no rank may be writing to this rank's part any more. */
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
/* The address that was registered on this rank. */
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr);

/* --- Types and reductions
 * ----------------------------------------------------------------------------------------- */

typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5, /* those above; operations made by ncclRedOpCreate... have numbers from here on */
  ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

typedef enum {
  ncclScalarDevice = 0,       /* read when the operation runs */
  ncclScalarHostImmediate = 1 /* read before ncclRedOpCreate... returns */
} ncclScalarResidence_t;

/* A sum in which this rank's elements are multiplied by *scalar (of type datatype) first. For calls of that
 * type on comm. */
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
/* Allowed as soon as the last call that uses it has returned. */
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* --- Collectives
 * -------------------------------------------------------------------------------------------------- */
/* Every rank calls them in the same order, with equal counts, types, operations and roots; a difference gives
 * every rank ncclInvalidUsage with both calls in ncclGetLastError. Buffers may overlap only in the in-place
 * form given. */

/* sendbuff, recvbuff: count. In place: equal. */
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
/* recvbuff: at root. In place: equal. */
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
/* sendbuff: at root. In place: equal. */
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream);
/* sendbuff: nranks * recvcount; recvbuff: recvcount. In place: recvbuff == sendbuff + rank * recvcount. */
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
/* sendbuff: sendcount; recvbuff: nranks * sendcount. In place: sendbuff == recvbuff + rank * sendcount. */
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream);
/* Both: nranks * count. In place: equal. */
ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                          ncclComm_t comm, cudaStream_t stream);
/* sendbuff: count; recvbuff at root: nranks * count. In place: sendbuff == recvbuff + root * count. */
ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream);
/* sendbuff at root: nranks * count; recvbuff: count. In place: recvbuff == sendbuff + root * count. */
ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         int root, ncclComm_t comm, cudaStream_t stream);

/* The same with a configuration; NULL: none. */
ncclResult_t ncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config);
ncclResult_t ncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config);
ncclResult_t ncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 int root, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config);
ncclResult_t ncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount,
                                     ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                     cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount,
                                 ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config);
ncclResult_t ncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                              int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                               int root, ncclComm_t comm, cudaStream_t stream,
                               const ncclCollConfig_t* config);

/* --- Between two ranks
 * -------------------------------------------------------------------------------------------- */
/* Messages between two ranks match in call order, with equal counts and types. Any set of sends and receives
 * of one group completes, whatever their order; outside groups a send waits for its receive. */
ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);

/* One-sided: only the rank that writes calls, and sends a signal after its data. Each rank counts the signals
 * of each rank, by index (0 to 255) and context (0 to 15). Calls of one communicator run in call order; those of
 * a group run at its end, puts and signals before waits. */

/* localbuff's count elements go to peerWinOffset bytes into peer's part of peerWin, and then a signal. flags:
 * 0. What leaves the part: ncclInvalidArgument. */
ncclResult_t ncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
                           ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                           unsigned int flags, ncclComm_t comm, cudaStream_t stream);
/* flags: 0. */
ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                        cudaStream_t stream);
/* opCnt signals that peer has sent or will send. */
typedef struct {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;
/* Waits for the signals of all nDesc descriptors, and takes them off the counts. */
ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm,
                            cudaStream_t stream);

/* --- Groups
 * ------------------------------------------------------------------------------------------------------- */

/* Calls of this thread are collected, of any communicators, and run together at the outermost ncclGroupEnd.
 */
ncclResult_t ncclGroupStart(void);
/* ncclInProgress: a communicator in the group is non-blocking, and its calls go on in the background. */
ncclResult_t ncclGroupEnd(void);
/* Ends the group without running it; simInfo->estimatedTime is what it would take. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo);

/* --- Options
 * ------------------------------------------------------------------------------------------------------ */
/* The options of docs/options.md as they are set now, by their names. */
typedef struct ncclParamHandle* ncclParamHandle_t;
ncclResult_t ncclParamBind(ncclParamHandle_t* out, const char* key);
/* ncclInvalidArgument where the option is no number, or is out of the type's range. */
ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t* out);
ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t* out);
ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t* out);
ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t* out);
ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t* out);
ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t* out);
ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t* out);
ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t* out);
/* Strings and tables are valid until this thread's next call of the same function. */
ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char** out);
/* The value's bytes: a number's 8, or a text without its end. *len: their number, also if maxLen is too
 * small. */
ncclResult_t ncclParamGet(ncclParamHandle_t h, void* out, int maxLen, int* len);
ncclResult_t ncclParamGetParameter(const char* key, const char** value, int* valueLen);
ncclResult_t ncclParamGetAllParameterKeys(const char*** table, int* tableLen);
/* To the log. */
void ncclParamDumpAll(void);

/* --- The device-side interface
 * ------------------------------------------------------------------------------------ */
/* Calls made by GPU kernels; there are none on host memory. What makes such resources returns
 * ncclInvalidUsage. */
typedef struct ncclTeam {
  int nRanks, rank, stride;
} ncclTeam_t;
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t* reqs,
                               ncclDevComm_t* outDevComm);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t* devComm);
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers,
                                             ncclLsaBarrierHandle_t* outHandle,
                                             ncclDevResourceRequirements_t* outReq);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers,
                                             ncclGinBarrierHandle_t* outHandle,
                                             ncclDevResourceRequirements_t* outReq);
ncclResult_t ncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle,
                                        ncclDevResourceRequirements_t* outReq);
int ncclLLA2ACalcSlots(int maxElts, int maxEltSize);
/* Where byte `offset` of a rank's range of a window is mapped in this process, `lsaRank` counted in ncclTeamLsa; NULL: it isn't (another
 * host, or memory that ncclMemAlloc didn't give). Multimem, memory that all load and store at once, there is none of: NULL. */
typedef struct ncclMultimemHandle {
  void* mcBasePtr;
} ncclMultimemHandle_t;
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** outPtr);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void** outPtr);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void** outPtr);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void** outPtr);
/* Ranks as sets: all; those whose memory this rank can load and store; one of each of those sets, that with
 * as many before it. Where they aren't equally far apart a set is this rank alone. {0, 0, 0}: an error. */
ncclTeam_t ncclTeamWorld(ncclComm_t comm);
ncclTeam_t ncclTeamLsa(ncclComm_t comm);
ncclTeam_t ncclTeamRail(ncclComm_t comm);
/* The number in the world, or in the Lsa team, of `rank` of `team`; -1: an error. */
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);

/* --- The same under names that aren't weak: a profiler that defines ncclX calls pncclX
 * ------------------------------- */

#define NCCL_PROFILED(name) extern __typeof__(name) p##name
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
NCCL_PROFILED(ncclGetVersion);
NCCL_PROFILED(ncclGetErrorString);
NCCL_PROFILED(ncclGetLastError);
NCCL_PROFILED(ncclResetDebugInit);
NCCL_PROFILED(ncclMemAlloc);
NCCL_PROFILED(ncclMemFree);
NCCL_PROFILED(ncclGetUniqueId);
NCCL_PROFILED(ncclCommInitRank);
NCCL_PROFILED(ncclCommInitRankConfig);
NCCL_PROFILED(ncclCommInitRankScalable);
NCCL_PROFILED(ncclCommInitAll);
NCCL_PROFILED(ncclCommSplit);
NCCL_PROFILED(ncclCommShrink);
NCCL_PROFILED(ncclCommGetUniqueId);
NCCL_PROFILED(ncclCommGrow);
NCCL_PROFILED(ncclCommFinalize);
NCCL_PROFILED(ncclCommDestroy);
NCCL_PROFILED(ncclCommAbort);
NCCL_PROFILED(ncclCommRevoke);
NCCL_PROFILED(ncclCommSuspend);
NCCL_PROFILED(ncclCommResume);
NCCL_PROFILED(ncclCommGetAsyncError);
NCCL_PROFILED(ncclCommCount);
NCCL_PROFILED(ncclCommUserRank);
NCCL_PROFILED(ncclCommCuDevice);
NCCL_PROFILED(ncclCommMemStats);
NCCL_PROFILED(ncclCommQueryProperties);
NCCL_PROFILED(ncclCommRegister);
NCCL_PROFILED(ncclCommDeregister);
NCCL_PROFILED(ncclCommWindowRegister);
NCCL_PROFILED(ncclCommWindowDeregister);
NCCL_PROFILED(ncclWinGetUserPtr);
NCCL_PROFILED(ncclRedOpCreatePreMulSum);
NCCL_PROFILED(ncclRedOpDestroy);
NCCL_PROFILED(ncclAllReduce);
NCCL_PROFILED(ncclReduce);
NCCL_PROFILED(ncclBroadcast);
NCCL_PROFILED(ncclBcast);
NCCL_PROFILED(ncclReduceScatter);
NCCL_PROFILED(ncclAllGather);
NCCL_PROFILED(ncclAlltoAll);
NCCL_PROFILED(ncclGather);
NCCL_PROFILED(ncclScatter);
NCCL_PROFILED(ncclAllReduceConfig);
NCCL_PROFILED(ncclReduceConfig);
NCCL_PROFILED(ncclBroadcastConfig);
NCCL_PROFILED(ncclReduceScatterConfig);
NCCL_PROFILED(ncclAllGatherConfig);
NCCL_PROFILED(ncclAlltoAllConfig);
NCCL_PROFILED(ncclGatherConfig);
NCCL_PROFILED(ncclScatterConfig);
NCCL_PROFILED(ncclSend);
NCCL_PROFILED(ncclRecv);
NCCL_PROFILED(ncclPutSignal);
NCCL_PROFILED(ncclSignal);
NCCL_PROFILED(ncclWaitSignal);
NCCL_PROFILED(ncclGroupStart);
NCCL_PROFILED(ncclGroupEnd);
NCCL_PROFILED(ncclGroupSimulateEnd);
NCCL_PROFILED(ncclParamBind);
NCCL_PROFILED(ncclParamGetI8);
NCCL_PROFILED(ncclParamGetI16);
NCCL_PROFILED(ncclParamGetI32);
NCCL_PROFILED(ncclParamGetI64);
NCCL_PROFILED(ncclParamGetU8);
NCCL_PROFILED(ncclParamGetU16);
NCCL_PROFILED(ncclParamGetU32);
NCCL_PROFILED(ncclParamGetU64);
NCCL_PROFILED(ncclParamGetStr);
NCCL_PROFILED(ncclParamGet);
NCCL_PROFILED(ncclParamGetParameter);
NCCL_PROFILED(ncclParamGetAllParameterKeys);
NCCL_PROFILED(ncclParamDumpAll);
NCCL_PROFILED(ncclDevCommCreate);
NCCL_PROFILED(ncclDevCommDestroy);
NCCL_PROFILED(ncclLsaBarrierCreateRequirement);
NCCL_PROFILED(ncclGinBarrierCreateRequirement);
NCCL_PROFILED(ncclLLA2ACreateRequirement);
NCCL_PROFILED(ncclLLA2ACalcSlots);
NCCL_PROFILED(ncclGetPeerDevicePointer);
NCCL_PROFILED(ncclGetLsaDevicePointer);
NCCL_PROFILED(ncclGetLsaMultimemDevicePointer);
NCCL_PROFILED(ncclGetMultimemDevicePointer);
NCCL_PROFILED(ncclTeamWorld);
NCCL_PROFILED(ncclTeamLsa);
NCCL_PROFILED(ncclTeamRail);
NCCL_PROFILED(ncclTeamRankToWorld);
NCCL_PROFILED(ncclTeamRankToLsa);
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#undef NCCL_PROFILED

#ifdef __cplusplus
}
#endif

#endif /* NCCL_H_ */
