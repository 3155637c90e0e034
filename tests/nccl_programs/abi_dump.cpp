// Prints what a program compiled with an nccl.h relies on, a line per fact: types of functions, sizes,
// offsets, numbers. Compiled with NVIDIA's header and with ours; each line of NVIDIA's must be one of ours.
#include <nccl.h>
#ifdef NCCL_DEVICE_HEADER
#include <nccl_device.h>
#endif

#include <cstddef>
#include <cstdio>
#include <string>

template <class T>
std::string type_name() {
  const std::string s = __PRETTY_FUNCTION__;
  const size_t begin = s.find("T = ") + 4;
  return s.substr(begin, s.find_first_of(";]", begin) - begin);
}

#define FUNCTION(name)                                                  \
  std::printf("%s: %s\n", #name, type_name<decltype(&name)>().c_str()); \
  std::printf("p%s: %s\n", #name, type_name<decltype(&p##name)>().c_str())
#define SIZE(type) std::printf("sizeof(%s) = %zu\n", #type, sizeof(type))
#define FIELD(type, name) std::printf("offsetof(%s, %s) = %zu\n", #type, #name, offsetof(type, name))
#define NUMBER(name) std::printf("%s = %lld\n", #name, static_cast<long long>(name))

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

int main() {
  FUNCTION(ncclGetVersion);
  FUNCTION(ncclGetUniqueId);
  FUNCTION(ncclCommInitRank);
  FUNCTION(ncclCommInitAll);
  FUNCTION(ncclCommDestroy);
  FUNCTION(ncclCommAbort);
  FUNCTION(ncclGetErrorString);
  FUNCTION(ncclCommGetAsyncError);
  FUNCTION(ncclCommCount);
  FUNCTION(ncclCommCuDevice);
  FUNCTION(ncclCommUserRank);
  FUNCTION(ncclReduce);
  FUNCTION(ncclBcast);
  FUNCTION(ncclBroadcast);
  FUNCTION(ncclAllReduce);
  FUNCTION(ncclReduceScatter);
  FUNCTION(ncclAllGather);
  FUNCTION(ncclSend);
  FUNCTION(ncclRecv);
  FUNCTION(ncclGroupStart);
  FUNCTION(ncclGroupEnd);
  SIZE(ncclUniqueId);
  SIZE(ncclComm_t);
  SIZE(ncclResult_t);
  SIZE(ncclRedOp_t);
  SIZE(ncclDataType_t);
  NUMBER(ncclSuccess);
  NUMBER(ncclUnhandledCudaError);
  NUMBER(ncclSystemError);
  NUMBER(ncclInternalError);
  NUMBER(ncclInvalidArgument);
  NUMBER(ncclInvalidUsage);
  NUMBER(ncclSum);
  NUMBER(ncclProd);
  NUMBER(ncclMax);
  NUMBER(ncclMin);
  NUMBER(ncclInt8);
  NUMBER(ncclChar);
  NUMBER(ncclUint8);
  NUMBER(ncclInt32);
  NUMBER(ncclInt);
  NUMBER(ncclUint32);
  NUMBER(ncclInt64);
  NUMBER(ncclUint64);
  NUMBER(ncclFloat16);
  NUMBER(ncclHalf);
  NUMBER(ncclFloat32);
  NUMBER(ncclFloat);
  NUMBER(ncclFloat64);
  NUMBER(ncclDouble);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0)
  FUNCTION(ncclCommInitRankConfig);
  FUNCTION(ncclCommFinalize);
  FUNCTION(ncclGetLastError);
  FUNCTION(ncclRedOpCreatePreMulSum);
  FUNCTION(ncclRedOpDestroy);
  NUMBER(ncclRemoteError);
  NUMBER(ncclInProgress);
  NUMBER(ncclAvg);
  NUMBER(ncclNumOps);
  NUMBER(ncclMaxRedOp);
  NUMBER(ncclBfloat16);
  NUMBER(ncclScalarDevice);
  NUMBER(ncclScalarHostImmediate);
  NUMBER(NCCL_CONFIG_UNDEF_INT);
  FIELD(ncclConfig_t, size);
  FIELD(ncclConfig_t, magic);
  FIELD(ncclConfig_t, version);
  FIELD(ncclConfig_t, blocking);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
  FUNCTION(ncclCommSplit);
  FUNCTION(ncclMemAlloc);
  FUNCTION(ncclMemFree);
  FUNCTION(ncclCommRegister);
  FUNCTION(ncclCommDeregister);
  FIELD(ncclConfig_t, cgaClusterSize);
  FIELD(ncclConfig_t, minCTAs);
  FIELD(ncclConfig_t, maxCTAs);
  FIELD(ncclConfig_t, netName);
  FIELD(ncclConfig_t, splitShare);
  NUMBER(NCCL_SPLIT_NOCOLOR);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  FUNCTION(ncclCommInitRankScalable);
  FUNCTION(ncclCommShrink);
  FUNCTION(ncclCommRevoke);
  FUNCTION(ncclCommWindowRegister);
  FUNCTION(ncclCommWindowDeregister);
  FUNCTION(ncclGroupSimulateEnd);
  FUNCTION(ncclResetDebugInit);
  FUNCTION(ncclAlltoAll);
  FUNCTION(ncclGather);
  FUNCTION(ncclScatter);
  NUMBER(ncclFloat8e4m3);
  NUMBER(ncclFloat8e5m2);
  NUMBER(ncclNumTypes);
  NUMBER(NCCL_WIN_DEFAULT);
  NUMBER(NCCL_WIN_COLL_SYMMETRIC);
  NUMBER(NCCL_WIN_REQUIRED_ALIGNMENT);
  NUMBER(NCCL_CTA_POLICY_DEFAULT);
  NUMBER(NCCL_CTA_POLICY_EFFICIENCY);
  NUMBER(NCCL_CTA_POLICY_ZERO);
  NUMBER(NCCL_SHRINK_DEFAULT);
  NUMBER(NCCL_SHRINK_ABORT);
  NUMBER(NCCL_REVOKE_DEFAULT);
  FIELD(ncclConfig_t, trafficClass);
  FIELD(ncclConfig_t, commName);
  FIELD(ncclConfig_t, collnetEnable);
  FIELD(ncclConfig_t, CTAPolicy);
  FIELD(ncclConfig_t, shrinkShare);
  FIELD(ncclConfig_t, nvlsCTAs);
  FIELD(ncclConfig_t, nChannelsPerNetPeer);
  FIELD(ncclConfig_t, nvlinkCentricSched);
  SIZE(ncclSimInfo_t);
  FIELD(ncclSimInfo_t, size);
  FIELD(ncclSimInfo_t, magic);
  FIELD(ncclSimInfo_t, version);
  FIELD(ncclSimInfo_t, estimatedTime);
  const ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  NUMBER(info.magic);
  NUMBER(info.estimatedTime);
  NUMBER(config.magic);
  NUMBER(config.blocking);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
  FUNCTION(ncclPutSignal);
  FUNCTION(ncclSignal);
  FUNCTION(ncclWaitSignal);
  SIZE(ncclWaitSignalDesc_t);
  FIELD(ncclWaitSignalDesc_t, opCnt);
  FIELD(ncclWaitSignalDesc_t, peer);
  FIELD(ncclWaitSignalDesc_t, sigIdx);
  FIELD(ncclWaitSignalDesc_t, ctx);
  FUNCTION(ncclCommGetUniqueId);
  FUNCTION(ncclCommGrow);
  FUNCTION(ncclCommSuspend);
  FUNCTION(ncclCommResume);
  FUNCTION(ncclCommMemStats);
  FUNCTION(ncclWinGetUserPtr);
  FUNCTION(ncclParamBind);
  FUNCTION(ncclParamGetI64);
  FUNCTION(ncclParamGetStr);
  FUNCTION(ncclParamGet);
  FUNCTION(ncclParamGetParameter);
  FUNCTION(ncclParamGetAllParameterKeys);
  FUNCTION(ncclParamDumpAll);
  FIELD(ncclConfig_t, graphUsageMode);
  FIELD(ncclConfig_t, numRmaCtx);
  FIELD(ncclConfig_t, maxP2pPeers);
#endif
  return 0;
}
