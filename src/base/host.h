// Which host this is.
#pragma once

#include <string>

namespace muster {

std::string host_name();  // "?" where the system doesn't say
// The same until the kernel starts again, and on no other machine; empty where the system doesn't say.
std::string boot_id();
// Names this process's network namespace, outside of which its UNIX sockets can't be reached; empty where the system doesn't say.
std::string network_namespace();
// Host name, boot id and network namespace, or what NCCL_HOSTID says instead: equal on processes of one host. Containers with
// networks of their own are hosts of their own, whatever they are called.
std::string host_identity(const std::string& hostid_override);
// Equal on processes that share this kernel, and so its cores, whatever host they think they are on.
std::string machine_identity();

}  // namespace muster
