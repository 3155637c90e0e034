// Calls that don't match, and other ends of a call: found by fingerprints and by what ranks publish of their calls; told
// with both calls spelled out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/state.h"

namespace muster {

// Point-to-point fingerprints say what the message is; those of collectives have the top bit clear.
inline constexpr uint64_t kMessageBit = uint64_t{1} << 63;
uint64_t message_fingerprint(const MessageSize& m);

// Of a send and a receive.
std::string message_mismatch(const Communicator::Impl& comm, const FingerprintMismatch& m);

CallShape shape_of(const LedgerEntry& entry);
// A call as its rank published it.
struct PublishedCall {
  CallShape shape;
  uint64_t sequence = 0;
  uint64_t fingerprint = 0;
  std::string text() const;  // "AllReduce(...) as call 17"
};
// What `rank` called as its call `sequence`, as far as its ledger reaches.
std::optional<PublishedCall> published_call(const Communicator::Impl& comm, int rank, uint64_t sequence);

// A call of this rank, with what a tuner plugin chose for it.
std::string text_of(const Communicator::Impl& comm, const Call& mine, uint64_t sequence);
// `theirs` beside this rank's call of the same number. Of counts that differ only a signature is published.
std::string text_beside(const Call& mine, const PublishedCall& theirs);

// All of these make what they throw the communicator's error, unless another rank was first: then they throw that one's.
[[noreturn]] void raise(Communicator::Impl& comm, Result code, const std::string& message);
// For what a call throws that is under way; a network says so that a connection is lost.
[[noreturn]] void raise_broken(Communicator::Impl& comm, const Error& why);
[[noreturn]] void raise_no_memory(Communicator::Impl& comm, const Call& call);
[[noreturn]] void raise_call_mismatch(Communicator::Impl& comm, const std::string& mine, int peer, const std::string& theirs);
// `call`: the collective under way, this rank's call `sequence`; null if a message of send and recv was met.
[[noreturn]] void raise_mismatch(Communicator::Impl& comm, const FingerprintMismatch& m, const Call* call, uint64_t sequence);

}  // namespace muster
