// How options set up the log, and what it says about them.
#pragma once

#include "base/log.h"
#include "base/options.h"

namespace muster {

// What MUSTER_LOG and the NCCL_DEBUG variables ask for; notes: which of their words can't be read. MUSTER_LOG, where it
// is set, has the last word on the level. Throws invalid_usage for a MUSTER_LOG that names no level.
LogSettings log_settings(const Options& options, std::vector<OptionNote>& notes);

// Sets up this process's log and reports the options' notes; each is said once in a process, as long as it stays the
// same. `head`: of several ranks one, which says the version where NCCL_DEBUG asks for it.
void start_logging(const Options& options, bool head);

}  // namespace muster
