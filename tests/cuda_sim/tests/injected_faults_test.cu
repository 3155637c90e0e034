// Faults that environment variables ask for do happen.
#include <cuda.h>

#include "child.h"

namespace {

using cuda_sim_test::Child;
using cuda_sim_test::in_child;

void expect_success(const Child& child) { EXPECT_EQ(child.exit_code, 0) << child.output; }

__global__ void store(int* to, int value) { *to = value; }
__global__ void load(const int* from, int* to) { *to = *from; }

struct Peers {
  int *at0, *at1;  // memory of device 0 that holds 41, and of device 1 that holds 51
  Peers() {
    int first = 41, second = 51;
    EXPECT_EQ(cudaMalloc(&at0, 4), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(at0, &first, 4, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&at1, 4), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(at1, &second, 4, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  void connect() { EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess); }
};
int value_of(const int* p) {
  int v = 0;
  EXPECT_EQ(cudaMemcpy(&v, p, 4, cudaMemcpyDeviceToHost), cudaSuccess);
  return v;
}

constexpr int kGarbage = 0x5a5a5a5a;

TEST(InjectedFaults, PeerStoresAndLoadsDeliverNothing) {
  expect_success(in_child({"CUDASIM_P2P_FAULT=drop"}, [] {
    Peers p;
    p.connect();
    store<<<1, 1>>>(p.at1, 7);
    EXPECT_EQ(value_of(p.at1), 51);
    load<<<1, 1>>>(p.at1, p.at0);
    EXPECT_EQ(value_of(p.at0), -1);
    store<<<1, 1>>>(p.at0, 8);  // its own memory is sound
    EXPECT_EQ(value_of(p.at0), 8);
    return 0;
  }));
}
TEST(InjectedFaults, PeerStoresAndLoadsDeliverGarbage) {
  expect_success(in_child({"CUDASIM_P2P_FAULT=garbage"}, [] {
    Peers p;
    p.connect();
    store<<<1, 1>>>(p.at1, 7);
    EXPECT_EQ(value_of(p.at1), 7 ^ kGarbage);
    load<<<1, 1>>>(p.at1, p.at0);
    EXPECT_EQ(value_of(p.at0), 7);  // garbled twice
    return 0;
  }));
}
TEST(InjectedFaults, CopiesBetweenPeers) {
  expect_success(in_child({"CUDASIM_P2P_FAULT=garbage"}, [] {
    Peers p;
    EXPECT_EQ(cudaMemcpyPeer(p.at1, 1, p.at0, 0, 4), cudaSuccess);
    EXPECT_EQ(value_of(p.at1), 41);  // without peer access it goes through the host, and is sound
    p.connect();
    EXPECT_EQ(cudaMemcpyPeer(p.at1, 1, p.at0, 0, 4), cudaSuccess);
    EXPECT_EQ(value_of(p.at1), 41 ^ kGarbage);
    return 0;
  }));
}
TEST(InjectedFaults, UnknownFaultIsRefused) {
  Child child = in_child({"CUDASIM_P2P_FAULT=slow"}, [] { return value_of(Peers().at0); });
  EXPECT_EQ(child.signal, SIGABRT);
  EXPECT_TRUE(child.says("CUDASIM_P2P_FAULT='slow': drop or garbage is wanted")) << child.output;
}
TEST(InjectedFaults, UnknownOptionsAreRefused) {
  Child name = in_child({"CUDASIM_P2P_FAULTS=drop"}, [] { return 0; });
  Child value = in_child({"CUDASIM_DEVICES=two"}, [] {
    int count;
    return static_cast<int>(cudaGetDeviceCount(&count));
  });
  EXPECT_EQ(name.signal, SIGABRT);
  EXPECT_TRUE(name.says("CUDASIM_P2P_FAULTS is none of the options")) << name.output;
  EXPECT_EQ(value.signal, SIGABRT);
  EXPECT_TRUE(value.says("CUDASIM_DEVICES='two': a number is wanted")) << value.output;
}
TEST(InjectedFaults, NoPeerAccess) {
  expect_success(in_child({"CUDASIM_P2P=0"}, [] {
    int can = 1;
    EXPECT_EQ(cudaDeviceCanAccessPeer(&can, 0, 1), cudaSuccess);
    EXPECT_EQ(can, 0);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessUnsupported);
    return 0;
  }));
}

TEST(InjectedFaults, NthAllocationFails) {
  expect_success(in_child({"CUDASIM_FAIL_ALLOC=3"}, [] {
    void* p;
    EXPECT_EQ(cudaMalloc(&p, 4), cudaSuccess);
    EXPECT_EQ(cudaHostAlloc(&p, 4, 0), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&p, 4), cudaErrorMemoryAllocation);
    EXPECT_EQ(p, nullptr);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaMalloc(&p, 4), cudaSuccess);
    return 0;
  }));
}
TEST(InjectedFaults, LargeAllocationsFail) {
  expect_success(in_child({"CUDASIM_FAIL_ALLOC_ABOVE=1000"}, [] {
    void* p;
    EXPECT_EQ(cudaMalloc(&p, 1000), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&p, 1001), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaHostAlloc(&p, 1001, 0), cudaErrorMemoryAllocation);
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle;
    EXPECT_EQ(cuMemCreate(&handle, 2 << 20, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
    return 0;
  }));
}

TEST(InjectedFaults, KernelThatNeverStarts) {
  expect_success(in_child({"CUDASIM_STALL=store@1"}, [] {
    Peers p;
    store<<<1, 1>>>(p.at0, 7);
    EXPECT_EQ(value_of(p.at0), 7);
    EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
    store<<<1, 1>>>(p.at1, 7);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    usleep(50000);
    EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
    _exit(testing::Test::HasFailure());  // the device never gets idle
    return 0;
  }));
}

// One thread stores 16 bytes of one value each time, another looks whether they are.
__global__ void store_and_look(int4* p, int rounds, int* torn) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < rounds; i++)
      asm volatile("st.volatile.global.v4.s32 [%0], {%1, %1, %1, %1};" ::"l"(p), "r"(i) : "memory");
  } else {
    for (int i = 0; i < rounds; i++) {
      int4 v;
      asm volatile("ld.volatile.global.v4.s32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(p)
                   : "memory");
      if (v.x != v.w) ++*torn;
    }
  }
}
int count_torn() {
  int4* p;
  int* torn;
  EXPECT_EQ(cudaMalloc(&p, 16), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&torn, 4), cudaSuccess);
  EXPECT_EQ(cudaMemset(p, 0, 16), cudaSuccess);
  EXPECT_EQ(cudaMemset(torn, 0, 4), cudaSuccess);
  store_and_look<<<1, 2>>>(p, 2000, torn);
  return value_of(torn) > 0 ? 3 : 4;
}
TEST(InjectedFaults, TornAccesses) {
  Child child = in_child({"CUDASIM_SPLIT=1"}, count_torn);
  EXPECT_EQ(child.exit_code, 3) << child.output;
}
TEST(InjectedFaults, AccessesAreWholeOtherwise) {
  Child child = in_child({}, count_torn);
  EXPECT_EQ(child.exit_code, 4) << child.output;
}

}  // namespace
