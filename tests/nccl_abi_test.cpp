// What programs compiled against NCCL's headers, of whatever release, pass and get: sizes, offsets, numbers,
// and how configurations of other releases are read.
#include <climits>
#include <cstddef>
#include <cstring>

#include "nccl_support.h"

namespace muster {
namespace {

TEST(NcclAbi, SizesAndOffsetsAreThoseOfCallers) {
  EXPECT_EQ(sizeof(ncclUniqueId), 128u);
  EXPECT_EQ(alignof(ncclUniqueId), 1u);
  EXPECT_EQ(sizeof(ncclComm_t), 8u);
  EXPECT_EQ(sizeof(ncclWindow_t), 8u);
  EXPECT_EQ(sizeof(ncclResult_t), 4u);
  EXPECT_EQ(sizeof(ncclRedOp_t), 4u);
  EXPECT_EQ(sizeof(ncclDataType_t), 4u);
  EXPECT_EQ(sizeof(ncclScalarResidence_t), 4u);
  EXPECT_EQ(sizeof(ncclTeam_t), 12u);

  EXPECT_EQ(sizeof(ncclWaitSignalDesc_t), 16u);
  EXPECT_EQ(offsetof(ncclWaitSignalDesc_t, opCnt), 0u);
  EXPECT_EQ(offsetof(ncclWaitSignalDesc_t, peer), 4u);
  EXPECT_EQ(offsetof(ncclWaitSignalDesc_t, sigIdx), 8u);
  EXPECT_EQ(offsetof(ncclWaitSignalDesc_t, ctx), 12u);

  EXPECT_EQ(offsetof(ncclConfig_t, size), 0u);
  EXPECT_EQ(offsetof(ncclConfig_t, magic), 8u);
  EXPECT_EQ(offsetof(ncclConfig_t, version), 12u);
  EXPECT_EQ(offsetof(ncclConfig_t, blocking), 16u);
  EXPECT_EQ(offsetof(ncclConfig_t, cgaClusterSize), 20u);
  EXPECT_EQ(offsetof(ncclConfig_t, minCTAs), 24u);
  EXPECT_EQ(offsetof(ncclConfig_t, maxCTAs), 28u);
  EXPECT_EQ(offsetof(ncclConfig_t, netName), 32u);
  EXPECT_EQ(offsetof(ncclConfig_t, splitShare), 40u);
  EXPECT_EQ(offsetof(ncclConfig_t, trafficClass), 44u);
  EXPECT_EQ(offsetof(ncclConfig_t, commName), 48u);
  EXPECT_EQ(offsetof(ncclConfig_t, collnetEnable), 56u);
  EXPECT_EQ(offsetof(ncclConfig_t, CTAPolicy), 60u);
  EXPECT_EQ(offsetof(ncclConfig_t, shrinkShare), 64u);
  EXPECT_EQ(offsetof(ncclConfig_t, nvlsCTAs), 68u);
  EXPECT_EQ(offsetof(ncclConfig_t, nChannelsPerNetPeer), 72u);
  EXPECT_EQ(offsetof(ncclConfig_t, nvlinkCentricSched), 76u);
  EXPECT_EQ(offsetof(ncclConfig_t, graphUsageMode), 80u);
  EXPECT_EQ(offsetof(ncclConfig_t, numRmaCtx), 84u);
  EXPECT_EQ(offsetof(ncclConfig_t, maxP2pPeers), 88u);
  EXPECT_EQ(offsetof(ncclConfig_t, graphStreamOrdering), 92u);
  EXPECT_EQ(offsetof(ncclConfig_t, launchOrderImplicit), 96u);
  EXPECT_EQ(offsetof(ncclConfig_t, numRmaSig), 100u);
  EXPECT_EQ(offsetof(ncclConfig_t, rmaEagerInit), 104u);
  EXPECT_EQ(offsetof(ncclConfig_t, hostCftMode), 108u);
  EXPECT_EQ(offsetof(ncclConfig_t, nvlsHostMode), 112u);
  EXPECT_EQ(sizeof(ncclConfig_t), 120u);

  EXPECT_EQ(sizeof(ncclSimInfo_t), 24u);
  EXPECT_EQ(offsetof(ncclSimInfo_t, magic), 8u);
  EXPECT_EQ(offsetof(ncclSimInfo_t, version), 12u);
  EXPECT_EQ(offsetof(ncclSimInfo_t, estimatedTime), 16u);

  EXPECT_EQ(offsetof(ncclCollConfig_t, ext), 16u);
  EXPECT_EQ(offsetof(ncclCollConfig_t, minCTAs), 24u);
  EXPECT_EQ(offsetof(ncclCollConfig_t, cgaClusterSize), 36u);
  EXPECT_EQ(offsetof(ncclCollConfig_t, algSelection), 40u);
  EXPECT_EQ(offsetof(ncclCollConfig_t, forceAlgSelection), 48u);
  EXPECT_EQ(offsetof(ncclCollConfig_t, CTAPolicy), 52u);
  EXPECT_EQ(offsetof(ncclCollConfig_t, userProfilerTag), 56u);
  EXPECT_EQ(offsetof(ncclCollConfig_t, launchCompletionEvent), 64u);
  EXPECT_EQ(sizeof(ncclCollConfig_t), 72u);

  EXPECT_EQ(offsetof(ncclCommProperties_t, rank), 16u);
  EXPECT_EQ(offsetof(ncclCommProperties_t, deviceApiSupport), 32u);
  EXPECT_EQ(offsetof(ncclCommProperties_t, multimemSupport), 33u);
  EXPECT_EQ(offsetof(ncclCommProperties_t, ginType), 36u);
  EXPECT_EQ(sizeof(ncclCommProperties_t), 56u);
}

TEST(NcclAbi, NumbersAreThoseOfCallers) {
  EXPECT_EQ(ncclSuccess, 0);
  EXPECT_EQ(ncclUnhandledCudaError, 1);
  EXPECT_EQ(ncclSystemError, 2);
  EXPECT_EQ(ncclInternalError, 3);
  EXPECT_EQ(ncclInvalidArgument, 4);
  EXPECT_EQ(ncclInvalidUsage, 5);
  EXPECT_EQ(ncclRemoteError, 6);
  EXPECT_EQ(ncclInProgress, 7);
  EXPECT_EQ(ncclTimeout, 8);
  EXPECT_EQ(ncclNumResults, 9);
  EXPECT_EQ(ncclSum, 0);
  EXPECT_EQ(ncclProd, 1);
  EXPECT_EQ(ncclMax, 2);
  EXPECT_EQ(ncclMin, 3);
  EXPECT_EQ(ncclAvg, 4);
  EXPECT_EQ(ncclNumOps, 5);
  EXPECT_EQ(ncclMaxRedOp, 0x7fffffff);
  EXPECT_EQ(ncclInt8, 0);
  EXPECT_EQ(ncclChar, 0);
  EXPECT_EQ(ncclUint8, 1);
  EXPECT_EQ(ncclInt32, 2);
  EXPECT_EQ(ncclInt, 2);
  EXPECT_EQ(ncclUint32, 3);
  EXPECT_EQ(ncclInt64, 4);
  EXPECT_EQ(ncclUint64, 5);
  EXPECT_EQ(ncclFloat16, 6);
  EXPECT_EQ(ncclHalf, 6);
  EXPECT_EQ(ncclFloat32, 7);
  EXPECT_EQ(ncclFloat, 7);
  EXPECT_EQ(ncclFloat64, 8);
  EXPECT_EQ(ncclDouble, 8);
  EXPECT_EQ(ncclBfloat16, 9);
  EXPECT_EQ(ncclFloat8e4m3, 10);
  EXPECT_EQ(ncclFloat8e5m2, 11);
  EXPECT_EQ(ncclNumTypes, 12);
  EXPECT_EQ(ncclScalarDevice, 0);
  EXPECT_EQ(ncclScalarHostImmediate, 1);
  EXPECT_EQ(NCCL_SPLIT_NOCOLOR, -1);
  EXPECT_EQ(NCCL_CONFIG_UNDEF_INT, INT_MIN);
  EXPECT_EQ(NCCL_UNIQUE_ID_BYTES, 128);
  EXPECT_EQ(NCCL_VERSION(2, 8, 4), 2804);
  EXPECT_EQ(NCCL_VERSION(2, 28, 9), 22809);
  EXPECT_EQ(NCCL_VERSION_CODE, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(config.magic, 0xcafebeefu);
  const ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  EXPECT_EQ(info.magic, 0x74685283u);
}

TEST(NcclAbi, TheLibraryIsAsNewAsItsHeader) {
  int version = 0;
  ASSERT_NCCL(ncclGetVersion(&version));
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

// Extensions have numbers that ncclRedOpCreate... never gives.
TEST(NcclAbi, NumbersOfExtensionsAreLast) {
  EXPECT_GT(static_cast<int>(musterBitAnd), 0x7ffffe00);
  EXPECT_LE(static_cast<int>(musterLogicalXor), static_cast<int>(ncclMaxRedOp));
}

// A configuration as callers of a release pass it: `size` bytes of it, behind which lies what isn't theirs.
struct OldConfig {
  alignas(8) std::array<unsigned char, 256> bytes;
  OldConfig(size_t size, unsigned version) {
    const ncclConfig_t defaults = NCCL_CONFIG_INITIALIZER;
    bytes.fill(0x77);
    std::memcpy(bytes.data(), &defaults, std::min(size, sizeof defaults));
    set(offsetof(ncclConfig_t, size), size);
    set(offsetof(ncclConfig_t, version), version);
  }
  template <class T>
  OldConfig& set(size_t offset, T value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    return *this;
  }
  ncclResult_t init() {
    ncclUniqueId id;
    EXPECT_NCCL(ncclGetUniqueId(&id));
    ncclComm_t comm = nullptr;
    const ncclResult_t result =
        ncclCommInitRankConfig(&comm, 1, id, 0, reinterpret_cast<ncclConfig_t*>(bytes.data()));
    EXPECT_EQ(comm != nullptr, result == ncclSuccess);
    EXPECT_NCCL(ncclCommDestroy(comm));
    return result;
  }
};

struct Release {
  const char* name;
  size_t size;
  unsigned version;
};
// With the fields that each release's header has.
constexpr Release kReleases[] = {
    {"2.14.3", 24, 21403}, {"2.17.1", 40, 21701},  {"2.18.1", 48, 21801},  {"2.25.1", 48, 22501},
    {"2.27.3", 72, 22703}, {"2.28.9", 80, 22809},  {"2.29.7", 88, 22907},  {"2.30.3", 96, 23003},
    {"2.30.7", 96, 23007}, {"2.31.2", 112, 23102}, {"2.32.3", 120, 23203},
};

TEST(NcclConfig, OfEveryReleaseIsRead) {
  for (const Release& r : kReleases) {
    SCOPED_TRACE(r.name);
    OldConfig config(r.size, r.version);
    EXPECT_NCCL(config.init());
    EXPECT_EQ(config.set(offsetof(ncclConfig_t, blocking), 2).init(), ncclInvalidArgument);
    EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("blocking is 2"));
  }
}

// A later release: more bytes, which this one has no name for.
TEST(NcclConfig, OfALaterReleaseIsRead) {
  OldConfig config(200, 29900);
  EXPECT_NCCL(config.init());
}

// Old callers' bytes may lie where newer headers have fields.
TEST(NcclConfig, FieldsThatTheCallersHeaderLacksAreNotRead) {
  OldConfig config(sizeof(ncclConfig_t), 21403);
  config.set(offsetof(ncclConfig_t, minCTAs), -5).set(offsetof(ncclConfig_t, nvlsHostMode), -5);
  config.set(offsetof(ncclConfig_t, commName), uintptr_t{0x10});
  EXPECT_NCCL(config.init());
}

TEST(NcclConfig, WhatWasNotInitialisedIsRefused) {
  EXPECT_EQ(OldConfig(120, 23203).set(offsetof(ncclConfig_t, magic), 0u).init(), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("NCCL_CONFIG_INITIALIZER"));
  EXPECT_EQ(OldConfig(16, 23203).init(), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("NCCL_CONFIG_INITIALIZER"));
}

TEST(NcclConfig, ValuesOutOfRangeAreRefusedByName) {
  struct Case {
    const char* name;
    size_t offset;
    int value;
  };
#define FIELD(name, value) \
  { #name, offsetof(ncclConfig_t, name), value }
  constexpr Case bad[] = {FIELD(blocking, -1),
                          FIELD(cgaClusterSize, -1),
                          FIELD(minCTAs, 0),
                          FIELD(maxCTAs, -3),
                          FIELD(splitShare, 2),
                          FIELD(collnetEnable, 2),
                          FIELD(CTAPolicy, 4),
                          FIELD(shrinkShare, -1),
                          FIELD(nvlsCTAs, 0),
                          FIELD(nChannelsPerNetPeer, 65),
                          FIELD(nvlinkCentricSched, 2),
                          FIELD(graphUsageMode, 3),
                          FIELD(numRmaCtx, -1),
                          FIELD(maxP2pPeers, 0),
                          FIELD(graphStreamOrdering, 2),
                          FIELD(launchOrderImplicit, 2),
                          FIELD(numRmaSig, -1),
                          FIELD(rmaEagerInit, 2),
                          FIELD(hostCftMode, 4),
                          FIELD(nvlsHostMode, -1)};
  constexpr Case good[] = {FIELD(blocking, 1),
                           FIELD(cgaClusterSize, 8),
                           FIELD(minCTAs, 1),
                           FIELD(maxCTAs, 64),
                           FIELD(splitShare, 1),
                           FIELD(trafficClass, -7),
                           FIELD(collnetEnable, 1),
                           FIELD(CTAPolicy, 2),
                           FIELD(shrinkShare, 1),
                           FIELD(nvlsCTAs, 16),
                           FIELD(nChannelsPerNetPeer, 2),
                           FIELD(nvlinkCentricSched, 1),
                           FIELD(graphUsageMode, 1),
                           FIELD(numRmaCtx, 4),
                           FIELD(maxP2pPeers, 8),
                           FIELD(launchOrderImplicit, 1),
                           FIELD(numRmaSig, 2),
                           FIELD(rmaEagerInit, 1),
                           FIELD(hostCftMode, 2),
                           FIELD(nvlsHostMode, INT_MAX)};
#undef FIELD
  for (const Case& c : bad) {
    EXPECT_EQ(OldConfig(120, 23203).set(c.offset, c.value).init(), ncclInvalidArgument) << c.name;
    EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr(c.name));
  }
  for (const Case& c : good) EXPECT_NCCL(OldConfig(120, 23203).set(c.offset, c.value).init()) << c.name;
  OldConfig both(120, 23203);
  both.set(offsetof(ncclConfig_t, minCTAs), 9).set(offsetof(ncclConfig_t, maxCTAs), 8);
  EXPECT_EQ(both.init(), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("minCTAs 9 is more than maxCTAs 8"));
}

TEST(NcclConfig, TheNameIsShown) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "gradients";
  ncclUniqueId id;
  ASSERT_NCCL(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  ASSERT_NCCL(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  float x = 0;
  EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclFloat, static_cast<ncclRedOp_t>(77), comm, nullptr),
            ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(comm), testing::HasSubstr("gradients"));
  EXPECT_NCCL(ncclCommDestroy(comm));
}

// Of a call.
TEST(NcclConfig, OfACallIsChecked) {
  test::AllRanks ranks(1);
  float x = 3, y = 0;
  const auto call = [&](auto change) {
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    change(config);
    y = 0;
    return ncclAllReduceConfig(&x, &y, 1, ncclFloat, ncclSum, ranks[0], nullptr, &config);
  };
  EXPECT_NCCL(call([](ncclCollConfig_t&) {}));
  EXPECT_EQ(y, 3);
  EXPECT_NCCL(ncclAllReduceConfig(&x, &y, 1, ncclFloat, ncclSum, ranks[0], nullptr, nullptr));
  EXPECT_NCCL(call([](ncclCollConfig_t& c) { c.size = 64, c.version = 23102; }));
  EXPECT_NCCL(call([](ncclCollConfig_t& c) { c.size = 96, c.version = 29900; }));
  EXPECT_NCCL(
      call([](ncclCollConfig_t& c) { c.userProfilerTag = 7, c.maxCTAs = 4, c.minCTAs = 2, c.nvlsCTAs = 1; }));
  EXPECT_NCCL(call([](ncclCollConfig_t& c) { c.algSelection = "RING_SIMPLE", c.forceAlgSelection = 0; }));
  EXPECT_NCCL(call([](ncclCollConfig_t& c) { c.algSelection = ""; }));
  ncclConfigExt_t extension{nullptr, {1234, 1}, {.i = 5}};
  EXPECT_NCCL(call([&](ncclCollConfig_t& c) { c.ext = &extension; }));

  EXPECT_NCCL_FAILS(call([](ncclCollConfig_t& c) { c.magic = 0; }), ncclInvalidArgument,
                    "NCCL_COLLCONFIG_INITIALIZER");
  EXPECT_NCCL_FAILS(call([](ncclCollConfig_t& c) { c.size = 56; }), ncclInvalidArgument,
                    "NCCL_COLLCONFIG_INITIALIZER");
  EXPECT_NCCL_FAILS(call([](ncclCollConfig_t& c) { c.forceAlgSelection = 2; }), ncclInvalidArgument,
                    "forceAlgSelection is 2");
  EXPECT_NCCL_FAILS(call([](ncclCollConfig_t& c) { c.CTAPolicy = 9; }), ncclInvalidArgument,
                    "CTAPolicy is 9");
  EXPECT_NCCL_FAILS(call([](ncclCollConfig_t& c) { c.minCTAs = 3, c.maxCTAs = 2; }), ncclInvalidArgument,
                    "minCTAs 3");
  EXPECT_NCCL(call([](ncclCollConfig_t& c) { c.algSelection = "ring"; }));
  EXPECT_NCCL_FAILS(call([](ncclCollConfig_t& c) { c.algSelection = "nvls"; }), ncclInvalidArgument,
                    "There are: one_shot, direct, ring");
  EXPECT_NCCL_FAILS(
      call([](ncclCollConfig_t& c) { c.launchCompletionEvent = reinterpret_cast<cudaEvent_t>(64); }),
      ncclInvalidArgument, "launchCompletionEvent");
  EXPECT_EQ(y, 0);  // nothing was run
}

TEST(NcclAbi, PropertiesEndWhereTheCallersHeaderEnds) {
  test::AllRanks ranks(2);
  ncclCommProperties_t p = NCCL_COMM_PROPERTIES_INITIALIZER;
  ASSERT_NCCL(ncclCommQueryProperties(ranks[1], &p));
  EXPECT_EQ(p.rank, 1);
  EXPECT_EQ(p.nRanks, 2);
  EXPECT_EQ(p.cudaDev, 1);
  EXPECT_FALSE(p.deviceApiSupport);
  EXPECT_FALSE(p.multimemSupport);
  EXPECT_EQ(p.ginType, NCCL_GIN_TYPE_NONE);
  EXPECT_EQ(p.railedGinType, NCCL_GIN_TYPE_NONE);
  EXPECT_EQ(p.nLsaTeams, 1);
  EXPECT_EQ(p.size, sizeof p);

  ncclCommProperties_t old = NCCL_COMM_PROPERTIES_INITIALIZER;
  old.size = 40;
  old.nLsaTeams = -77;  // the caller's, behind its structure
  ASSERT_NCCL(ncclCommQueryProperties(ranks[0], &old));
  EXPECT_EQ(old.rank, 0);
  EXPECT_EQ(old.nLsaTeams, -77);
  old.magic = 1;
  EXPECT_NCCL_FAILS(ncclCommQueryProperties(ranks[0], &old), ncclInvalidUsage,
                    "NCCL_COMM_PROPERTIES_INITIALIZER");
}

}  // namespace
}  // namespace muster
