// What libnccl.so.2 calls: each ncclX and pncclX goes on to muster::nccl::X, of the same type, in
// libmuster.so.
#pragma once

#include "muster/types.h"
#include "nccl.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
namespace muster::nccl {

#define MUSTER_NCCL_ENTRY(name) MUSTER_API extern decltype(::nccl##name) name
MUSTER_NCCL_ENTRY(GetVersion);
MUSTER_NCCL_ENTRY(GetErrorString);
MUSTER_NCCL_ENTRY(GetLastError);
MUSTER_NCCL_ENTRY(ResetDebugInit);
MUSTER_NCCL_ENTRY(MemAlloc);
MUSTER_NCCL_ENTRY(MemFree);
MUSTER_NCCL_ENTRY(GetUniqueId);
MUSTER_NCCL_ENTRY(CommInitRank);
MUSTER_NCCL_ENTRY(CommInitRankConfig);
MUSTER_NCCL_ENTRY(CommInitRankScalable);
MUSTER_NCCL_ENTRY(CommInitAll);
MUSTER_NCCL_ENTRY(CommSplit);
MUSTER_NCCL_ENTRY(CommShrink);
MUSTER_NCCL_ENTRY(CommGetUniqueId);
MUSTER_NCCL_ENTRY(CommGrow);
MUSTER_NCCL_ENTRY(CommFinalize);
MUSTER_NCCL_ENTRY(CommDestroy);
MUSTER_NCCL_ENTRY(CommAbort);
MUSTER_NCCL_ENTRY(CommRevoke);
MUSTER_NCCL_ENTRY(CommSuspend);
MUSTER_NCCL_ENTRY(CommResume);
MUSTER_NCCL_ENTRY(CommGetAsyncError);
MUSTER_NCCL_ENTRY(CommCount);
MUSTER_NCCL_ENTRY(CommUserRank);
MUSTER_NCCL_ENTRY(CommCuDevice);
MUSTER_NCCL_ENTRY(CommMemStats);
MUSTER_NCCL_ENTRY(CommQueryProperties);
MUSTER_NCCL_ENTRY(CommRegister);
MUSTER_NCCL_ENTRY(CommDeregister);
MUSTER_NCCL_ENTRY(CommWindowRegister);
MUSTER_NCCL_ENTRY(CommWindowDeregister);
MUSTER_NCCL_ENTRY(WinGetUserPtr);
MUSTER_NCCL_ENTRY(RedOpCreatePreMulSum);
MUSTER_NCCL_ENTRY(RedOpDestroy);
MUSTER_NCCL_ENTRY(AllReduce);
MUSTER_NCCL_ENTRY(Reduce);
MUSTER_NCCL_ENTRY(Broadcast);
MUSTER_NCCL_ENTRY(Bcast);
MUSTER_NCCL_ENTRY(ReduceScatter);
MUSTER_NCCL_ENTRY(AllGather);
MUSTER_NCCL_ENTRY(AlltoAll);
MUSTER_NCCL_ENTRY(Gather);
MUSTER_NCCL_ENTRY(Scatter);
MUSTER_NCCL_ENTRY(AllReduceConfig);
MUSTER_NCCL_ENTRY(ReduceConfig);
MUSTER_NCCL_ENTRY(BroadcastConfig);
MUSTER_NCCL_ENTRY(ReduceScatterConfig);
MUSTER_NCCL_ENTRY(AllGatherConfig);
MUSTER_NCCL_ENTRY(AlltoAllConfig);
MUSTER_NCCL_ENTRY(GatherConfig);
MUSTER_NCCL_ENTRY(ScatterConfig);
MUSTER_NCCL_ENTRY(Send);
MUSTER_NCCL_ENTRY(Recv);
MUSTER_NCCL_ENTRY(PutSignal);
MUSTER_NCCL_ENTRY(Signal);
MUSTER_NCCL_ENTRY(WaitSignal);
MUSTER_NCCL_ENTRY(GroupStart);
MUSTER_NCCL_ENTRY(GroupEnd);
MUSTER_NCCL_ENTRY(GroupSimulateEnd);
MUSTER_NCCL_ENTRY(ParamBind);
MUSTER_NCCL_ENTRY(ParamGetI8);
MUSTER_NCCL_ENTRY(ParamGetI16);
MUSTER_NCCL_ENTRY(ParamGetI32);
MUSTER_NCCL_ENTRY(ParamGetI64);
MUSTER_NCCL_ENTRY(ParamGetU8);
MUSTER_NCCL_ENTRY(ParamGetU16);
MUSTER_NCCL_ENTRY(ParamGetU32);
MUSTER_NCCL_ENTRY(ParamGetU64);
MUSTER_NCCL_ENTRY(ParamGetStr);
MUSTER_NCCL_ENTRY(ParamGet);
MUSTER_NCCL_ENTRY(ParamGetParameter);
MUSTER_NCCL_ENTRY(ParamGetAllParameterKeys);
MUSTER_NCCL_ENTRY(ParamDumpAll);
MUSTER_NCCL_ENTRY(DevCommCreate);
MUSTER_NCCL_ENTRY(DevCommDestroy);
MUSTER_NCCL_ENTRY(LsaBarrierCreateRequirement);
MUSTER_NCCL_ENTRY(GinBarrierCreateRequirement);
MUSTER_NCCL_ENTRY(LLA2ACreateRequirement);
MUSTER_NCCL_ENTRY(LLA2ACalcSlots);
MUSTER_NCCL_ENTRY(GetPeerDevicePointer);
MUSTER_NCCL_ENTRY(GetLsaDevicePointer);
MUSTER_NCCL_ENTRY(GetLsaMultimemDevicePointer);
MUSTER_NCCL_ENTRY(GetMultimemDevicePointer);
MUSTER_NCCL_ENTRY(TeamWorld);
MUSTER_NCCL_ENTRY(TeamLsa);
MUSTER_NCCL_ENTRY(TeamRail);
MUSTER_NCCL_ENTRY(TeamRankToWorld);
MUSTER_NCCL_ENTRY(TeamRankToLsa);
#undef MUSTER_NCCL_ENTRY

}  // namespace muster::nccl
#pragma GCC diagnostic pop
