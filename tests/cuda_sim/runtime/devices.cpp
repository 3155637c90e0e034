// Devices: how many, what they are, and which may reach which.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "runtime.h"

namespace cuda_sim {

thread_local int current_device = 0;

static std::vector<Device*> make_devices() {
  std::vector<Device*> made;
  auto add = [&](int id) {
    made.push_back(new Device);
    made.back()->id = id;
  };
  int count = static_cast<int>(option("CUDASIM_DEVICES", 2));
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) {
    for (int id = 0; id < count; id++) add(id);
    return made;
  }
  for (const char* p = visible;
       *p;) {  // numbers; as in CUDA, those from the first that is none on don't count
    char* end;
    long id = strtol(p, &end, 10);
    if (end == p || id < 0 || id >= count) break;
    add(static_cast<int>(id));
    if (*end != ',') break;
    p = end + 1;
  }
  return made;
}

const std::vector<Device*>& devices() {
  static const auto* all = new std::vector<Device*>(make_devices());
  return *all;
}

// Its memory is a sparse file, so that other processes can map it.
static void make_arena(Device& d, int index) {
  d.total = static_cast<size_t>(option("CUDASIM_MEM_MB", 8192)) << 20;
  d.fd = memfd_create("cuda_sim-device", MFD_CLOEXEC);
  if (d.fd < 0 || ftruncate(d.fd, static_cast<off_t>(d.total))) {
    perror("cuda_sim: memory of a device");
    abort();
  }
  d.peers.assign(devices().size(), false);
  d.free_ranges[0] = d.total;
  d.legacy = new Stream;
  d.legacy->device = index;
  d.legacy->legacy = true;
  char* at = reserve_window(d.total, 2 << 20);
  void* arena =
      mmap(mapped(at), d.total, PROT_NONE, MAP_SHARED | MAP_NORESERVE | (at ? MAP_FIXED : 0), d.fd, 0);
  if (arena == MAP_FAILED) {
    perror("cuda_sim: memory of a device");
    abort();
  }
  __atomic_store_n(&d.arena, at ? at : static_cast<char*>(arena), __ATOMIC_RELEASE);
}

Device& device(int index) {
  static std::mutex mutex;
  Device& d = *devices()[static_cast<size_t>(index)];
  if (!__atomic_load_n(&d.arena, __ATOMIC_ACQUIRE)) {
    std::lock_guard lock(mutex);
    if (!d.arena) make_arena(d, index);
  }
  return d;
}

static int id_of(int index) { return devices()[static_cast<size_t>(index)]->id; }
static bool is_device(int index) { return index >= 0 && index < device_count(); }
static int bus_of(int index) { return 0x10 + id_of(index); }

int device_attribute(int attribute, int index) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return 1024;
    case cudaDevAttrMaxBlockDimZ:
      return 64;
    case cudaDevAttrMaxGridDimX:
      return 2147483647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 49152;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return kMaxShared;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return kMaxShared + 1024;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return 1024;
    case cudaDevAttrTotalConstantMemory:
      return 65536;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return kRegistersPerSm;
    case cudaDevAttrClockRate:
      return 1980000;
    case cudaDevAttrMemoryClockRate:
      return 3201000;
    case cudaDevAttrGlobalMemoryBusWidth:
      return 6144;
    case cudaDevAttrL2CacheSize:
      return 60 << 20;
    case cudaDevAttrMultiProcessorCount:
      return static_cast<int>(multiprocessors());
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return kThreadsPerSm;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return 32;
    case cudaDevAttrAsyncEngineCount:
      return 3;
    case cudaDevAttrGpuOverlap:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrComputePreemptionSupported:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrHostNativeAtomicSupported:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrIpcEventSupport:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
      return 1;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      return vmm_supported();
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
      return fabric() != kNoFabric;
    case cudaDevAttrComputeCapabilityMajor:
      return static_cast<int>(option("CUDASIM_CC", 90)) / 10;
    case cudaDevAttrComputeCapabilityMinor:
      return static_cast<int>(option("CUDASIM_CC", 90)) % 10;
    case cudaDevAttrPciBusId:
      return bus_of(index);
    default:  // what these devices can't do, and PCI domain and device
      return 0;
  }
}

