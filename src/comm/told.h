// What a rank tells ranks of other hosts of a communicator beside its messages, and what they make of it. Ranks of its own
// host read the same in shared memory; where all ranks are on one host nothing is told.
//
// It travels by way of the processes' helper threads (Bootstrap::tell), so it comes through whatever the ranks
// themselves do.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "comm/state.h"

namespace muster {

// For whoever writes what is told; none of them throws or blocks.
void tell_left(const Communicator::Impl& comm) noexcept;
void tell_error(const Communicator::Impl& comm, Result code, const std::string& message, bool revoke) noexcept;
// This rank's board; `note`: the one that was just written, null: only what stands beside the notes.
void tell_board(const Communicator::Impl& comm, BoardKind kind, const Board::Note* note) noexcept;
// The calls that this rank has made lately. `asks`: the others are to tell theirs, unless they have since the last call.
void tell_calls(Communicator::Impl& comm, bool asks) noexcept;

// A rank that is asked tells the same again when so much time has passed.
inline constexpr std::chrono::nanoseconds kTellAgain = std::chrono::seconds(1);

// What rank `from` of the communicator told, on the helper thread. What can't be read is dropped.
void hear(Communicator::Impl& comm, int from, std::string_view text);

}  // namespace muster
