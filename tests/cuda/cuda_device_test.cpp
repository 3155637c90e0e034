// The layer over the CUDA runtime: kinds of memory, copies, peers, errors in words, and the caller's device
// left alone.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <vector>

#include "cuda/gpus.h"
#include "device/cuda/check.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "muster/types.h"

namespace muster::cuda {
namespace {

using testing::HasSubstr;

template <class F>
std::string error_of(F f, Result code = Result::unhandled_device_error) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code);
    return e.what();
  }
  return "no error";
}

TEST(CudaDevice, GuardLeavesTheCallersDeviceAsItWas) {
  MUSTER_NEEDS_GPUS(2);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  {
    const DeviceGuard guard(0);
    EXPECT_EQ(current_device(), 0);
    const DeviceGuard inner(1);
    EXPECT_EQ(current_device(), 1);
  }
  EXPECT_EQ(current_device(), 1);
  const DeviceMemory memory(0, 100);
  const PinnedMemory pinned(0, 100);
  const Stream stream(0);
  const Event event(0);
  EXPECT_TRUE(enable_peer_access(0, 1));
  EXPECT_EQ(current_device(), 1);
}

TEST(CudaDevice, KindsOfMemory) {
  MUSTER_NEEDS_GPUS(2);
  const DeviceMemory memory(1, 4096);
  EXPECT_EQ(inspect(memory.data()).kind, MemoryKind::device);
  EXPECT_EQ(inspect(memory.data() + 4095).device, 1);
  EXPECT_EQ(inspect(memory.data() + 7).on_device, memory.data() + 7);
  const PinnedMemory pinned(0, 100);
  EXPECT_EQ(inspect(pinned.data()).kind, MemoryKind::pinned);
  void* managed = nullptr;
  ASSERT_EQ(cudaMallocManaged(&managed, 100), cudaSuccess);
  EXPECT_EQ(inspect(managed).kind, MemoryKind::managed);
  cudaFree(managed);
  const std::vector<int> plain(100);
  EXPECT_EQ(inspect(plain.data()).kind, MemoryKind::host);
  EXPECT_EQ(inspect(plain.data()).device, -1);
  EXPECT_EQ(inspect(nullptr).kind, MemoryKind::host);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);  // nothing is left for the program to find
}

TEST(CudaDevice, MemoryIsZeroedAndCopied) {
  MUSTER_NEEDS_GPUS(1);
  DeviceMemory memory(0, 1000);
  std::array<char, 1000> bytes;
  bytes.fill(1);
  memory.read(0, bytes.data(), bytes.size());
  EXPECT_THAT(bytes, testing::Each(0));
  memory.write(17, "abc", 3);
  memory.read(16, bytes.data(), 5);
  EXPECT_EQ(std::string(bytes.data(), 5), std::string("\0abc\0", 5));
  DeviceMemory moved = std::move(memory);
  EXPECT_EQ(memory.data(), nullptr);
  moved.read(16, bytes.data(), 5);
  EXPECT_EQ(bytes[1], 'a');
  const DeviceMemory none(0, 0);
  EXPECT_EQ(none.data(), nullptr);
}

TEST(CudaDevice, ErrorsSayWhatWhereAndWhatHelps) {
  MUSTER_NEEDS_GPUS(1);
  const std::string memory = error_of([] { const DeviceMemory huge(0, size_t{1} << 50); });
  EXPECT_THAT(memory, HasSubstr("allocating 1125899906842624 bytes on GPU 0 ("));
  EXPECT_THAT(memory, HasSubstr(" MiB of "));
  EXPECT_THAT(memory, HasSubstr("cudaErrorMemoryAllocation"));
  EXPECT_THAT(memory, HasSubstr("NCCL_BUFFSIZE"));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  const int before = current_device();
  const std::string device = error_of([] { const DeviceGuard guard(99); });
  EXPECT_THAT(device, HasSubstr("choosing GPU 99 of "));
  EXPECT_THAT(device, HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(current_device(), before);
}

TEST(CudaDevice, EventsOrderStreamsOfTwoDevices) {
  MUSTER_NEEDS_GPUS(2);
  Stream first(0), second(1);
  Event event(0);
  EXPECT_TRUE(enable_peer_access(1, 0));
  DeviceMemory memory(0, 1 << 20), copy(1, 1 << 20);
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 7, memory.size(), first.handle()), cudaSuccess);
  event.record(first.handle());
  event.hold_back(second.handle());
  ASSERT_EQ(
      cudaMemcpyAsync(copy.data(), memory.data(), copy.size(), cudaMemcpyDeviceToDevice, second.handle()),
      cudaSuccess);
  second.synchronize();
  EXPECT_TRUE(second.idle());
  EXPECT_TRUE(event.reached());
  std::vector<char> bytes(copy.size());
  copy.read(0, bytes.data(), bytes.size());
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 7), static_cast<ptrdiff_t>(bytes.size()));
}

TEST(CudaDevice, AllocationsLeaveAnotherThreadsCaptureAlone) {
  MUSTER_NEEDS_GPUS(1);
  Stream stream(0);
  EXPECT_FALSE(is_capturing(stream.handle()));
  ASSERT_EQ(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_TRUE(is_capturing(stream.handle()));
  std::thread([] {
    DeviceMemory memory(0, 100);
    const PinnedMemory pinned(0, 100);
    memory.write(0, "x", 1);
  }).join();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream.handle(), &graph), cudaSuccess);
  cudaGraphDestroy(graph);
}

// Descriptors by which AnotherProcessReachesTheMemory and its child talk.
constexpr int kFromParent = 100, kToParent = 101;

// What the child does; a process of its own, since the runtime doesn't survive a fork.
TEST(CudaDevice, DISABLED_Child) {
  IpcHandle handle;
  ASSERT_EQ(read(kFromParent, &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  const ImportedMemory memory(devices().count - 1, handle);
  char text[4] = {};
  ASSERT_EQ(cudaMemcpy(text, memory.data() + 10, 3, cudaMemcpyDeviceToHost), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(memory.data() + 20, "uvw", 3, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(write(kToParent, text, sizeof text), static_cast<ssize_t>(sizeof text));
}

TEST(CudaDevice, AnotherProcessReachesTheMemory) {
  MUSTER_NEEDS_GPUS(1);
  int to_child[2], to_parent[2];
  ASSERT_EQ(pipe2(to_child, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(to_parent, O_CLOEXEC), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    dup2(to_child[0], kFromParent);
    dup2(to_parent[1], kToParent);
    execl("/proc/self/exe", "child", "--gtest_filter=CudaDevice.DISABLED_Child",
          "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
    _exit(127);
  }
  close(to_child[0]);
  close(to_parent[1]);
  DeviceMemory memory(0, 1000);
  memory.write(10, "xyz", 3);
  const IpcHandle handle = export_memory(memory.data(), memory.device());
  ASSERT_EQ(write(to_child[1], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  char seen[4] = {}, text[4] = {};
  EXPECT_EQ(read(to_parent[0], seen, sizeof seen), static_cast<ssize_t>(sizeof seen));
  EXPECT_STREQ(seen, "xyz");
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  memory.read(20, text, 3);
  EXPECT_STREQ(text, "uvw");
  close(to_child[1]);
  close(to_parent[0]);
}

}  // namespace
}  // namespace muster::cuda
