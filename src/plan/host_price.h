// What a collective costs on host memory: all ranks' programs are run on clocks, step by step, as the
// executor would run them on data (src/exec/host/executor.h).
//
//   a call      host.call, once per rank: arguments, plan, numbering
//   a step      host.message for each message sent or received in it, which is what it takes in instructions;
//               more (host.ring) for a message that its control line has no room for; and for each byte
//                 1/host.local   each time it is read from or written to this rank's buffers
//                 1/host.slot    each time it is read from or written to a connection's memory
//                 1/host.window  each time it is read from a peer's buffer
//                 1/host.window.store  each time it is written there
//                 1/host.combine for each source after the first; loads of this rank's own part are hidden
//   a message   is seen host.hand_over after it was sent: its line goes from one core to the other
//   turns       ranks that share a core take turns: one that has to wait leaves it to the next one, which
//               takes host.turn, whether that one can go on or not. Rank r runs on core r modulo the number
//               of cores. Senders that nobody answers run ahead until they need credit, after a quarter of a
//               connection's lines; so often at least all ranks of a core have had their turns. One rank
//               moves data while another waits, so the clocks run without data, and all that a core's ranks
//               move comes on top. (Were data on the clocks, a little more of it could change whose turn it
//               is, and make the whole cheaper.) A rank with a core of its own waits on it, and its data is
//               on the clocks.
//
// Bytes have two prices each: while all ranks' buffers are in the last-level cache, and (.memory) when
// nothing of them is left there from call to call. From half of the cache on to two and a half the price goes
// over from one to the other in a straight line. Connections' memory is in the cache as far as there is
// room beside the buffers.
//
// Data of more than one tile is pipelined as the executor does it, by the order of steps: the first tiles are
// run on the clocks, and what each further one takes is the difference between 2 tiles and 4. Likewise a
// price is what one call among many alike takes, as benchmarks measure it: a broadcast's root, say, is ahead
// of the others.
//
// This is the LogGP model (Alexandrov, Ionescu, Schauser, Scheiman 1995: latency L = hand_over, overhead o =
// message, gap per byte G = the rates), where steps of one rank follow one another, and with cores as what
// ranks share. Numbers: constants.tsv, or what `muster tune` measured.
#pragma once

#include "plan/constants.h"
#include "plan/planner.h"

namespace muster {

struct HostPrice {
  double us = 0;           // of one call; its parts, of the core that is busiest with it:
  double messages_us = 0;  // instructions: the call, its messages
  double bytes_us = 0;     // moving and combining data
  double turns_us = 0;     // going from rank to rank
  double waits_us() const { return us - messages_us - bytes_us - turns_us; }  // for others
};

// Bytes of the caller's that a call reads or writes on all ranks together: what caches have to hold.
double host_footprint(const CallShape& call, int nranks);
// Times the last-level cache: from the first on bytes begin to cost more, from the second on none is in it.
inline constexpr double kFillsCache = 0.5, kLeavesCache = 2.5;
// 0: all of it stays in the cache; 1: nothing does.
double share_outside_cache(double bytes, double cache_bytes);
// Of adding one byte of this type to another.
double combine_us_per_byte(DataType type, const Constants& constants);

// By the model alone. Of `inputs`: ranks, cores, channels, slot and cache bytes, and the programs of a custom
// algorithm. Any algorithm of the call's collective may be asked for, also one that couldn't run it. Thread-safe.
HostPrice host_model_price(const Algorithm& algorithm, const CallShape& call, const PlanInputs& inputs,
                           const Constants& constants);

// The same, put right by what `constants` know of whole calls (measured_calls.h). A call that was measured costs
// what it took. Between two measured sizes the price goes from one time to the other as the model's does;
// below the first and above the last it is the model's by the ratio of that one's time to its price, which fades up to
// where constants of bytes outside caches were measured (kLeavesCache), if the profile has them. For other
// types, channels, or numbers of ranks than those measured, times are first changed as the model changes. So
// prices keep never falling with sizes, if the model's don't: times in a row don't (MeasuredCalls::add), nor
// changed ones (the largest so far counts), and the way from one to the next is the model's own. All parts of
// a price change alike.
HostPrice host_price(const Algorithm& algorithm, const CallShape& call, const PlanInputs& inputs,
                     const Constants& constants);
// Of point-to-point messages that each rank exchanges with one other, or of a one-sided copy: one message of
// `bytes`.
HostPrice host_message_price(uint64_t bytes, const PlanInputs& inputs, const Constants& constants);

}  // namespace muster
