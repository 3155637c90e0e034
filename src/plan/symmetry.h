// Channels that do the same at the same time, of which one is run for all: in a ring over hosts that are
// alike, what a GPU of one host does those at its place in the other hosts do, too.
//
// Contract. Channels, connections, flows and resources are divided into classes by colour refinement
// (Berkholz, Bonsma, Grohe: "Tight lower and upper bounds for the complexity of canonical colour refinement",
// 2017), until
//   - channels of a class make the same steps of the same lengths, each with connections and windows of the
//     same classes, and each has one connection of a class that it has any of at that place;
//   - connections of a class have the same latency, and join channels of the same two classes;
//   - flows of a class go over resources of the same classes;
//   - resources of a class have the same rate, and as many flows of each class go over each.
// All of a class then begin in the same state, and each event changes them alike, so they stay in the same
// state: nothing is approximated. Colours are hashes of 64 bits; two classes taken for one by chance aren't
// worth a thought: 1e5 colours meet with probability 1e-9.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/flat_programs.h"
#include "plan/simulation_layout.h"

namespace muster {

// By number of a channel or flow: that of its class. Classes are numbered by their first members.
struct Symmetry {
  std::vector<uint32_t> channel, flow;
};

// Leaves in both the first of each class. Where that saves little, both are as they were, and each channel is
// a class.
Symmetry fold(FlatPrograms& programs, SimulationLayout& layout);
// Each channel is a class.
Symmetry no_symmetry(const FlatPrograms& programs, const SimulationLayout& layout);

}  // namespace muster
