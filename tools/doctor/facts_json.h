// Facts as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "facts.h"

namespace muster::topology {

NLOHMANN_JSON_SERIALIZE_ENUM(Severity, {{Severity::note, "note"}, {Severity::warning, "warning"}, {Severity::error, "error"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Finding, severity, id, where, text, remedy)

}  // namespace muster::topology

namespace muster::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(InterfaceFacts, name, up, loopback, mtu, gbit_per_s, rp_filter, addresses)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(GidFacts, index, address, type, interface)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RdmaPortFacts, device, port, up, ethernet, gbit_per_s, gids)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NetworkFacts, name, problem)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(GroupLimit, limit, used)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Facts, rank, local_rank, pid, host, identity, place, whole_host, muster, kernel,
                                                ucx, ibverbs, nvidia, allowed_cpus, host_cpus, cpus, cpu_quota, memory_bytes,
                                                group_memory, group_processes, open_files, open_files_hard, processes,
                                                locked_bytes, shm_bytes, shm_problem, memfd_problem, local_ports,
                                                listen_queue, port_range, interfaces, interface, address, no_address,
                                                listener, rdma, networks, network_wish, network_problem, agreement, warnings, options_problem, findings)

}  // namespace muster::doctor
