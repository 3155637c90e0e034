// The counts of one V-variant call: where each rank's part is and how long, and what stands for them in comparisons.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/host/chunk_table.h"
#include "muster/muster.h"
#include "program/collective.h"

namespace muster {

struct Call;

struct Uneven {
  ChunkTable table;
  uint64_t input_end = 0, output_end = 0;  // elements from a buffer's start to the end of its last chunk

  // The counts that all ranks know: those of all_gather_v and reduce_scatter_v.
  std::vector<uint64_t> agreed_counts(Coll coll) const;
  // Elements of this rank's buffers, whichever holds more.
  uint64_t elements() const;
};

// What the caller passed for one buffer. No displacements: one chunk behind the other.
struct Counts {
  std::span<const size_t> counts;
  std::span<const size_t> displacements;
  const char* name;  // of `counts`, for messages
};
// Lays a buffer's chunks out. Throws invalid_argument for a wrong number of counts or displacements, and for more than an
// address space holds. `written`: also for chunks that overlap.
std::vector<ChunkTable::Chunk> lay_out(Coll coll, const Communicator::Impl& comm, const Counts& counts, DataType type, bool written);
// Throws invalid_argument where a rank's own part has two lengths, or `call` has buffers that are null or overlap otherwise
// than in place.
void require_own_part(const Call& call, const Communicator::Impl& comm);
void require_buffers(const Call& call, const Communicator::Impl& comm);

// As submit(), for a V-variant whose counts are given as its caller has them.
void submit_all_gather_v(const std::shared_ptr<Communicator::Impl>& comm, const Call& call, size_t send_count, std::span<const size_t> recv_counts,
                         std::span<const size_t> displacements, HostStream* stream);
void submit_reduce_scatter_v(const std::shared_ptr<Communicator::Impl>& comm, const Call& call, std::span<const size_t> recv_counts,
                             HostStream* stream);
void submit_all_to_all_v(const std::shared_ptr<Communicator::Impl>& comm, const Call& call, std::span<const size_t> send_counts,
                         std::span<const size_t> send_displacements, std::span<const size_t> recv_counts,
                         std::span<const size_t> recv_displacements, HostStream* stream);

// Stands for counts in shapes and fingerprints. From it and one's own counts can be told which one differs, if it is one.
uint64_t signature_of(std::span<const uint64_t> counts);
std::optional<std::vector<uint64_t>> counts_of(uint64_t signature, std::span<const uint64_t> mine);

// "3 0 5"; long ones are cut.
std::string to_string(std::span<const uint64_t> counts);

}  // namespace muster
