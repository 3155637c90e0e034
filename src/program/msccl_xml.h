// Algorithms of MSCCL, the XML that msccl-tools and other schedule generators write, as programs.
//
// An algorithm has threadblocks, each with one peer to send to and one to receive from; a threadblock may wait for a step
// of another one of its GPU. Here:
// - Channels of a program can't wait for each other, so threadblocks that do become one channel. Their steps then have the
//   order of a run of the whole algorithm in which no connection ever holds more than two messages, so that the merged
//   programs can't block where the threadblocks don't.
// - A chunk of the collective is what Muster calls one; where an algorithm cuts each rank's block into several (nchunksperloop
//   over ngpus, of all collectives but all-reduce, broadcast and reduce), these are parts, with channels of their own.
// - Input is never written: where an algorithm does that, a place in scratch stands for it from then on. Algorithms for one
//   buffer (inplace="1") become right for two, too.
// - A message of several chunks is one message if they follow each other in the data, else several.
// The protocol (proto) says nothing here: connections work one way.
//
// What the attributes mean is taken from the parser and interpreter of microsoft/msccl (src/graph/ and
// src/collectives/device/): r dst = message; s message = src; cpy dst = src; re dst = dst + src; rrc dst = message + src; rcs dst
// and next message = message; rrs next message = message + src; rrcs dst and next message = message + src.
#pragma once

#include <string>
#include <string_view>

#include "program/program_set.h"

namespace muster {

// Throws invalid_argument with FILE:LINE:COLUMN for what is no such algorithm, or none that can be run. The programs can be
// wrong as the algorithm can be: check() them before use.
ProgramSet read_msccl_xml(std::string_view text, const std::string& name);

}  // namespace muster
