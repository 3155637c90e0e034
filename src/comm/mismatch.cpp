#include "comm/mismatch.h"

#include <thread>

#include "base/error.h"
#include "comm/told.h"

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

std::string message_mismatch(const Impl& comm, const FingerprintMismatch& m) {
  return fmt::format("communicator {}: a message from {} to {} doesn't match: sent were {}, the receive is for {}. Counts and types of a send "
                     "and its receive must be equal",
                     comm.name, comm.rank_name(m.peer), comm.rank_name(comm.rank), describe_message(m.found), describe_message(m.expected));
}

void raise(Impl& comm, Result code, const std::string& message) {
  comm.set_error(code, message, true);
  comm.throw_error();  // another rank may have been first; then everybody reports what that one found
}

void raise_broken(Impl& comm, const Error& why) {
  // A connection breaks when its other end dies, and the helper threads soon know more: who died.
  constexpr auto kPatience = std::chrono::seconds(1);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (why.code() == Result::remote_error && !comm.failed() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (comm.failed()) comm.throw_error();
  raise(comm, why.code(), fmt::format("communicator {}: {}", comm.name, why.what()));
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
  const auto entry = comm.control(rank).ledger[sequence % kLedgerEntries].read();
  if (!entry || entry->sequence != sequence) return {};
  PublishedCall call{unpacked(entry->shape), sequence, entry->fingerprint};
  call.shape.count = entry->count;
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

namespace {

// Of a rank on another host only what it told is known, and it is told when somebody asks.
void ask_for_calls(Impl& comm, int peer, uint64_t sequence) {
  if (comm.shown->is_here(peer)) return;
  constexpr auto kPatience = std::chrono::seconds(2);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  tell_calls(comm, true);
  while (!published_call(comm, peer, sequence) && comm.control(peer).entered.load(std::memory_order_relaxed) < sequence + kLedgerEntries && !comm.failed() &&
         std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

}  // namespace

void raise_mismatch(Impl& comm, const FingerprintMismatch& m, const Call* call, uint64_t now) {
  if ((m.expected & kMessageBit) || !call)
    raise(comm, Result::invalid_usage, message_mismatch(comm, m));
  ask_for_calls(comm, m.peer, now);
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
