// How many multiprocessors collectives on GPU memory may take, as NCCL's programs say it.
#pragma once

#include "base/options.h"
#include "muster/muster.h"

namespace muster {

// Whether copies shall go by copy engines, which take none: NCCL_CTA_POLICY, if it is set, else the
// configuration. Throws invalid_usage for what is no policy.
bool wants_copy_engines(const Options& options, const Config& config);

}  // namespace muster
