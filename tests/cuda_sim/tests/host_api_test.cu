// What a program relies on beside kernels: order of streams, events, callbacks, pointers, capture and graphs,
// virtual memory.
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstring>

#include "device_memory.h"

#define EXPECT_OK(call) EXPECT_EQ(call, cudaSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, cudaSuccess)
#define EXPECT_DRIVER_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)
#define ASSERT_DRIVER_OK(call) ASSERT_EQ(call, CUDA_SUCCESS)

namespace {

using cuda_sim_test::DeviceInts;

__global__ void add(int* p, int v) { atomicAdd(p, v); }
__global__ void replace(int* p, int before, int after) { *p = *p == before ? after : -1000; }

void take_20_ms(void* counter) {
  usleep(20000);
  ++*static_cast<int*>(counter);
}

// A stream waits in a callback until it is opened.
struct Gate {
  Gate() { EXPECT_EQ(pipe(ends), 0); }
  ~Gate() {
    close(ends[0]);
    close(ends[1]);
  }
  void close_stream(cudaStream_t stream) {
    auto wait = [](void* end) {
      char c;
      EXPECT_EQ(read(*static_cast<int*>(end), &c, 1), 1);
    };
    EXPECT_OK(cudaLaunchHostFunc(stream, wait, &ends[0]));
  }
  void open() { EXPECT_EQ(write(ends[1], "x", 1), 1); }
  int ends[2];
};

struct Stream {
  explicit Stream(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_OK(cudaStreamCreateWithFlags(&handle, flags));
  }
  ~Stream() { EXPECT_OK(cudaStreamDestroy(handle)); }
  operator cudaStream_t() const { return handle; }
  cudaStream_t handle;
};
struct Event {
  Event() { EXPECT_OK(cudaEventCreate(&handle)); }
  ~Event() { EXPECT_OK(cudaEventDestroy(handle)); }
  operator cudaEvent_t() const { return handle; }
  cudaEvent_t handle;
};

TEST(Streams, EventsOrderThem) {
  DeviceInts d(1);
  Stream a, b;
  Event begin, end;
  Gate gate;
  EXPECT_OK(cudaEventRecord(begin, a));
  gate.close_stream(a);
  replace<<<1, 1, 0, a>>>(d.data, 0, 1);
  EXPECT_OK(cudaEventRecord(end, a));
  EXPECT_OK(cudaStreamWaitEvent(b, end, 0));
  replace<<<1, 1, 0, b>>>(d.data, 1, 2);
  EXPECT_EQ(cudaStreamQuery(b), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(end), cudaErrorNotReady);
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
  usleep(5000);
  gate.open();
  EXPECT_OK(cudaStreamSynchronize(b));
  EXPECT_EQ(d.value(), 2);
  EXPECT_OK(cudaEventElapsedTime(&ms, begin, end));
  EXPECT_GE(ms, 4);
}
TEST(Streams, TheLegacyStreamAndBlockingOnesWaitForEachOther) {
  DeviceInts d(1);
  Stream blocking(cudaStreamDefault);
  int calls = 0;
  EXPECT_OK(cudaLaunchHostFunc(blocking, take_20_ms, &calls));
  EXPECT_OK(cudaMemset(d.data, 0, 4));
  EXPECT_OK(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(calls, 1);
  EXPECT_OK(cudaLaunchHostFunc(nullptr, take_20_ms, &calls));
  EXPECT_OK(cudaMemsetAsync(d.data, 0, 4, blocking));
  EXPECT_OK(cudaStreamSynchronize(blocking));
  EXPECT_EQ(calls, 2);
}
TEST(Streams, TheLegacyStreamDoesNotWaitForNonBlockingOnes) {
  DeviceInts d(1);
  Stream a;
  Gate gate;
  gate.close_stream(a);
  EXPECT_OK(cudaMemset(d.data, 0, 4));
  EXPECT_OK(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  gate.open();
  EXPECT_OK(cudaStreamSynchronize(a));
}
TEST(Streams, CallbacksMayNotCallTheRuntime) {
  Stream a;
  static cudaError_t got;
  auto call = [](void*) {
    void* p;
    got = cudaMalloc(&p, 4);
  };
  EXPECT_OK(cudaLaunchHostFunc(a, call, nullptr));
  EXPECT_OK(cudaStreamSynchronize(a));
  EXPECT_EQ(got, cudaErrorNotPermitted);
}
TEST(Streams, BelongToADevice) {
  DeviceInts d(1);
  Stream a;
  ASSERT_OK(cudaSetDevice(1));
  add<<<1, 1, 0, a>>>(d.data, 1);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  ASSERT_OK(cudaSetDevice(0));
}
TEST(Streams, DestroyedOnesAreKnown) {
  cudaStream_t a;
  ASSERT_OK(cudaStreamCreate(&a));
  ASSERT_OK(cudaStreamDestroy(a));
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}

TEST(Memory, KindsOfPointers) {
  DeviceInts d(4);
  static int own[1024];
  cudaPointerAttributes a;
  EXPECT_OK(cudaPointerGetAttributes(&a, d.data + 3));
  EXPECT_EQ(a.type, cudaMemoryTypeDevice);
  EXPECT_EQ(a.device, 0);
  EXPECT_OK(cudaPointerGetAttributes(&a, own));
  EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
  EXPECT_OK(cudaHostRegister(own, sizeof own, 0));
  EXPECT_EQ(cudaHostRegister(own, sizeof own, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_OK(cudaPointerGetAttributes(&a, own + 5));
  EXPECT_EQ(a.type, cudaMemoryTypeHost);
  EXPECT_OK(cudaHostUnregister(own));
  EXPECT_EQ(cudaHostUnregister(own), cudaErrorHostMemoryNotRegistered);
  void *pinned, *managed;
  EXPECT_OK(cudaHostAlloc(&pinned, 64, cudaHostAllocMapped));
  EXPECT_OK(cudaPointerGetAttributes(&a, pinned));
  EXPECT_EQ(a.type, cudaMemoryTypeHost);
  EXPECT_OK(cudaFreeHost(pinned));
  EXPECT_OK(cudaMallocManaged(&managed, 64));
  EXPECT_OK(cudaPointerGetAttributes(&a, managed));
  EXPECT_EQ(a.type, cudaMemoryTypeManaged);
  EXPECT_OK(cudaFree(managed));
  cudaGetLastError();
}
TEST(Memory, WrongFreesAndCopiesAreRefused) {
  DeviceInts d(250);
  void* p;
  EXPECT_OK(cudaMalloc(&p, 1000));
  EXPECT_EQ(cudaMemcpy(d.data, p, 2000, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_OK(cudaFree(p));
  EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(d.data + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_OK(cudaGetLastError());
}

TEST(Graphs, ACaptureIsLaunchedSeveralTimes) {
  DeviceInts d(3);
  Stream a, b;
  Event fork, join;
  static int calls;
  calls = 0;
  EXPECT_OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  add<<<1, 32, 0, a>>>(d.data, 1);
  EXPECT_OK(cudaEventRecord(fork, a));
  EXPECT_OK(cudaStreamWaitEvent(b, fork, 0));
  add<<<1, 1, 0, b>>>(d.data + 1, 3);
  add<<<1, 1, 0, a>>>(d.data + 2, 4);
  EXPECT_OK(cudaEventRecord(join, b));
  EXPECT_OK(cudaStreamWaitEvent(a, join, 0));
  EXPECT_OK(cudaLaunchHostFunc(
      a, [](void* n) { ++*static_cast<int*>(n); }, &calls));
  cudaGraph_t graph;
  ASSERT_OK(cudaStreamEndCapture(a, &graph));
  size_t nodes = 0;
  EXPECT_OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 4);
  EXPECT_EQ(d.value(), 0);
  cudaGraphExec_t executable;
  ASSERT_OK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 3; i++) EXPECT_OK(cudaGraphLaunch(executable, b));
  EXPECT_OK(cudaStreamSynchronize(b));
  EXPECT_EQ(d.values(), (std::vector<int>{96, 9, 12}));
  EXPECT_EQ(calls, 3);
  // The event's capture has ended: waiting for it joins nothing.
  EXPECT_OK(cudaStreamWaitEvent(b, join, 0));
  cudaStreamCaptureStatus status;
  EXPECT_OK(cudaStreamIsCapturing(b, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_OK(cudaGraphExecDestroy(executable));
  EXPECT_OK(cudaGraphDestroy(graph));
}
TEST(Graphs, NodesMayDependOnLaterOnes) {
  DeviceInts d(1);
  static int value;
  value = 1;
  cudaGraph_t graph;
  ASSERT_OK(cudaGraphCreate(&graph, 0));
  cudaHostNodeParams twice{[](void* v) { *static_cast<int*>(v) *= 2; }, &value};
  cudaHostNodeParams plus{[](void* v) { *static_cast<int*>(v) += 5; }, &value};
  cudaGraphNode_t second, first;
  EXPECT_OK(cudaGraphAddHostNode(&second, graph, nullptr, 0, &twice));
  EXPECT_OK(cudaGraphAddHostNode(&first, graph, nullptr, 0, &plus));
  EXPECT_OK(cudaGraphAddDependencies(graph, &first, &second, nullptr, 1));
  cudaGraphExec_t executable;
  ASSERT_OK(cudaGraphInstantiate(&executable, graph, 0));
  EXPECT_OK(cudaGraphLaunch(executable, nullptr));
  EXPECT_OK(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(value, 12);
  EXPECT_OK(cudaGraphExecDestroy(executable));
  EXPECT_OK(cudaGraphDestroy(graph));
}
TEST(Graphs, UnsafeCallsInvalidateACapture) {
  Stream a;
  void* p;
  cudaGraph_t graph;
  EXPECT_OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  EXPECT_EQ(cudaMalloc(&p, 4), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  EXPECT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_OK(cudaMalloc(&p, 4));
  EXPECT_OK(cudaFree(p));
  EXPECT_OK(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_OK(cudaStreamEndCapture(a, &graph));
  EXPECT_OK(cudaGraphDestroy(graph));
  cudaGetLastError();
}
TEST(Graphs, UnjoinedStreamsAreRefused) {
  DeviceInts d(1);
  Stream a, b;
  Event fork;
  cudaGraph_t graph;
  EXPECT_OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  add<<<1, 1, 0, a>>>(d.data, 1);
  EXPECT_OK(cudaEventRecord(fork, a));
  EXPECT_OK(cudaStreamWaitEvent(b, fork, 0));
  add<<<1, 1, 0, b>>>(d.data, 1);
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureUnjoined);
}
TEST(Graphs, UserObjectsLiveAsLongAsTheGraph) {
  static int ended;
  ended = 0;
  cudaGraph_t graph;
  cudaUserObject_t object;
  cudaGraphExec_t executable;
  EXPECT_OK(cudaGraphCreate(&graph, 0));
  EXPECT_OK(cudaUserObjectCreate(
      &object, &ended, [](void* p) { ++*static_cast<int*>(p); }, 1, cudaUserObjectNoDestructorSync));
  EXPECT_OK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  EXPECT_OK(cudaGraphInstantiate(&executable, graph, 0));
  EXPECT_OK(cudaGraphDestroy(graph));
  EXPECT_EQ(ended, 0);
  EXPECT_OK(cudaGraphExecDestroy(executable));
  EXPECT_EQ(ended, 1);
}

TEST(Driver, IsFoundInEveryWay) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(library, nullptr);
  EXPECT_NE(dlsym(library, "cuMemCreate"), nullptr);
  void* f = nullptr;
  cudaDriverEntryPointQueryResult found;
  EXPECT_OK(cudaGetDriverEntryPointByVersion("cuMemAddressReserve", &f, 12000, cudaEnableDefault, &found));
  EXPECT_EQ(found, cudaDriverEntryPointSuccess);
  EXPECT_NE(f, nullptr);
  EXPECT_OK(cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &f, 12000, cudaEnableDefault, &found));
  EXPECT_EQ(found, cudaDriverEntryPointSymbolNotFound);
}
TEST(Driver, OnePhysicalMemoryAtTwoAddresses) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t size;
  ASSERT_DRIVER_OK(cuMemGetAllocationGranularity(&size, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  CUmemGenericAllocationHandle memory, imported;
  ASSERT_DRIVER_OK(cuMemCreate(&memory, size, &properties, 0));
  int fd = -1;
  ASSERT_DRIVER_OK(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASSERT_DRIVER_OK(cuMemImportFromShareableHandle(&imported,
                                                  reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  CUdeviceptr first, second;
  CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (auto [address, from] : {std::pair{&first, memory}, std::pair{&second, imported}}) {
    ASSERT_DRIVER_OK(cuMemAddressReserve(address, size, 0, 0, 0));
    ASSERT_DRIVER_OK(cuMemMap(*address, size, 0, from, 0));
    ASSERT_DRIVER_OK(cuMemSetAccess(*address, size, &access, 1));
  }
  EXPECT_OK(cudaMemset(reinterpret_cast<void*>(first), 0, size));
  add<<<1, 32>>>(reinterpret_cast<int*>(first), 2);
  int value = 0;
  EXPECT_OK(cudaMemcpy(&value, reinterpret_cast<void*>(second), 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(value, 64);
  CUdeviceptr base;
  size_t range;
  EXPECT_DRIVER_OK(cuMemGetAddressRange(&base, &range, first + 100));
  EXPECT_EQ(base, first);
  EXPECT_EQ(range, size);
  for (CUdeviceptr address : {first, second}) {
    EXPECT_DRIVER_OK(cuMemUnmap(address, size));
    EXPECT_DRIVER_OK(cuMemAddressFree(address, size));
  }
  EXPECT_DRIVER_OK(cuMemRelease(memory));
  EXPECT_DRIVER_OK(cuMemRelease(imported));
}
TEST(Driver, StreamsWaitForValues) {
  DeviceInts d(1);
  Stream a, b;
  auto address = reinterpret_cast<CUdeviceptr>(d.data);
  EXPECT_DRIVER_OK(cuStreamWaitValue32(a.handle, address, 3, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  EXPECT_DRIVER_OK(cuStreamWriteValue32(b.handle, address, 3, 0));
  EXPECT_OK(cudaStreamSynchronize(a));
}
TEST(Driver, WhatIsNotSimulatedSaysSo) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(cudaMallocPitch(nullptr, nullptr, 1, 1), cudaErrorNotSupported);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "cuda_sim: cudaMallocPitch is not simulated\n");
}

}  // namespace
