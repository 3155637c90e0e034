// What the names and numbers of network devices tell.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "topology/machine.h"

namespace muster::topology {

// What kind of network a port belongs to, as far as its card's class and vendor and its name tell.
// `class_code` and `vendor` are 0 and `device` empty where they aren't known. Sources: PCI class codes
// (0x0207: InfiniBand, 0x0200: Ethernet); names as Linux drivers, rdma-core and systemd give them.
Network network_of(uint32_t class_code, uint16_t vendor, std::string_view device);

// A GUID as the kernel and hwloc write it, "a088:c203:0009:704e", as "0xa088c2030009704e"; empty for one of zeros and what is none.
std::string guid_of(std::string_view text);

}  // namespace muster::topology
