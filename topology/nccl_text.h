// How NCCL's and RCCL's files write things.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "topology/pci.h"

namespace muster::topology {

// A bus id as PciAddress::parse takes it, or else as NCCL does: its hexadecimal digits one after the other,
// so that "0000:01.0" is 0000:00:01.0.
std::optional<PciAddress> parse_bus_id(std::string_view text);

// What stands for the other end of a link that a virtual machine can't see: "fffffff:ffff:ff" and its like.
bool is_unreadable(std::string_view target);

// "942", "gfx942", "gfx942:sramecc+:xnack-", "gfx90a" (910); 0 for anything else.
int parse_gcn(std::string_view text);

// A host_hash in hexadecimal; of other text a hash is made.
uint64_t parse_host_hash(std::string_view text);

}  // namespace muster::topology
