#include "comm/gpu_calls.h"

#include <algorithm>

#include "base/error.h"
#include "comm/mismatch.h"

namespace muster {

using Impl = Communicator::Impl;

namespace {

// The buffers that the call uses on this rank.
std::vector<const void*> used_buffers(const Call& call, const Impl& comm) {
  const CallShape& s = call.shape;
  bool sends = true, receives = true;
  if (s.coll == Coll::send_recv) {
    sends = call.is_send;
    receives = !call.is_send;
  } else if (call.uneven) {
    sends = call.uneven->input_end != 0;
    receives = call.uneven->output_end != 0;
  } else {
    const bool at_root = !rooted(s.coll) || s.root == comm.rank;
    sends = s.count != 0 && (at_root || s.coll == Coll::reduce || s.coll == Coll::gather);
    receives = s.count != 0 && (at_root || s.coll == Coll::broadcast || s.coll == Coll::scatter);
  }
  std::vector<const void*> used;
  if (sends) used.push_back(call.send);
  if (receives) used.push_back(call.recv);
  return used;
}

}  // namespace

void Impl::require_one_gpu(const Call& call) {
  const GpuLibrary& gpus = *gpu_library();
  const std::vector<const void*> buffers = used_buffers(call, *this);
  int device = gpu_device.load();
  for (const bool binds : {true, false})  // first what says which GPU it is
    for (const void* p : buffers) {
      if (!p) continue;  // of an empty message
      const GpuPointer at = gpus.inspect(p);
      if ((at.kind == GpuPointer::Kind::device) != binds) continue;
      if (device < 0) device = at.device;
      if (call.shape.count == 0) continue;  // nothing is at its address
      if (at.kind == GpuPointer::Kind::host)
        fail(Result::invalid_argument,
             "{} on rank {}: one buffer is memory of a GPU, the other one at {} is plain host memory, which "
             "GPUs don't reach. Allocate it "
             "with cudaMalloc, ncclMemAlloc or cudaHostAlloc",
             to_string(call), rank, p);
      if (binds && at.device != device)
        fail(Result::invalid_argument,
             "{} on rank {}: the buffer at {} is memory of {}; those of this call or of communicator {} "
             "before are of {}. A communicator stays "
             "with one GPU",
             to_string(call), rank, p, gpus.describe(at.device), name, gpus.describe(device));
    }
  if (device < 0 && call.shape.coll >= Coll::send_recv)  // it runs, with nothing of this rank's
    device = gpu_made_on(device).value_or(gpus.current());
  if (device >= 0) gpu_device.store(device);
}

GpuGroup group_of(const std::vector<Call>& calls) {
  GpuGroup group;
  for (const Call& c : calls) {
    if (!c.on_gpu) continue;
    group.messages.push_back({static_cast<std::byte*>(c.is_send ? const_cast<void*>(c.send) : c.recv),
                              c.shape.count * size_of(c.shape.type),
                              message_fingerprint({c.shape.count, c.shape.type}), c.peer, c.is_send});
    if (std::find(group.streams.begin(), group.streams.end(), c.gpu_stream) == group.streams.end())
      group.streams.push_back(c.gpu_stream);
  }
  return group;
}

GpuGroup messages_of(const Call& call, const std::byte* input, const Impl& comm, uint64_t fingerprint) {
  const Coll coll = call.shape.coll;
  const bool to_all = !rooted(coll), at_root = comm.rank == call.shape.root;
  const uint64_t element = size_of(call.shape.type);
  GpuGroup group;
  group.streams = {call.gpu_stream};
  const auto add = [&](const std::byte* base, const std::vector<ChunkTable::Chunk>& chunks, int peer,
                       bool is_send) {
    const ChunkTable::Chunk& c = chunks[chunks.size() > 1 ? static_cast<size_t>(peer) : 0];
    // Its count is a part of what both ends must agree on.
    group.messages.push_back({const_cast<std::byte*>(base) + c.begin * element, c.count * element,
                              fingerprint ^ c.count, peer, is_send});
  };
  for (int r = 0; r < comm.size; ++r) {
    const bool is_root = r == call.shape.root;
    if (to_all || (coll == Coll::gather_v ? is_root : at_root)) add(input, call.uneven->table.input, r, true);
    if (to_all || (coll == Coll::gather_v ? at_root : is_root))
      add(static_cast<const std::byte*>(call.recv), call.uneven->table.output, r, false);
  }
  return group;
}

}  // namespace muster
