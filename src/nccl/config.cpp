#include "nccl/config.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "muster/window.h"

namespace muster::nccl {
namespace {

// A number of a configuration: where it is, since which header, and what it may be beside
// NCCL_CONFIG_UNDEF_INT.
struct Field {
  const char* name;
  size_t offset;
  int since;  // version code of the caller
  int least, most;
};

#define MUSTER_FIELD(name, since, least, most) \
  { #name, offsetof(ncclConfig_t, name), NCCL_VERSION since, least, most }
constexpr Field kCommFields[] = {
    MUSTER_FIELD(blocking, (2, 14, 0), 0, 1),
    MUSTER_FIELD(cgaClusterSize, (2, 17, 0), 0, 8),
    MUSTER_FIELD(minCTAs, (2, 17, 0), 1, INT_MAX),
    MUSTER_FIELD(maxCTAs, (2, 17, 0), 1, INT_MAX),
    MUSTER_FIELD(splitShare, (2, 18, 0), 0, 1),
    MUSTER_FIELD(trafficClass, (2, 25, 0), INT_MIN, INT_MAX),
    MUSTER_FIELD(collnetEnable, (2, 27, 0), 0, 1),
    MUSTER_FIELD(CTAPolicy, (2, 27, 0), 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO),
    MUSTER_FIELD(shrinkShare, (2, 27, 0), 0, 1),
    MUSTER_FIELD(nvlsCTAs, (2, 27, 0), 1, INT_MAX),
    MUSTER_FIELD(nChannelsPerNetPeer, (2, 28, 0), 1, 64),
    MUSTER_FIELD(nvlinkCentricSched, (2, 28, 0), 0, 1),
    MUSTER_FIELD(graphUsageMode, (2, 29, 0), 0, 2),
    MUSTER_FIELD(numRmaCtx, (2, 29, 0), 0, kSignalContexts),
    MUSTER_FIELD(maxP2pPeers, (2, 30, 0), 1, INT_MAX),
    MUSTER_FIELD(graphStreamOrdering, (2, 30, 5), 0, 1),
    MUSTER_FIELD(launchOrderImplicit, (2, 31, 0), 0, 1),
    MUSTER_FIELD(numRmaSig, (2, 31, 0), 0, kSignalsPerContext),
    MUSTER_FIELD(rmaEagerInit, (2, 31, 0), 0, 1),
    MUSTER_FIELD(hostCftMode, (2, 31, 0), ncclHostCftEnable, ncclHostCftFallback),
    MUSTER_FIELD(nvlsHostMode, (2, 32, 0), 0, INT_MAX),
};
#undef MUSTER_FIELD

#define MUSTER_FIELD(name, since, least, most) \
  { #name, offsetof(ncclCollConfig_t, name), NCCL_VERSION since, least, most }
constexpr Field kCallFields[] = {
    MUSTER_FIELD(minCTAs, (2, 31, 0), 1, INT_MAX),
    MUSTER_FIELD(maxCTAs, (2, 31, 0), 1, INT_MAX),
    MUSTER_FIELD(nvlsCTAs, (2, 31, 0), 1, INT_MAX),
    MUSTER_FIELD(cgaClusterSize, (2, 31, 0), 0, 8),
    MUSTER_FIELD(CTAPolicy, (2, 31, 0), 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO),
};
#undef MUSTER_FIELD

// What all versions of a structure begin with.
struct Head {
  size_t size;
  unsigned int magic;
  unsigned int version;
};
static_assert(offsetof(ncclConfig_t, magic) == offsetof(Head, magic) &&
              offsetof(ncclConfig_t, version) == offsetof(Head, version));

// The caller's structure in this header's, whose defaults stand for what the caller's header doesn't have.
template <class T>
T copy_of(const void* from, T defaults, size_t least, const char* type, const char* initializer) {
  Head head;
  std::memcpy(&head, from, sizeof head);
  if (head.magic != NCCL_API_MAGIC || head.size < least)
    fail(Result::invalid_argument, "{} (size {}, magic {:#x}) wasn't initialised with {}", type, head.size,
         head.magic, initializer);
  std::memcpy(&defaults, from, std::min(head.size, sizeof defaults));
  return defaults;
}

void check_fields(std::span<const Field> fields, std::byte* structure, unsigned version, const char* type) {
  for (const Field& f : fields) {
    int value;
    std::memcpy(&value, structure + f.offset, sizeof value);
    if (value == NCCL_CONFIG_UNDEF_INT) continue;
    if (version < static_cast<unsigned>(f.since)) {  // bytes that the caller's header has no name for
      value = NCCL_CONFIG_UNDEF_INT;
      std::memcpy(structure + f.offset, &value, sizeof value);
    } else if (value < f.least || value > f.most) {
      fail(Result::invalid_argument,
           "{}::{} is {}: {} to {} are possible, or NCCL_CONFIG_UNDEF_INT for the default", type, f.name,
           value, f.least, f.most);
    }
  }
}

void check_channels(int least, int most, const char* type) {
  if (least != NCCL_CONFIG_UNDEF_INT && most != NCCL_CONFIG_UNDEF_INT && least > most)
    fail(Result::invalid_argument, "{}::minCTAs {} is more than maxCTAs {}", type, least, most);
}

}  // namespace

Config parse_config(const ncclConfig_t* config) {
  if (!config) return {};
  constexpr size_t kLeast = offsetof(ncclConfig_t, cgaClusterSize);  // 2.14's
  ncclConfig_t c = copy_of<ncclConfig_t>(config, NCCL_CONFIG_INITIALIZER, kLeast, "ncclConfig_t",
                                         "NCCL_CONFIG_INITIALIZER");
  check_fields(kCommFields, reinterpret_cast<std::byte*>(&c), c.version, "ncclConfig_t");
  check_channels(c.minCTAs, c.maxCTAs, "ncclConfig_t");
  constexpr int kMostChannels = 16;
  Config result;
  if (c.commName && c.version >= NCCL_VERSION(2, 27, 0)) result.name = c.commName;
  result.blocking = c.blocking != 0;
  if (c.minCTAs != NCCL_CONFIG_UNDEF_INT) result.min_channels = std::min(c.minCTAs, kMostChannels);
  if (c.maxCTAs != NCCL_CONFIG_UNDEF_INT) result.max_channels = std::min(c.maxCTAs, kMostChannels);
  result.copy_engines = c.CTAPolicy != NCCL_CONFIG_UNDEF_INT && (c.CTAPolicy & NCCL_CTA_POLICY_ZERO) != 0;
  return result;
}

std::optional<Config> parse_config_of_child(const ncclConfig_t* config) {
  if (!config) return {};
  return parse_config(config);
}

AlgorithmWish parse_config(const ncclCollConfig_t* config) {
  if (!config) return {};
  constexpr size_t kLeast = offsetof(ncclCollConfig_t, launchCompletionEvent);  // 2.31's
  ncclCollConfig_t c = copy_of<ncclCollConfig_t>(config, NCCL_COLLCONFIG_INITIALIZER, kLeast,
                                                 "ncclCollConfig_t", "NCCL_COLLCONFIG_INITIALIZER");
  check_fields(kCallFields, reinterpret_cast<std::byte*>(&c), c.version, "ncclCollConfig_t");
  check_channels(c.minCTAs, c.maxCTAs, "ncclCollConfig_t");
  if (c.forceAlgSelection != 0 && c.forceAlgSelection != 1)
    fail(Result::invalid_argument, "ncclCollConfig_t::forceAlgSelection is {}: 0 and 1 are possible",
         c.forceAlgSelection);
  if (c.launchCompletionEvent)
    fail(Result::invalid_argument,
         "ncclCollConfig_t::launchCompletionEvent is set: calls on host memory launch no kernel that could "
         "complete it. Leave it NULL");
  return {c.algSelection ? c.algSelection : "", c.forceAlgSelection == 1};
}

}  // namespace muster::nccl
