// Which host this is.
#pragma once

#include <string>

namespace muster {

std::string host_name();  // "?" where the system doesn't say
// The same until the kernel starts again, and on no other machine; empty where the system doesn't say.
std::string boot_id();
// Host name and boot id, or what NCCL_HOSTID says instead: equal on processes of one host.
std::string host_identity(const std::string& hostid_override);

}  // namespace muster
