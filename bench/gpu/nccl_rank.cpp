#include "gpu/nccl_rank.h"

#include <sched.h>

#include "muster.h"

namespace muster::perf {
namespace {

ncclDataType_t nccl_type(DataType type) { return static_cast<ncclDataType_t>(type); }  // numbered alike

}  // namespace

NcclRank::NcclRank(int device, int rank, int size, bool default_stream)
    : device_(device), rank_(rank), size_(size) {
  const OnDevice on(device_);
  if (!default_stream)
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

void NcclRank::init(const ncclUniqueId& id, const ncclConfig_t& config) {
  const OnDevice on(device_);
  ncclConfig_t c = config;
  check(ncclCommInitRankConfig(&comm_, size_, id, rank_, &c), "ncclCommInitRankConfig");
}

NcclRank::~NcclRank() {
  const std::lock_guard lock(ending_);
  if (comm_ && !aborted_) {
    for (ncclWindow_t window : windows_) ncclCommWindowDeregister(comm_, window);
    for (void* handle : handles_) ncclCommDeregister(comm_, handle);
    for (const auto& [factor, op] : multipliers_) ncclRedOpDestroy(op, comm_);
    ncclCommDestroy(comm_);
  }
  if (graph_) cudaGraphExecDestroy(graph_);
  if (stream_) cudaStreamDestroy(stream_);
}

void NcclRank::all_reduce(const void* send, void* recv, size_t count, DataType type, ReduceOp op,
                          HostStream*) {
  check(ncclAllReduce(send, recv, count, nccl_type(type), nccl_op(op, nccl_type(type)), comm_, stream_),
        "ncclAllReduce");
}

void NcclRank::broadcast(const void* send, void* recv, size_t count, DataType type, int root, HostStream*) {
  check(ncclBroadcast(send, recv, count, nccl_type(type), root, comm_, stream_), "ncclBroadcast");
}

void NcclRank::reduce(const void* send, void* recv, size_t count, DataType type, ReduceOp op, int root,
                      HostStream*) {
  check(ncclReduce(send, recv, count, nccl_type(type), nccl_op(op, nccl_type(type)), root, comm_, stream_),
        "ncclReduce");
}

void NcclRank::all_gather(const void* send, void* recv, size_t count, DataType type, HostStream*) {
  check(ncclAllGather(send, recv, count, nccl_type(type), comm_, stream_), "ncclAllGather");
}

void NcclRank::reduce_scatter(const void* send, void* recv, size_t count, DataType type, ReduceOp op,
                              HostStream*) {
  check(ncclReduceScatter(send, recv, count, nccl_type(type), nccl_op(op, nccl_type(type)), comm_, stream_),
        "ncclReduceScatter");
}

void NcclRank::all_to_all(const void* send, void* recv, size_t count, DataType type, HostStream*) {
  check(ncclAlltoAll(send, recv, count, nccl_type(type), comm_, stream_), "ncclAlltoAll");
}

void NcclRank::gather(const void* send, void* recv, size_t count, DataType type, int root, HostStream*) {
  check(ncclGather(send, recv, count, nccl_type(type), root, comm_, stream_), "ncclGather");
}

void NcclRank::scatter(const void* send, void* recv, size_t count, DataType type, int root, HostStream*) {
  check(ncclScatter(send, recv, count, nccl_type(type), root, comm_, stream_), "ncclScatter");
}

void NcclRank::all_to_all_v(const void* send, std::span<const size_t> send_counts, std::span<const size_t>,
                            void* recv, std::span<const size_t> recv_counts, std::span<const size_t>,
                            DataType type, HostStream*) {
  check(musterAlltoAllV(send, send_counts.data(), nullptr, recv, recv_counts.data(), nullptr, nccl_type(type),
                        comm_, stream_),
        "musterAlltoAllV");
}

void NcclRank::send(const void* buffer, size_t count, DataType type, int peer, HostStream*) {
  check(ncclSend(buffer, count, nccl_type(type), peer, comm_, stream_), "ncclSend");
}

void NcclRank::recv(void* buffer, size_t count, DataType type, int peer, HostStream*) {
  check(ncclRecv(buffer, count, nccl_type(type), peer, comm_, stream_), "ncclRecv");
}

void NcclRank::group_start() { check(ncclGroupStart(), "ncclGroupStart"); }
void NcclRank::group_end() { check(ncclGroupEnd(), "ncclGroupEnd"); }

// A kernel whose call has failed ends, and its stream goes on: only the communicator says so.
void NcclRank::synchronize() {
  const OnDevice on(device_);
  const auto check_communicator = [&] {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    check(state, "a call on the stream");
  };
  for (cudaError_t state; (state = cudaStreamQuery(stream_)) != cudaSuccess;) {
    if (state != cudaErrorNotReady) require(state, "cudaStreamQuery");
    check_communicator();
    sched_yield();
  }
  check_communicator();
}

void NcclRank::begin_capture() {
  // Other threads of the process go on with calls that a global capture would forbid.
  require(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}

void NcclRank::end_capture() {
  const OnDevice on(device_);
  cudaGraph_t graph = nullptr;
  require(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  if (graph_) require(cudaGraphExecDestroy(std::exchange(graph_, nullptr)), "cudaGraphExecDestroy");
  const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
  cudaGraphDestroy(graph);
  require(made, "cudaGraphInstantiate");
}

void NcclRank::replay() { require(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch"); }

void* NcclRank::allocate(size_t bytes, bool shareable) {
  const OnDevice on(device_);
  void* memory = nullptr;
  if (shareable)
    check(ncclMemAlloc(&memory, bytes), "ncclMemAlloc");
  else
    require(cudaMalloc(&memory, bytes), "cudaMalloc");
  return memory;
}

void NcclRank::release(void* memory, bool shareable) noexcept {
  if (shareable)
    ncclMemFree(memory);
  else
    cudaFree(memory);
}

void NcclRank::fill(void* to, int byte, size_t bytes) {
  const OnDevice on(device_);
  require(cudaMemsetAsync(to, byte, bytes, stream_), "cudaMemsetAsync");
  require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void NcclRank::upload(void* to, const void* from, size_t bytes) {
  const OnDevice on(device_);
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
  require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void NcclRank::download(void* to, const void* from, size_t bytes) {
  const OnDevice on(device_);
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
  require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void NcclRank::register_buffer(void* buffer, size_t bytes, Registration how) {
  const OnDevice on(device_);
  if (how == Registration::local) {
    handles_.push_back(nullptr);
    check(ncclCommRegister(comm_, buffer, bytes, &handles_.back()), "ncclCommRegister");
  } else if (how == Registration::windows) {
    windows_.push_back(nullptr);
    check(ncclCommWindowRegister(comm_, buffer, bytes, &windows_.back(), NCCL_WIN_COLL_SYMMETRIC),
          "ncclCommWindowRegister");
  }
}

void NcclRank::abort() noexcept {
  const std::lock_guard lock(ending_);
  if (comm_ && !aborted_) ncclCommAbort(comm_);
  aborted_ = true;
}

ncclRedOp_t NcclRank::nccl_op(const ReduceOp& op, ncclDataType_t type) {
  if (op.op != RedOp::pre_mul_sum) return static_cast<ncclRedOp_t>(op.op);
  const auto [entry, fresh] = multipliers_.try_emplace({op.scalar_bits, op.scalar_type});
  if (fresh) {
    uint64_t factor = op.scalar_bits;
    check(ncclRedOpCreatePreMulSum(&entry->second, &factor, type, ncclScalarHostImmediate, comm_),
          "ncclRedOpCreatePreMulSum");
  }
  return entry->second;
}

}  // namespace muster::perf
