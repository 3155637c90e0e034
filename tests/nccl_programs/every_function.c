/* Calls each function of nccl.h, found by name in what the process has loaded (LD_PRELOAD), and prints its
 * name, its result and, for a refusal, the explanation: "ncclGetVersion ncclSuccess". Twice: as ncclX and as
 * pncclX. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static const char* prefix = "";

static void* find(const char* name) {
  char full[128];
  snprintf(full, sizeof full, "%s%s", prefix, name);
  void* function = dlsym(RTLD_DEFAULT, full);
  if (!function) {
    fprintf(stderr, "there is no %s\n", full);
    exit(1);
  }
  return function;
}

/* The function of that name, of nccl.h's type. */
#define F(name) ((__typeof__(&name))find(#name))

static const char* const kCodes[] = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                     "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                     "ncclRemoteError",   "ncclInProgress",         "ncclTimeout"};

static ncclResult_t report(const char* name, ncclResult_t result) {
  const char* why = result == ncclSuccess ? "" : F(ncclGetLastError)(NULL);
  printf("%s%s %s %s\n", prefix, name, (unsigned)result < ncclNumResults ? kCodes[result] : "?", why);
  return result;
}
static void answer(const char* name, int right) {
  printf("%s%s %s\n", prefix, name, right ? "ncclSuccess" : "wrong answer");
}

#define CALL(name, ...) report(#name, F(name)(__VA_ARGS__))

static void memory(ncclComm_t comm) {
  void *buffer = NULL, *handle = NULL, *user = NULL;
  ncclWindow_t window = NULL;
  CALL(ncclMemAlloc, &buffer, 8192);
  CALL(ncclCommRegister, comm, buffer, 8192, &handle);
  CALL(ncclCommDeregister, comm, handle);
  CALL(ncclCommWindowRegister, comm, buffer, 8192, &window, NCCL_WIN_COLL_SYMMETRIC);
  CALL(ncclWinGetUserPtr, comm, window, &user);
  ncclWaitSignalDesc_t wait = {2, 0, 1, 0};
  CALL(ncclPutSignal, "data", 4, ncclChar, 0, window, 4096, 1, 0, 0, comm, NULL);
  CALL(ncclSignal, 0, 1, 0, 0, comm, NULL);
  CALL(ncclWaitSignal, 1, &wait, comm, NULL);
  if (memcmp((char*)user + 4096, "data", 5) != 0) answer("ncclPutSignal", 0);
  const ncclMultimemHandle_t multimem = {NULL};
  void *peer = NULL, *lsa = NULL, *none = buffer;
  CALL(ncclGetPeerDevicePointer, window, 4096, 0, &peer);
  if (peer != (char*)buffer + 4096) answer("ncclGetPeerDevicePointer", 0);
  CALL(ncclGetLsaDevicePointer, window, 4096, 0, &lsa);
  if (lsa != peer) answer("ncclGetLsaDevicePointer", 0);
  CALL(ncclGetLsaMultimemDevicePointer, window, 0, &none);
  CALL(ncclGetMultimemDevicePointer, window, 0, multimem, &none);
  if (none != NULL) answer("ncclGetMultimemDevicePointer", 0);
  CALL(ncclCommWindowDeregister, comm, window);
  CALL(ncclMemFree, buffer);
}

