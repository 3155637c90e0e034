// NCCL's network plugins as they are compiled: what versions 8 to 11 of their interface look like in memory. A plugin shows
// one object per version that it has, called ncclNetPlugin_v8 and so on. Facts from NCCL's headers (src/include/plugin).
// GPUs' memory is sent from only: iflush, which is for who receives there, getDeviceMr, irecvConsumed and regMrDmaBuf aren't used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/plugin_library.h"

namespace muster::net_abi {

using Result = int;  // ncclResult_t; 0: success

constexpr size_t kHandleBytes = 128;  // NCCL_NET_HANDLE_MAXSIZE: of what listen() writes
constexpr int kMostRequests = 32;     // NCCL_NET_MAX_REQUESTS: under way on one connection
constexpr int kHostPointers = 1;      // NCCL_PTR_HOST
constexpr int kGpuPointers = 2;       // NCCL_PTR_CUDA
constexpr int kVirtualDevices = 4;    // NCCL_NET_MAX_DEVS_PER_NIC_V11
constexpr int kNoTrafficClass = -1;   // NCCL_NET_TRAFFIC_CLASS_UNDEF

// ncclProfilerCallback_t
using Profile = Result (*)(void** event, int type, void* parent, int64_t plugin, void* data);

struct VirtualDevices {
  int count;
  int devices[kVirtualDevices];
};
struct CommConfig {
  int traffic_class;
};

struct PropertiesV8 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers;     // a bit each: kHostPointers ...
  int global_registration;
  int speed;        // Mbit/s
  int port;
  float latency;
  int most_comms, most_receives;
  int device_type, device_version;
};
struct PropertiesV9 {  // and version 10's
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers;
  int global_registration;
  int force_flush;
  int speed;
  int port;
  float latency;
  int most_comms, most_receives;
  int device_type, device_version;
  VirtualDevices virtual_devices;
  size_t most_bytes;  // of one message
  size_t most_collective_bytes;
};
struct PropertiesV11 {
  PropertiesV9 common;
  int most_multi_requests;
};

// What all versions have alike, from registration to the end of a connection.
struct Memory {
  Result (*register_memory)(void* comm, void* data, size_t bytes, int type, void** memory);
  Result (*register_dma_buf)(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd, void** memory);
  Result (*deregister)(void* comm, void* memory);
};
struct Completion {
  Result (*flush)(void* comm, int n, void** data, int* bytes, void** memory, void** request);
  Result (*test)(void* request, int* done, int* bytes);
  Result (*close_send)(void* comm);
  Result (*close_receive)(void* comm);
  Result (*close_listen)(void* listener);
  Result (*device_memory)(void* comm, void* memory, void** device);
  Result (*consumed)(void* comm, int n, void* request);
};

// connect and accept: null comms until the connection is there; `device`: where GPUs drive the network themselves.
struct V8 {
  const char* name;
  Result (*init)(PluginLog log);
  Result (*devices)(int* count);
  Result (*properties)(int device, PropertiesV8* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** comm, void** device_comm);
  Result (*accept)(void* listener, void** comm, void** device_comm);
  Memory memory;
  Result (*send)(void* comm, void* data, int bytes, int tag, void* memory, void** request);
  Result (*receive)(void* comm, int n, void** data, int* bytes, int* tags, void** memory, void** request);
  Completion completion;
};
struct V9 {
  const char* name;
  Result (*init)(PluginLog log);
  Result (*devices)(int* count);
  Result (*properties)(int device, PropertiesV9* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, void* handle, void** comm, void** device_comm);
  Result (*accept)(void* listener, void** comm, void** device_comm);
  Memory memory;
  Result (*send)(void* comm, void* data, size_t bytes, int tag, void* memory, void** request);
  Result (*receive)(void* comm, int n, void** data, size_t* bytes, int* tags, void** memory, void** request);
  Completion completion;
  Result (*make_virtual)(int* device, VirtualDevices* parts);
};
struct V10 {
  const char* name;
  Result (*init)(PluginLog log, Profile profile);
  Result (*devices)(int* count);
  Result (*properties)(int device, PropertiesV9* properties);
  Result (*listen)(int device, void* handle, void** listener);
  Result (*connect)(int device, CommConfig* config, void* handle, void** comm, void** device_comm);
  Result (*accept)(void* listener, void** comm, void** device_comm);
  Memory memory;
  Result (*send)(void* comm, void* data, size_t bytes, int tag, void* memory, void* event, void** request);
  Result (*receive)(void* comm, int n, void** data, size_t* bytes, int* tags, void** memory, void** events, void** request);
  Completion completion;
  Result (*make_virtual)(int* device, VirtualDevices* parts);
};
struct V11 {
  const char* name;
  Result (*init)(void** context, uint64_t communicator, CommConfig* config, PluginLog log, Profile profile);
  Result (*devices)(int* count);
  Result (*properties)(int device, PropertiesV11* properties);
  Result (*listen)(void* context, int device, void* handle, void** listener);
  Result (*connect)(void* context, int device, void* handle, void** comm, void** device_comm);
  Result (*accept)(void* listener, void** comm, void** device_comm);
  Memory memory;
  Result (*send)(void* comm, void* data, size_t bytes, int tag, void* memory, void* event, void** request);
  Result (*receive)(void* comm, int n, void** data, size_t* bytes, int* tags, void** memory, void** events, void** request);
  Completion completion;
  Result (*make_virtual)(int* device, VirtualDevices* parts);
  Result (*finalize)(void* context);
  Result (*set_attributes)(void* context, void* attributes);
};

static_assert(sizeof(V8) == 19 * sizeof(void*) && sizeof(V9) == 20 * sizeof(void*) && sizeof(V10) == sizeof(V9) &&
              sizeof(V11) == 22 * sizeof(void*));
static_assert(sizeof(PropertiesV8) == 64 && offsetof(PropertiesV8, latency) == 40);
static_assert(sizeof(PropertiesV9) == 104 && offsetof(PropertiesV9, most_bytes) == 88 && sizeof(PropertiesV11) == 112);

}  // namespace muster::net_abi