CUDA_API cudaError_t cudaGetDeviceCount(int* n) {
  if (!n) return set_error(cudaErrorInvalidValue);
  *n = device_count();
  return set_error(*n ? cudaSuccess : cudaErrorNoDevice);
}
CUDA_API cudaError_t cudaGetDevice(int* index) {
  CUDA_SIM_ENTER();
  if (!index) return set_error(cudaErrorInvalidValue);
  *index = current_device;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaSetDevice(int index) {
  CUDA_SIM_ENTER();
  if (!is_device(index)) return set_error(cudaErrorInvalidDevice);
  current_device = index;
  CUDA_SIM_CHECK_DEVICE();
  return cudaSuccess;
}
CUDA_API cudaError_t cudaInitDevice(int index, unsigned, unsigned) {
  CUDA_SIM_ENTER();
  if (!is_device(index)) return set_error(cudaErrorInvalidDevice);
  device(index);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaSetDeviceFlags(unsigned) {
  CUDA_SIM_ENTER();
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  CUDA_SIM_ENTER();
  *flags = 0;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kDriverVersion;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
CUDA_API cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  *config = cudaFuncCachePreferNone;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
  CUDA_SIM_ENTER();
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  CUDA_SIM_ENTER();
  *value = limit == cudaLimitStackSize ? 1024 : limit == cudaLimitPrintfFifoSize ? 1 << 20 : 8 << 20;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  CUDA_SIM_ENTER();
  if (lowest) *lowest = 0;
  if (highest) *highest = -5;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget,
                                                        cudaFlushGPUDirectRDMAWritesScope) {
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index) {
  CUDA_SIM_ENTER();
  if (!value) return set_error(cudaErrorInvalidValue);
  if (!is_device(index)) return set_error(cudaErrorInvalidDevice);
  *value = device_attribute(attribute, index);
  return cudaSuccess;
}
CUDA_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int index) {
  CUDA_SIM_ENTER();
  if (!p) return set_error(cudaErrorInvalidValue);
  if (!is_device(index)) return set_error(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  auto attribute = [&](cudaDeviceAttr a) { return device_attribute(a, index); };
  snprintf(p->name, sizeof p->name, "%s", kDeviceName);
  for (int i = 0; i < 16; i++) p->uuid.bytes[i] = static_cast<char>(0xC0 + i * 7 + id_of(index));
  p->totalGlobalMem = device(index).total;
  p->sharedMemPerBlock = static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlock));
  p->sharedMemPerBlockOptin = static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  p->sharedMemPerMultiprocessor = static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
  p->reservedSharedMemPerBlock = static_cast<size_t>(attribute(cudaDevAttrReservedSharedMemoryPerBlock));
  p->totalConstMem = static_cast<size_t>(attribute(cudaDevAttrTotalConstantMemory));
  p->regsPerBlock = attribute(cudaDevAttrMaxRegistersPerBlock);
  p->regsPerMultiprocessor = attribute(cudaDevAttrMaxRegistersPerMultiprocessor);
  p->warpSize = attribute(cudaDevAttrWarpSize);
  p->memPitch = 2147483647;
  p->textureAlignment = 512;
  p->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
  p->maxThreadsDim[0] = attribute(cudaDevAttrMaxBlockDimX);
  p->maxThreadsDim[1] = attribute(cudaDevAttrMaxBlockDimY);
  p->maxThreadsDim[2] = attribute(cudaDevAttrMaxBlockDimZ);
  p->maxGridSize[0] = attribute(cudaDevAttrMaxGridDimX);
  p->maxGridSize[1] = attribute(cudaDevAttrMaxGridDimY);
  p->maxGridSize[2] = attribute(cudaDevAttrMaxGridDimZ);
  p->major = attribute(cudaDevAttrComputeCapabilityMajor);
  p->minor = attribute(cudaDevAttrComputeCapabilityMinor);
  p->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
  p->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  p->maxBlocksPerMultiProcessor = attribute(cudaDevAttrMaxBlocksPerMultiprocessor);
  p->pciBusID = attribute(cudaDevAttrPciBusId);
  p->asyncEngineCount = attribute(cudaDevAttrAsyncEngineCount);
  p->memoryBusWidth = attribute(cudaDevAttrGlobalMemoryBusWidth);
  p->l2CacheSize = attribute(cudaDevAttrL2CacheSize);
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported =
      p->managedMemory = p->cooperativeLaunch = p->hostRegisterSupported = p->memoryPoolsSupported =
          p->canUseHostPointerForRegisteredMem = 1;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int index) {
  CUDA_SIM_ENTER();
  if (!is_device(index)) return set_error(cudaErrorInvalidDevice);
  snprintf(text, static_cast<size_t>(size), "0000:%02X:00.0", static_cast<unsigned>(bus_of(index)));
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceGetByPCIBusId(int* index, const char* text) {
  CUDA_SIM_ENTER();
  unsigned domain = 0, bus = 0;
  if (sscanf(text, "%x:%x", &domain, &bus) != 2) return set_error(cudaErrorInvalidValue);
  for (int i = 0; i < device_count(); i++)
    if (bus_of(i) == static_cast<int>(bus) && domain == 0) {
      *index = i;
      return cudaSuccess;
    }
  return set_error(cudaErrorInvalidDevice);
}

CUDA_API cudaError_t cudaDeviceCanAccessPeer(int* can, int index, int peer) {
  CUDA_SIM_ENTER();
  if (!is_device(index) || !is_device(peer)) return set_error(cudaErrorInvalidDevice);
  *can = index != peer && p2p_supported();
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  CUDA_SIM_ENTER();
  if (!is_device(peer) || peer == current_device) return set_error(cudaErrorInvalidDevice);
  if (flags) return set_error(cudaErrorInvalidValue);
  if (!p2p_supported()) return set_error(cudaErrorPeerAccessUnsupported);
  Device& d = device(current_device);
  std::lock_guard lock(memory_mutex);
  if (d.peers[static_cast<size_t>(peer)]) return set_error(cudaErrorPeerAccessAlreadyEnabled);
  d.peers[static_cast<size_t>(peer)] = true;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  CUDA_SIM_ENTER();
  if (!is_device(peer)) return set_error(cudaErrorInvalidDevice);
  Device& d = device(current_device);
  std::lock_guard lock(memory_mutex);
  if (!d.peers[static_cast<size_t>(peer)]) return set_error(cudaErrorPeerAccessNotEnabled);
  d.peers[static_cast<size_t>(peer)] = false;
  return cudaSuccess;
}
CUDA_API cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int index, int peer) {
  CUDA_SIM_ENTER();
  if (!is_device(index) || !is_device(peer) || index == peer) return set_error(cudaErrorInvalidDevice);
  bool supported =
      attribute == cudaDevP2PAttrAccessSupported || attribute == cudaDevP2PAttrNativeAtomicSupported;
  *value = supported && p2p_supported();
  return cudaSuccess;
}

}  // namespace cuda_sim