static void collectives(ncclComm_t c) {
  float in[2] = {1, 2}, out[2] = {0, 0};
  CALL(ncclAllReduce, in, out, 2, ncclFloat, ncclSum, c, NULL);
  CALL(ncclReduce, in, out, 2, ncclFloat, ncclSum, 0, c, NULL);
  CALL(ncclBroadcast, in, out, 2, ncclFloat, 0, c, NULL);
  CALL(ncclBcast, in, 2, ncclFloat, 0, c, NULL);
  CALL(ncclReduceScatter, in, out, 2, ncclFloat, ncclSum, c, NULL);
  CALL(ncclAllGather, in, out, 2, ncclFloat, c, NULL);
  CALL(ncclAlltoAll, in, out, 2, ncclFloat, c, NULL);
  CALL(ncclGather, in, out, 2, ncclFloat, 0, c, NULL);
  CALL(ncclScatter, in, out, 2, ncclFloat, 0, c, NULL);
  const ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  CALL(ncclAllReduceConfig, in, out, 2, ncclFloat, ncclSum, c, NULL, &config);
  CALL(ncclReduceConfig, in, out, 2, ncclFloat, ncclSum, 0, c, NULL, &config);
  CALL(ncclBroadcastConfig, in, out, 2, ncclFloat, 0, c, NULL, &config);
  CALL(ncclReduceScatterConfig, in, out, 2, ncclFloat, ncclSum, c, NULL, &config);
  CALL(ncclAllGatherConfig, in, out, 2, ncclFloat, c, NULL, &config);
  CALL(ncclAlltoAllConfig, in, out, 2, ncclFloat, c, NULL, &config);
  CALL(ncclGatherConfig, in, out, 2, ncclFloat, 0, c, NULL, &config);
  CALL(ncclScatterConfig, in, out, 2, ncclFloat, 0, c, NULL, &config);
  ncclRedOp_t op;
  float scalar = 2;
  CALL(ncclRedOpCreatePreMulSum, &op, &scalar, ncclFloat, ncclScalarHostImmediate, c);
  CALL(ncclRedOpDestroy, op, c);
}

static void groups(ncclComm_t c) {
  float in = 5, out = 0;
  CALL(ncclGroupStart);
  CALL(ncclSend, &in, 1, ncclFloat, 0, c, NULL);
  CALL(ncclRecv, &out, 1, ncclFloat, 0, c, NULL);
  CALL(ncclGroupEnd);
  F(ncclGroupStart)();
  F(ncclAllReduce)(&in, &out, 1, ncclFloat, ncclSum, c, NULL);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  CALL(ncclGroupSimulateEnd, &info);
}

static void options(void) {
  ncclParamHandle_t h = NULL;
  CALL(ncclParamBind, &h, "MUSTER_CHANNELS");
  int8_t i8;
  int16_t i16;
  int32_t i32;
  int64_t i64;
  uint8_t u8;
  uint16_t u16;
  uint32_t u32;
  uint64_t u64;
  CALL(ncclParamGetI8, h, &i8);
  CALL(ncclParamGetI16, h, &i16);
  CALL(ncclParamGetI32, h, &i32);
  CALL(ncclParamGetI64, h, &i64);
  CALL(ncclParamGetU8, h, &u8);
  CALL(ncclParamGetU16, h, &u16);
  CALL(ncclParamGetU32, h, &u32);
  CALL(ncclParamGetU64, h, &u64);
  const char* text = NULL;
  const char** keys = NULL;
  int length = 0;
  CALL(ncclParamGetStr, h, &text);
  CALL(ncclParamGet, h, &i64, sizeof i64, &length);
  CALL(ncclParamGetParameter, "MUSTER_CHANNELS", &text, &length);
  CALL(ncclParamGetAllParameterKeys, &keys, &length);
  F(ncclParamDumpAll)();
  answer("ncclParamDumpAll", 1);
  F(ncclResetDebugInit)();
  answer("ncclResetDebugInit", 1);
}

