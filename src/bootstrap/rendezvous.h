// How the ranks of a launcher's job get a unique id from rank 0.
//
// Rank 0 makes the id and serves it at the meeting point until every rank has it. The handshake there is
// keyed with MUSTER_JOB_KEY and the job's identity; the id's key travels masked with a secret of the
// connection. Without MUSTER_JOB_KEY everything in that is public: over TCP, whoever knows address, port and
// job can come in, or read the id on its way; at a UNIX socket both ends then check that the other belongs to
// the same user.
#pragma once

#include "bootstrap/bootstrap.h"
#include "bootstrap/launcher.h"

namespace muster {

// generation: how many communicators this job has met for; equal on all ranks.
UniqueId meet_at_launchers_point(const Launch& launch, uint32_t generation, const Options& options,
                                 Deadline deadline);

}  // namespace muster
