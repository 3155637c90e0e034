#include "muster/muster.h"

#include <algorithm>

#include "algorithms/algorithms.h"
#include "base/error.h"
#include "comm/gpu_rank.h"
#include "comm/state.h"

namespace muster {

Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

namespace {

using Impl = Communicator::Impl;

void require_made(const std::shared_ptr<Impl>& impl) {
  if (impl->stage.load(std::memory_order_acquire) != Impl::Stage::making) return;
  if (impl->given_up()) impl->throw_error();
  fail(Result::invalid_argument, "a communicator that is being made was asked for what isn't known yet. Wait until async_error() says success");
}

// What split and shrink make has its rank and size when it is made.
const Impl& require_known(const std::shared_ptr<Impl>& impl) {
  if (!impl->numbered) require_made(impl);
  return *impl;
}

}  // namespace

Call call_of(Coll coll, const void* send, void* recv, size_t count, DataType type, const ReduceOp& op, int root) {
  Call call;
  call.shape = {coll, type, op.op, root, count};
  call.send = send;
  call.recv = recv;
  call.weight_bits = op.scalar_bits;
  if (op.op == RedOp::pre_mul_sum && op.scalar_type != type) [[unlikely]] {
    abandon_group();
    fail(Result::invalid_argument, "{}: the factor of pre_mul_sum is {}, the elements are {}; they must be of one type", name_of(coll),
         name_of(op.scalar_type), name_of(type));
  }
  return call;
}

namespace {

// These calls are for host memory.
void require_host_memory(const Call& call) {
  const GpuLibrary* const gpus = gpu_library();
  if (!gpus || !(gpus->holds(call.send) || gpus->holds(call.recv))) [[likely]]
    return;
  abandon_group();
  fail(Result::invalid_usage,
       "{} of GPU memory has no CUDA stream. Call muster::gpu::{} (muster/gpu.h), or copy the data to host memory", name_of(call.shape.coll),
       call.shape.coll != Coll::send_recv ? name_of(call.shape.coll) : call.is_send ? "send" : "recv");
}

Call on_host(Coll coll, const void* send, void* recv, size_t count, DataType type, const ReduceOp& op = {}, int root = 0) {
  Call call = call_of(coll, send, recv, count, type, op, root);
  require_host_memory(call);
  return call;
}

}  // namespace

int Communicator::rank() const { return require_known(require(impl_)).rank; }
int Communicator::size() const { return require_known(require(impl_)).size; }
const std::string& Communicator::name() const {
  require_made(require(impl_));
  return impl_->name;
}
bool Communicator::blocking() const { return require(impl_)->blocking; }

void Communicator::all_reduce(const void* send, void* recv, size_t count, DataType type, ReduceOp op, HostStream* stream) {
  submit(require(impl_), on_host(Coll::all_reduce, send, recv, count, type, op), stream);
}
void Communicator::broadcast(const void* send, void* recv, size_t count, DataType type, int root, HostStream* stream) {
  submit(require(impl_), on_host(Coll::broadcast, send, recv, count, type, {}, root), stream);
}
void Communicator::reduce(const void* send, void* recv, size_t count, DataType type, ReduceOp op, int root, HostStream* stream) {
  submit(require(impl_), on_host(Coll::reduce, send, recv, count, type, op, root), stream);
}
void Communicator::all_gather(const void* send, void* recv, size_t count, DataType type, HostStream* stream) {
  submit(require(impl_), on_host(Coll::all_gather, send, recv, count, type), stream);
}
void Communicator::reduce_scatter(const void* send, void* recv, size_t count, DataType type, ReduceOp op, HostStream* stream) {
  submit(require(impl_), on_host(Coll::reduce_scatter, send, recv, count, type, op), stream);
}
void Communicator::all_to_all(const void* send, void* recv, size_t count, DataType type, HostStream* stream) {
  submit(require(impl_), on_host(Coll::all_to_all, send, recv, count, type), stream);
}
void Communicator::gather(const void* send, void* recv, size_t count, DataType type, int root, HostStream* stream) {
  submit(require(impl_), on_host(Coll::gather, send, recv, count, type, {}, root), stream);
}
void Communicator::scatter(const void* send, void* recv, size_t count, DataType type, int root, HostStream* stream) {
  submit(require(impl_), on_host(Coll::scatter, send, recv, count, type, {}, root), stream);
}

// --- V-variants ---

namespace {

uint64_t end_of(const std::vector<ChunkTable::Chunk>& chunks) {
  uint64_t end = 0;
  for (const ChunkTable::Chunk& c : chunks)
    if (c.count) end = std::max(end, c.begin + c.count);
  return end;
}

// `lay_out_buffers` fills the table in.
template <class F>
void submit_uneven(const std::shared_ptr<Impl>& comm, Call call, HostStream* stream, F lay_out_buffers) {
  Uneven uneven;
  try {
    comm->require_usable();
    lay_out_buffers(&uneven.table);
  } catch (...) {
    abandon_group();
    throw;
  }
  uneven.input_end = end_of(uneven.table.input);
  uneven.output_end = end_of(uneven.table.output);
  call.shape.count = is_pairwise(call.shape.coll) ? 1 : signature_of(uneven.agreed_counts(call.shape.coll));
  call.uneven = &uneven;
  submit(comm, call, stream);
}

}  // namespace

void submit_all_gather_v(const std::shared_ptr<Impl>& comm, const Call& call, size_t send_count, std::span<const size_t> recv_counts, std::span<const size_t> displacements, HostStream* stream) {
  submit_uneven(comm, call, stream, [&](ChunkTable* t) {
    t->input = {{0, send_count}};
    t->output = lay_out(Coll::all_gather_v, *comm, {recv_counts, displacements, "recv_counts"}, call.shape.type, true);
  });
}

void submit_reduce_scatter_v(const std::shared_ptr<Impl>& comm, const Call& call, std::span<const size_t> recv_counts, HostStream* stream) {
  submit_uneven(comm, call, stream, [&](ChunkTable* t) {
    t->input = lay_out(Coll::reduce_scatter_v, *comm, {recv_counts, {}, "recv_counts"}, call.shape.type, false);
    t->output = {{0, recv_counts[static_cast<size_t>(comm->rank)]}};
  });
}

void submit_all_to_all_v(const std::shared_ptr<Impl>& comm, const Call& call, std::span<const size_t> send_counts, std::span<const size_t> send_displacements, std::span<const size_t> recv_counts, std::span<const size_t> recv_displacements, HostStream* stream) {
  submit_uneven(comm, call, stream, [&](ChunkTable* t) {
    t->input = lay_out(Coll::all_to_all_v, *comm, {send_counts, send_displacements, "send_counts"}, call.shape.type, false);
    t->output = lay_out(Coll::all_to_all_v, *comm, {recv_counts, recv_displacements, "recv_counts"}, call.shape.type, true);
  });
}

void Communicator::all_gather_v(const void* send, size_t send_count, void* recv, std::span<const size_t> recv_counts,
                                std::span<const size_t> displacements, DataType type, HostStream* stream) {
  submit_all_gather_v(require(impl_), on_host(Coll::all_gather_v, send, recv, 0, type), send_count, recv_counts, displacements, stream);
}
void Communicator::reduce_scatter_v(const void* send, void* recv, std::span<const size_t> recv_counts, DataType type, ReduceOp op,
                                    HostStream* stream) {
  submit_reduce_scatter_v(require(impl_), on_host(Coll::reduce_scatter_v, send, recv, 0, type, op), recv_counts, stream);
}
void Communicator::all_to_all_v(const void* send, std::span<const size_t> send_counts, std::span<const size_t> send_displacements, void* recv,
                                std::span<const size_t> recv_counts, std::span<const size_t> recv_displacements, DataType type,
                                HostStream* stream) {
  submit_all_to_all_v(require(impl_), on_host(Coll::all_to_all_v, send, recv, 0, type), send_counts, send_displacements, recv_counts, recv_displacements, stream);
}
void Communicator::gather_v(const void* send, size_t send_count, void* recv, std::span<const size_t> recv_counts,
                            std::span<const size_t> displacements, DataType type, int root, HostStream* stream) {
  submit_uneven(require(impl_), on_host(Coll::gather_v, send, recv, 0, type, {}, root), stream, [&](ChunkTable* t) {
    t->input = {{0, send_count}};
    if (impl_->rank == root) t->output = lay_out(Coll::gather_v, *impl_, {recv_counts, displacements, "recv_counts"}, type, true);
  });
}
void Communicator::scatter_v(const void* send, std::span<const size_t> send_counts, std::span<const size_t> displacements, void* recv,
                             size_t recv_count, DataType type, int root, HostStream* stream) {
  submit_uneven(require(impl_), on_host(Coll::scatter_v, send, recv, 0, type, {}, root), stream, [&](ChunkTable* t) {
    if (impl_->rank == root) t->input = lay_out(Coll::scatter_v, *impl_, {send_counts, displacements, "send_counts"}, type, false);
    t->output = {{0, recv_count}};
  });
}

void Communicator::send(const void* buffer, size_t count, DataType type, int peer, HostStream* stream) {
  Call call;
  call.shape = {Coll::send_recv, type, RedOp::sum, 0, count};
  call.send = buffer;
  call.peer = peer;
  call.is_send = true;
  require_host_memory(call);
  submit(require(impl_), call, stream);
}
void Communicator::recv(void* buffer, size_t count, DataType type, int peer, HostStream* stream) {
  Call call;
  call.shape = {Coll::send_recv, type, RedOp::sum, 0, count};
  call.recv = buffer;
  call.peer = peer;
  require_host_memory(call);
  submit(require(impl_), call, stream);
}

// Everybody's byte reaches everybody, so nobody leaves before all have come.
void Communicator::barrier(HostStream* stream) {
  Impl& impl = *require(impl_);  // holds the bytes: inside a group, or without blocking, the call runs later
  all_reduce(&impl.barrier_bytes[0], &impl.barrier_bytes[1], 1, DataType::uint8, RedOp::max, stream);
}

Result Communicator::async_error(std::string* message) const {
  const Impl& impl = *require(impl_);
  if (!impl.given_up()) {
    if (impl.stage.load(std::memory_order_acquire) == Impl::Stage::making) return Result::in_progress;
    impl_->check_gpu();
    if (!impl.failed()) return impl.pending.load(std::memory_order_acquire) ? Result::in_progress : Result::success;
  }
  try {
    impl.throw_error();
  } catch (const Error& e) {
    if (message) *message = e.what();
    return e.code();
  }
}

std::string Communicator::explain(const std::string& collective, size_t count, DataType type, ReduceOp op, int root) const {
  const Impl& impl = *require(impl_);
  std::vector<const char*> known;
  for (int i = 0; i < kColls; ++i) {
    const Coll coll = static_cast<Coll>(i);
    if (coll == Coll::send_recv) continue;
    known.push_back(name_of(coll));
    if (collective != name_of(coll)) continue;
    CallShape shape{coll, type, op.op, root, count};
    if (!is_uneven(coll)) {
      const auto [chosen, slots, windows] = impl.choose_ways(shape);
      return impl.describe(to_string(shape), slots, windows);
    }
    const UnevenChoice c = choose_uneven(shape, count * static_cast<uint64_t>(impl.size), impl.inputs);
    return impl.describe(to_string(shape), c.slots, c.windows);
  }
  fail(Result::invalid_argument, "'{}' is not a collective. There are: {}", collective, fmt::join(known, ", "));
}

const char* version() { return MUSTER_VERSION; }

}  // namespace muster
