#include "comm/uneven.h"

#include <algorithm>

#include "base/error.h"
#include "base/math.h"
#include "comm/state.h"

namespace muster {

using Impl = Communicator::Impl;
using Chunk = ChunkTable::Chunk;

std::vector<uint64_t> Uneven::agreed_counts(Coll coll) const {
  std::vector<uint64_t> counts;
  if (is_pairwise(coll)) return counts;
  for (const Chunk& c : coll == Coll::all_gather_v ? table.output : table.input) counts.push_back(c.count);
  return counts;
}

uint64_t Uneven::elements() const {
  uint64_t most = 0;
  for (const auto* chunks : {&table.input, &table.output}) {
    uint64_t sum = 0;
    for (const Chunk& c : *chunks) sum += c.count;
    most = std::max(most, sum);
  }
  return most;
}

namespace {

// Chunks that hold something, by place.
std::vector<Chunk> sorted(const std::vector<Chunk>& chunks) {
  std::vector<Chunk> s;
  std::copy_if(chunks.begin(), chunks.end(), std::back_inserter(s), [](const Chunk& c) { return c.count != 0; });
  std::sort(s.begin(), s.end(), [](const Chunk& a, const Chunk& b) { return a.begin < b.begin; });
  return s;
}

}  // namespace

std::vector<Chunk> lay_out(Coll coll, const Impl& comm, const Counts& given, DataType type, bool written) {
  const auto n = static_cast<size_t>(comm.size);
  const auto where = [&] { return fmt::format("{} on rank {}", name_of(coll), comm.rank); };
  if (given.counts.size() != n)
    fail(Result::invalid_argument, "{}: {} has {} entries; the communicator has {} ranks, and needs one for each", where(), given.name,
         given.counts.size(), n);
  if (!given.displacements.empty() && given.displacements.size() != n)
    fail(Result::invalid_argument, "{}: there are {} displacements for {}; pass one for each of the {} ranks, or none if the parts lie one behind the other",
         where(), given.displacements.size(), given.name, n);
  const uint64_t most = kAddressSpace / std::max<uint64_t>(1, size_of(type));
  std::vector<Chunk> chunks(n);
  uint64_t end = 0, total = 0;
  for (size_t i = 0; i < n; ++i) {
    chunks[i] = {given.displacements.empty() ? end : given.displacements[i], given.counts[i]};
    if (chunks[i].begin > most || chunks[i].count > most || (total += chunks[i].count) > most)
      fail(Result::invalid_argument, "{}: {} for rank {} is {} elements of {} at {}, more than an address space holds", where(), given.name, i,
           chunks[i].count, name_of(type), chunks[i].begin);
    end = chunks[i].begin + chunks[i].count;
  }
  if (written && !given.displacements.empty()) {
    const std::vector<Chunk> s = sorted(chunks);
    for (size_t i = 1; i < s.size(); ++i)
      if (s[i - 1].begin + s[i - 1].count > s[i].begin)
        fail(Result::invalid_argument, "{}: parts of the receive buffer overlap: {} elements at {} and {} at {}. Each rank's part needs a place of its own",
             where(), s[i - 1].count, s[i - 1].begin, s[i].count, s[i].begin);
  }
  return chunks;
}

void require_own_part(const Call& call, const Impl& comm) {
  const auto me = static_cast<size_t>(comm.rank);
  const auto& in = call.uneven->table.input;
  const auto& out = call.uneven->table.output;
  if (in.empty() || out.empty()) return;
  const uint64_t sent = in[in.size() > 1 ? me : 0].count, received = out[out.size() > 1 ? me : 0].count;
  if (sent != received)
    fail(Result::invalid_argument, "{} on rank {}: it sends {} elements to itself and expects {} from itself. Both counts must be equal",
         to_string(call), comm.rank, sent, received);
}

void require_buffers(const Call& call, const Impl& comm) {
  const Uneven& u = *call.uneven;
  const auto holds = [](const std::vector<Chunk>& chunks) {
    return std::any_of(chunks.begin(), chunks.end(), [](const Chunk& c) { return c.count != 0; });
  };
  const bool sends = holds(u.table.input), receives = holds(u.table.output);
  const auto require = [&](bool needed, const void* p, const char* which) {
    if (needed && !p) fail(Result::invalid_argument, "{} on rank {}: {} buffer is null", to_string(call), comm.rank, which);
  };
  require(sends, call.send, "send");
  require(receives, call.recv, "receive");
  if (!sends || !receives) return;

  const uint64_t element = size_of(call.shape.type);
  const auto* a = static_cast<const std::byte*>(call.send);
  const auto* b = static_cast<const std::byte*>(call.recv);
  if (a + u.input_end * element <= b || b + u.output_end * element <= a) return;
  const auto me = static_cast<size_t>(comm.rank);
  const auto& in = u.table.input;
  const auto& out = u.table.output;
  const auto own = [&](const std::byte* p, const std::vector<Chunk>& chunks) { return p + chunks[chunks.size() > 1 ? me : 0].begin * element; };
  const bool in_place = call.shape.coll == Coll::all_to_all_v ? a == b && in == out : own(a, in) == own(b, out);
  if (in_place) return;
  for (const Chunk& s : in)
    for (const Chunk& r : out)
      if (s.count && r.count && a + s.begin * element < b + (r.begin + r.count) * element && b + r.begin * element < a + (s.begin + s.count) * element)
        fail(Result::invalid_argument,
             "{} on rank {}: send buffer {} and receive buffer {} overlap by other than the in-place form of this collective", to_string(call),
             comm.rank, call.send, call.recv);
}

namespace {

// Odd, so that it can be divided by, modulo 2^64.
uint64_t weight_of(size_t i) { return mix64(i + 1) | 1; }

uint64_t inverse(uint64_t odd) {
  uint64_t x = odd;  // right in the low 3 bits; each turn doubles them
  for (int i = 0; i < 5; ++i) x *= 2 - odd * x;
  return x;
}

}  // namespace

uint64_t signature_of(std::span<const uint64_t> counts) {
  uint64_t s = 0;
  for (size_t i = 0; i < counts.size(); ++i) s += counts[i] * weight_of(i);
  return s;
}

std::optional<std::vector<uint64_t>> counts_of(uint64_t signature, std::span<const uint64_t> mine) {
  const uint64_t difference = signature - signature_of(mine);
  for (size_t i = 0; i < mine.size(); ++i) {
    const uint64_t theirs = mine[i] + difference * inverse(weight_of(i));
    if (theirs >= uint64_t{1} << 40) continue;  // a difference in another place gives any number
    std::vector<uint64_t> counts(mine.begin(), mine.end());
    counts[i] = theirs;
    return counts;
  }
  return {};
}

std::string to_string(std::span<const uint64_t> counts) {
  constexpr size_t kMost = 32;
  std::string text;
  for (size_t i = 0; i < std::min(counts.size(), kMost); ++i) text += fmt::format("{}{}", i ? " " : "", counts[i]);
  if (counts.size() > kMost) text += fmt::format(" ... of {} ranks", counts.size());
  return text;
}

}  // namespace muster
