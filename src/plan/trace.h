// A simulation's steps as a picture over time: Chrome's trace event format, JSON that chrome://tracing and
// ui.perfetto.dev open. One process per rank, one thread per channel, times in microseconds.
// Format: "Trace Event Format", Google, 2016: complete events ("X") and metadata ("M").
#pragma once

#include <string>

#include "plan/simulator.h"

namespace muster {

// `s` must have a log (SimOptions::log). `text_of`: what a step is called; "step 3" where it is empty.
using StepText = std::function<std::string(const StepRecord&)>;
std::string chrome_trace(const Simulation& s, const StepText& text_of = {});

}  // namespace muster
