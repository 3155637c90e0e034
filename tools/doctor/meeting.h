// Bringing a job's ranks together without a communicator: each tells rank 0 about its host, then one rank of each host tries
// to reach one of each other host. Only rank 0 need be reachable for that, so what is wrong elsewhere can be told.
#pragma once

#include "base/deadline.h"
#include "bootstrap/launcher.h"
#include "findings.h"

namespace muster::doctor {

// On rank 0 all that came by the deadline; on other ranks this rank alone. Doesn't throw: Job::meeting_problem says why the
// ranks couldn't meet.
Job meet(const Launch& launch, Facts mine, Deadline deadline);

}  // namespace muster::doctor
