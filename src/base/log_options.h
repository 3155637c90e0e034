// How options set up the log, and what it says about them.
#pragma once

#include "base/log.h"
#include "base/options.h"

namespace muster {

// What MUSTER_LOG and the NCCL_DEBUG variables ask for; notes: which of their words can't be read. MUSTER_LOG, where it
// is set, has the last word on the level. Throws invalid_usage for a MUSTER_LOG that names no level.
LogSettings log_settings(const Options& options, std::vector<OptionNote>& notes);

// Says it, a warning or info, unless this process has said it before.
void log_once(const OptionNote& note);

// Sets up this process's log and reports the options' notes, each once. `head`: of several ranks one, which says the version where NCCL_DEBUG asks for it.
void start_logging(const Options& options, bool head);

}  // namespace muster
