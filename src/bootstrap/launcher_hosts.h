// The hosts of a job, as launchers write them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster {

// The first `most` names of a list: Slurm's ("gpu[01-03,07],login"), or Open MPI's, which says first how many
// digits a number has and, behind '@', what runs there ("gpu[2:1-3],login@0(4)"). What isn't such a list
// counts as names.
std::vector<std::string> expand_hosts(std::string_view list, size_t most);

// The addresses in how Open MPI's processes reach mpirun:
// "JOB;tcp://10.0.0.1,10.1.0.1:4711;tcp6://[fd00::1]:4712".
std::vector<std::string> contact_addresses(std::string_view uri);

}  // namespace muster