static void device(ncclComm_t c) {
  const ncclTeam_t team = {1, 0, 1};
  CALL(ncclDevCommCreate, c, NULL, NULL);
  CALL(ncclDevCommDestroy, c, NULL);
  CALL(ncclLsaBarrierCreateRequirement, team, 1, NULL, NULL);
  CALL(ncclGinBarrierCreateRequirement, c, team, 1, NULL, NULL);
  CALL(ncclLLA2ACreateRequirement, 1, 1, NULL, NULL);
  const int slots = F(ncclLLA2ACalcSlots)(4, 4);
  report("ncclLLA2ACalcSlots", slots == 0 ? ncclInvalidUsage : ncclSuccess);
  answer("ncclTeamWorld", F(ncclTeamWorld)(c).nRanks == 1);
  answer("ncclTeamLsa", F(ncclTeamLsa)(c).nRanks == 1);
  answer("ncclTeamRail", F(ncclTeamRail)(c).nRanks == 1);
  answer("ncclTeamRankToWorld", F(ncclTeamRankToWorld)(c, team, 0) == 0);
  answer("ncclTeamRankToLsa", F(ncclTeamRankToLsa)(c, team, 0) == 0);
}

static void life(void) {
  ncclUniqueId id;
  ncclComm_t comm = NULL, other = NULL;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  CALL(ncclGetUniqueId, &id);
  CALL(ncclCommInitRank, &comm, 1, id, 0);
  F(ncclGetUniqueId)(&id);
  CALL(ncclCommInitRankConfig, &other, 1, id, 0, &config);
  CALL(ncclCommAbort, other);
  F(ncclGetUniqueId)(&id);
  CALL(ncclCommInitRankScalable, &other, 1, 0, 1, &id, NULL);
  CALL(ncclCommRevoke, other, NCCL_REVOKE_DEFAULT);
  F(ncclCommDestroy)(other);
  CALL(ncclCommSplit, comm, 0, 0, &other, NULL);
  CALL(ncclCommSuspend, other, NCCL_SUSPEND_MEM);
  CALL(ncclCommResume, other);
  CALL(ncclCommFinalize, other);
  F(ncclCommDestroy)(other);

  int number = -1;
  uint64_t bytes = 0;
  ncclResult_t state = ncclInternalError;
  ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  CALL(ncclCommGetAsyncError, comm, &state);
  CALL(ncclCommCount, comm, &number);
  CALL(ncclCommUserRank, comm, &number);
  CALL(ncclCommCuDevice, comm, &number);
  CALL(ncclCommMemStats, comm, ncclStatGpuMemTotal, &bytes);
  CALL(ncclCommQueryProperties, comm, &properties);
  memory(comm);
  collectives(comm);
  groups(comm);
  device(comm);
  CALL(ncclCommDestroy, comm);

  /* Shrinking and growing take two ranks; here they are one thread's. */
  ncclComm_t two[2] = {NULL, NULL}, rest = NULL, grown[2] = {NULL, NULL};
  CALL(ncclCommInitAll, two, 2, NULL);
  int excluded = 1;
  CALL(ncclCommShrink, two[0], &excluded, 1, &rest, NULL, NCCL_SHRINK_DEFAULT);
  CALL(ncclCommGetUniqueId, rest, &id);
  F(ncclGroupStart)();
  CALL(ncclCommGrow, rest, 2, &id, -1, &grown[0], NULL);
  F(ncclCommGrow)(NULL, 2, &id, 1, &grown[1], NULL);
  report("ncclGroupEnd", F(ncclGroupEnd)());
  for (int r = 0; r < 2; ++r) {
    F(ncclCommDestroy)(grown[r]);
    F(ncclCommDestroy)(two[r]);
  }
  F(ncclCommDestroy)(rest);
}

int main(void) {
  for (int strong = 0; strong < 2; ++strong) {
    prefix = strong ? "p" : "";
    int version = 0;
    CALL(ncclGetVersion, &version);
    answer("ncclGetErrorString", strcmp(F(ncclGetErrorString)(ncclSuccess), "no error") == 0);
    F(ncclGetVersion)(NULL);
    answer("ncclGetLastError", strstr(F(ncclGetLastError)(NULL), "version") != NULL);
    options();
    life();
  }
  prefix = "";
  F(ncclResetDebugInitInternal)();
  answer("ncclResetDebugInitInternal", 1);
  return 0;
}
