#include "comm/told.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/wire.h"

namespace muster {
namespace {

using Impl = Communicator::Impl;
constexpr auto kUnordered = std::memory_order_relaxed;

enum class Told : uint8_t { left = 1, error, board, calls };

int64_t steady_now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

bool has_listeners(const Impl& comm) { return comm.shown && comm.shown->spans_hosts(); }

template <class Write>
void tell(const Impl& comm, Told what, Write write) noexcept {
  if (!has_listeners(comm)) return;
  try {
    Writer w;
    w.u8(static_cast<uint8_t>(what));
    write(w);
    comm.family->tell(comm.id, w.take());
  } catch (const std::exception& e) {
    log_warn("communicator {}: the other hosts could not be told of {}: {}", comm.name, comm.rank_name(comm.rank), e.what());
  }
}

// --- boards ---

void write_note(Writer& w, const Board::Note& note) {
  const uint64_t left = note.left.load(kUnordered);
  w.u64(note.stamp.load(kUnordered)).u64(left);
  for (size_t i = 0; i * 8 < std::min<uint64_t>(left, Board::kBytes); ++i) w.u64(note.text[i].load(kUnordered));
}

void read_note(Reader& r, Board& board) {
  const uint64_t stamp = r.u64(), left = r.u64();
  Board::Note& note = board.notes[stamp & 1];
  note.left.store(left, kUnordered);
  for (size_t i = 0; i * 8 < std::min<uint64_t>(left, Board::kBytes); ++i) note.text[i].store(r.u64(), std::memory_order_release);
  if (r.ok()) note.stamp.store(stamp, std::memory_order_release);
}

void hear_board(Impl& comm, int from, Reader& r) {
  const uint8_t kind = r.u8();
  if (kind > static_cast<uint8_t>(BoardKind::some)) return;
  Board& board = comm.shown->board(from, static_cast<BoardKind>(kind));
  const uint64_t attempt = r.u64(), open = r.u64();
  if (r.u8() != 0) read_note(r, board);
  if (!r.ok()) return;
  board.attempt.store(attempt, std::memory_order_release);
  board.open.store(open, std::memory_order_release);
}

// --- calls ---

// Whether one whose last call is `theirs` learns something from this rank: a call, or that this rank, which is behind, is
// there at all.
bool has_news(const Impl& comm, uint64_t theirs) {
  const uint64_t mine = comm.control(comm.rank).entered.load(kUnordered);
  return mine != comm.told_entered.load(kUnordered) || (mine < theirs && steady_now() - comm.told_at.load(kUnordered) > kTellAgain.count());
}

void hear_calls(Impl& comm, int from, Reader& r) {
  RankControl& theirs = comm.shown->control(from);
  const bool asks = r.u8() != 0;
  const uint64_t entered = r.u64();
  while (r.ok() && !r.at_end()) {
    const uint64_t sequence = r.u64(), shape = r.u64(), count = r.u64(), fingerprint = r.u64();
    if (r.ok()) theirs.ledger[sequence % kLedgerEntries].write({sequence, shape, count, fingerprint});
  }
  if (!r.ok()) return;
  theirs.entered.store(entered, kUnordered);
  theirs.times.seen_at.store(steady_now(), std::memory_order_release);
  if (asks && has_news(comm, entered)) tell_calls(comm, false);
}

}  // namespace

void tell_left(const Impl& comm) noexcept {
  tell(comm, Told::left, [](Writer&) {});
}

void tell_error(const Impl& comm, Result code, const std::string& message, bool revoke) noexcept {
  tell(comm, Told::error, [&](Writer& w) { w.i32(static_cast<int>(code)).u8(revoke).text(message); });
}

void tell_board(const Impl& comm, BoardKind kind, const Board::Note* note) noexcept {
  tell(comm, Told::board, [&](Writer& w) {
    const Board& board = comm.board(comm.rank, kind);
    w.u8(static_cast<uint8_t>(kind)).u64(board.attempt.load(kUnordered)).u64(board.open.load(kUnordered)).u8(note != nullptr);
    if (note) write_note(w, *note);
  });
}

void tell_calls(Impl& comm, bool asks) noexcept {
  tell(comm, Told::calls, [&](Writer& w) {
    const RankControl& mine = comm.control(comm.rank);
    const uint64_t entered = mine.entered.load(std::memory_order_acquire);
    comm.told_entered.store(entered, kUnordered);
    comm.told_at.store(steady_now(), kUnordered);
    w.u8(asks).u64(entered);
    for (const LedgerEntry& e : mine.ledger)
      if (const auto call = e.read()) w.u64(call->sequence).u64(call->shape).u64(call->count).u64(call->fingerprint);
  });
}

void hear(Impl& comm, int from, std::string_view text) {
  if (!has_listeners(comm) || comm.shown->is_here(from)) return;
  Reader r(text);
  switch (static_cast<Told>(r.u8())) {
    case Told::left:
      comm.control(from).left.store(1, std::memory_order_release);
      break;
    case Told::error: {
      const Result code = error_code(r.i32());
      const bool revoke = r.u8() != 0;
      const std::string message = r.text();
      if (r.ok()) comm.set_error(code, message, false, revoke);
      break;
    }
    case Told::board:
      hear_board(comm, from, r);
      break;
    case Told::calls:
      return hear_calls(comm, from, r);
  }
  comm.control(comm.rank).doorbell.ring();
}

}  // namespace muster
