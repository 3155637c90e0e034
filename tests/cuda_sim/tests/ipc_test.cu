// Two processes share a device's memory and an event by handles.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_memory.h"

#define EXPECT_OK(call) EXPECT_EQ(call, cudaSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, cudaSuccess)

namespace {

__global__ void replace(int* p, int before, int after) { *p = *p == before ? after : -1000; }
__global__ void post(int* p, int v) {
  asm volatile("st.release.sys.global.s32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__global__ void await(int* p, int v) {
  for (int seen = 0; seen != v;)
    asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(seen) : "l"(p) : "memory");
}

struct Handles {
  cudaIpcMemHandle_t memory;
  cudaIpcEventHandle_t event;
};

void other_process(int socket) {
  Handles h;
  ASSERT_EQ(read(socket, &h, sizeof h), static_cast<ssize_t>(sizeof h));
  ASSERT_OK(cudaSetDevice(1));
  int* p;
  cudaEvent_t event;
  cudaStream_t stream;
  ASSERT_OK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&p), h.memory, cudaIpcMemLazyEnablePeerAccess));
  ASSERT_OK(cudaIpcOpenEventHandle(&event, h.event));
  ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_OK(cudaStreamWaitEvent(stream, event, 0));
  replace<<<1, 1, 0, stream>>>(p, 41, 42);
  post<<<1, 1, 0, stream>>>(p + 1, 1);
  await<<<1, 1, 0, stream>>>(p + 2, 9);
  EXPECT_OK(cudaStreamSynchronize(stream));
  EXPECT_OK(cudaEventDestroy(event));
  EXPECT_OK(cudaIpcCloseMemHandle(p));
}

TEST(Ipc, MemoryAndEvents) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  pid_t child = fork();  // before any call of CUDA, which has threads
  if (child == 0) {
    other_process(sockets[1]);
    fflush(stdout);
    _exit(HasFailure());
  }
  cuda_sim_test::DeviceInts d(4);
  cudaEvent_t event;
  cudaStream_t stream;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventInterprocess),
            cudaErrorInvalidValue);  // it can't be timed
  ASSERT_OK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
  ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_OK(cudaLaunchHostFunc(
      stream, [](void*) { usleep(20000); }, nullptr));
  replace<<<1, 1, 0, stream>>>(d.data, 0, 41);
  EXPECT_OK(cudaEventRecord(event, stream));
  Handles h;
  EXPECT_OK(cudaIpcGetMemHandle(&h.memory, d.data));
  EXPECT_OK(cudaIpcGetEventHandle(&h.event, event));
  void* own;
  EXPECT_NE(cudaIpcOpenMemHandle(&own, h.memory, cudaIpcMemLazyEnablePeerAccess),
            cudaSuccess);  // of this process itself
  ASSERT_EQ(write(sockets[0], &h, sizeof h), static_cast<ssize_t>(sizeof h));
  await<<<1, 1, 0, stream>>>(d.data + 1, 1);
  post<<<1, 1, 0, stream>>>(d.data + 2, 9);
  EXPECT_OK(cudaStreamSynchronize(stream));
  EXPECT_EQ(d.value(), 42);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_OK(cudaEventDestroy(event));
  EXPECT_OK(cudaStreamDestroy(stream));
}

}  // namespace
