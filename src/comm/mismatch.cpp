#include "comm/mismatch.h"

#include "base/error.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;

constexpr int kTypeShift = 58;

std::string describe_message(uint64_t fingerprint) {
  return fmt::format("{} elements of {}", fingerprint & ((uint64_t{1} << kTypeShift) - 1),
                     name_of(static_cast<DataType>((fingerprint >> kTypeShift) & 31)));
}

}  // namespace

CallShape shape_of(const LedgerEntry& e) {
  CallShape shape = unpacked(e.shape.load(std::memory_order_relaxed));
  shape.count = e.count.load(std::memory_order_relaxed);
  return shape;
}

uint64_t message_fingerprint(const MessageSize& m) { return kMessageBit | static_cast<uint64_t>(m.type) << kTypeShift | m.count; }

void raise(Impl& comm, Result code, const std::string& message) {
  comm.set_error(code, message, true);
  comm.throw_error();  // another rank may have been first; then everybody reports what that one found
}

void raise_no_memory(Impl& comm, const Call& call) {
  raise(comm, Result::system_error,
        fmt::format("communicator {}: {} has no memory left for what {} needs beside its buffers", comm.name, comm.rank_name(comm.rank),
                    to_string(call)));
}

void raise_call_mismatch(Impl& comm, const std::string& mine, int peer, const std::string& theirs) {
  raise(comm, Result::invalid_usage,
        fmt::format("communicator {}: calls don't match. {} called {}; {} called {}. Every rank must make the same calls, in the "
                    "same order, with equal counts, types, operations and roots",
                    comm.name, comm.rank_name(comm.rank), mine, comm.rank_name(peer), theirs));
}

std::string PublishedCall::text() const { return fmt::format("{} as call {}", to_string(shape), sequence); }

std::optional<PublishedCall> published_call(const Impl& comm, int rank, uint64_t sequence) {
  const LedgerEntry& e = comm.segment->control(rank).ledger[sequence % kLedgerEntries];
  if (e.sequence.load(std::memory_order_acquire) != sequence) return {};
  const PublishedCall call{shape_of(e), sequence, e.fingerprint.load(std::memory_order_relaxed)};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (e.sequence.load(std::memory_order_relaxed) != sequence) return {};  // overwritten meanwhile
  return call;
}

std::string text_of(const Impl& comm, const Call& mine, uint64_t sequence) {
  const auto published = mine.uneven ? std::nullopt : published_call(comm, comm.rank, sequence);
  return published ? published->text() : fmt::format("{} as call {}", to_string(mine), sequence);
}

std::string text_beside(const Call& mine, const PublishedCall& theirs) {
  CallShape shape = theirs.shape;
  shape.count = mine.shape.count;
  if (!mine.uneven || is_pairwise(shape.coll) || shape != mine.shape) return theirs.text();
  const auto counts = counts_of(theirs.shape.count, mine.uneven->agreed_counts(shape.coll));
  return fmt::format("{}{} as call {}", to_string(shape, counts ? *counts : std::vector<uint64_t>()), counts ? "" : " with other counts", theirs.sequence);
}

// Only the two ends of a message know its length, and they differ; the calls are the same otherwise.
[[noreturn]] void raise_count_mismatch(Impl& comm, const FingerprintMismatch& m, const Call& call, uint64_t sequence, uint64_t fingerprint) {
  raise(comm, Result::invalid_usage,
        fmt::format("communicator {}: counts don't match in {} as call {}: {} sends {} elements to {}, which expects {}. What one rank sends "
                    "to another and what that one expects from it must be equal",
                    comm.name, to_string(call), sequence, comm.rank_name(m.peer), m.found ^ fingerprint,
                    comm.rank_name(comm.rank), m.expected ^ fingerprint));
}

void raise_mismatch(Impl& comm, const FingerprintMismatch& m, const Call* call, uint64_t now) {
  if ((m.expected & kMessageBit) || !call)
    raise(comm, Result::invalid_usage,
          fmt::format("communicator {}: a message from {} to {} doesn't match: sent were {}, the receive is for {}. Counts and types of a send "
                      "and its receive must be equal",
                      comm.name, comm.rank_name(m.peer), comm.rank_name(comm.rank), describe_message(m.found), describe_message(m.expected)));
  // Where nobody waited for anybody, calls parted earlier than it shows.
  for (uint64_t s = now > kLedgerEntries ? now - kLedgerEntries + 1 : 1; s <= now; ++s) {
    const auto mine = published_call(comm, comm.rank, s), theirs = published_call(comm, m.peer, s);
    if (!mine || !theirs) continue;
    if (mine->fingerprint != theirs->fingerprint)
      raise_call_mismatch(comm, s == now ? text_of(comm, *call, now) : mine->text(), m.peer,
                          s == now ? text_beside(*call, *theirs) : theirs->text());
    if (s == now && is_uneven(theirs->shape.coll) && is_pairwise(theirs->shape.coll)) raise_count_mismatch(comm, m, *call, now, mine->fingerprint);
  }
  raise_call_mismatch(comm, text_of(comm, *call, now), m.peer,
                      "something else (already too far ahead to tell)");
}

}  // namespace muster
